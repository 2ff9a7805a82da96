// Display an episode's turns as a conversation.

import { board } from "./boards.js";
import { el } from "./dom.js";
import { number, plural, seconds, signed } from "./format.js";

const LONG = 6000; // messages with more characters are collapsed

export function message(who, parts, picture, env) {
  return el(
    "div",
    { class: `message ${who}` },
    el("span", { class: "who" }, { env: "environment", tool: "tool", agent: "agent" }[who]),
    parts.map((part) => piece(part, picture, env)),
  );
}

function piece(part, picture, env) {
  if (part.type === "image")
    return el("img", { class: "shown", alt: "environment observation", loading: "lazy", src: picture(part) });
  if (part.type === "board") return board(env, part.text) ?? el("pre", { class: "board" }, part.text);
  if (part.text === "") return null;
  if (part.text.length <= LONG) return el("pre", {}, part.text);
  const rest = el("pre", {}, part.text.slice(0, LONG), "…");
  const more = el(
    "button",
    { type: "button", onclick: () => (rest.replaceChildren(part.text), more.remove()) },
    `Show all ${number(part.text.length)} characters`,
  );
  return [rest, more];
}

// A state rendered by the environment.
export function drawing(view, address) {
  if (!view || (!view.image && !view.text)) return null;
  return el(
    "div",
    { class: "drawing" },
    view.image
      ? el("img", { class: "shown", alt: "state rendered by the environment", src: address })
      : el("pre", { class: "board" }, view.text),
  );
}

export function turn(item, index, picture, env) {
  return el(
    "section",
    { class: "turn", id: `turn-${index}`, "data-turn": index },
    message(item.shown.role, item.shown.parts, picture, env),
    el(
      "div",
      { class: "message agent" },
      el("span", { class: "who" }, "agent"),
      item.text === "" ? el("p", { class: "dim" }, "(empty reply)") : words(item.text),
      item.native_calls.map((call) => tool(call.name, call.arguments, null)),
      item.tool_calls.map((call) => tool(call.name ?? call.tool, call.arguments ?? call.code, call)),
      metrics(item, index),
    ),
  );
}

// Display the model's reasoning separately.
function words(text) {
  const match = /^([\s\S]*?)<think>([\s\S]*?)<\/think>([\s\S]*)$/.exec(text);
  if (!match) return piece({ type: "text", text });
  const [, before, thought, after] = match;
  return [
    before.trim() && el("pre", {}, before),
    el("details", { class: "thought" }, el("summary", {}, "thinking"), el("pre", {}, thought.trim())),
    after.trim() && el("pre", {}, after.trim()),
  ];
}

function tool(name, given, result) {
  const text =
    typeof given === "string"
      ? given
      : given && Object.values(given).length === 1 && typeof Object.values(given)[0] === "string"
        ? Object.values(given)[0]
        : JSON.stringify(given ?? {}, null, 2);
  const skip = new Set(["name", "arguments", "ok", "id", "tool", "code"]);
  const facts = Object.entries(result ?? {}).filter(
    ([key, value]) => !skip.has(key) && value !== null && typeof value !== "object",
  );
  return el(
    "div",
    { class: "tool-call" },
    el(
      "div",
      {},
      el("b", {}, name ?? "tool"),
      result &&
        result.ok !== undefined &&
        el("span", { class: `chip ${result.ok ? "solved" : "failed"}` }, result.ok ? "ok" : "error"),
      facts
        .slice(0, 6)
        .map(([key, value]) =>
          el("span", { class: "chip" }, `${key} ${typeof value === "number" ? number(value) : value}`),
        ),
    ),
    el("pre", {}, text),
  );
}

export function metrics(item, index) {
  const chips = [
    el("span", { class: "chip count" }, `turn ${index + 1}`),
    chip("reward", item.reward, signed(item.reward)),
  ];
  chips.push(chip("return", 0, number(item.to_go), "return from this turn on"));
  if (item.advantage !== null && item.advantage !== undefined)
    chips.push(chip("advantage", item.advantage, signed(item.advantage)));
  const spent = [
    item.agent_seconds > 0 && `agent ${seconds(item.agent_seconds)}`,
    item.env_seconds > 0 && `environment ${seconds(item.env_seconds)}`,
  ].filter(Boolean);
  if (spent.length) chips.push(el("span", { class: "chip quiet" }, spent.join(", ")));
  for (const call of item.calls) {
    const parts = [`${call.kind === "act" ? "" : `${call.kind}: `}${plural(call.sampled, "token")}`];
    if (call.logprob !== null) parts.push(`p ${number(Math.exp(call.logprob), 2)}`);
    chips.push(
      el(
        "span",
        {
          class: "chip quiet",
          title: `${call.prompt_tokens} prompt tokens; mean probability of a sampled token; weights version ${call.version}`,
        },
        parts.join(", "),
      ),
    );
    if (call.finish === "length") chips.push(el("span", { class: "chip warn" }, "reply truncated"));
    if (call.split)
      chips.push(
        el(
          "span",
          { class: "chip warn", title: "the prompt does not extend the previous tokens" },
          `split: ${call.split}`,
        ),
      );
  }
  if (item.info.invalid) chips.push(el("span", { class: "chip warn" }, `invalid: ${item.info.invalid}`));
  if (item.truncated) chips.push(el("span", { class: "chip truncated" }, "truncated"));
  const known = new Set(["invalid", "turn", "success", "ending", "tool_calls_used", "tool_calls_left"]);
  const rest = Object.entries(item.info).filter(([key]) => !known.has(key));
  const more = rest.length
    ? el(
        "details",
        { class: "info" },
        el("summary", {}, "info"),
        el("pre", {}, JSON.stringify(Object.fromEntries(rest), null, 2)),
      )
    : null;
  return el("div", { class: "metrics" }, chips, more);
}

const chip = (name, sign, text, title) =>
  el("span", { class: `chip ${sign > 0 ? "plus" : sign < 0 ? "minus" : "quiet"}`, title }, `${name} ${text}`);

// One bar per turn: its height shows the duration, its color the sign of the advantage or reward. A click scrolls to the turn.
export function strip(turns, go) {
  if (turns.length < 2) return null;
  const longest = Math.max(...turns.map((item) => item.agent_seconds + item.env_seconds), 1e-9);
  return el(
    "div",
    { class: "strip", role: "group", "aria-label": "Turns" },
    turns.map((item, i) => {
      const value = item.advantage ?? item.reward;
      const took = item.agent_seconds + item.env_seconds;
      return el(
        "button",
        {
          type: "button",
          class: value > 0 ? "plus" : value < 0 ? "minus" : "",
          title: `turn ${i + 1}: reward ${signed(item.reward)}, ${seconds(took)}`,
          "aria-label": `turn ${i + 1}`,
          onclick: () => go(i),
        },
        el("i", { style: { height: `${Math.round(25 + (75 * took) / longest)}%` } }),
      );
    }),
  );
}

export function failure(data) {
  if (!data.failure) return null;
  const { boundary, kind, message: text, trace } = data.failure;
  return el(
    "div",
    { class: "problem" },
    el(
      "p",
      {},
      el("b", {}, `${kind} at the ${boundary}`),
      ". The agent did not cause this failure; the episode is excluded from all metrics and losses.",
    ),
    el("pre", {}, text),
    trace && el("details", {}, el("summary", {}, "traceback"), el("pre", {}, trace)),
  );
}
