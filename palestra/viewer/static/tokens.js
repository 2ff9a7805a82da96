// Display the tokens in prompts and replies. Sampled tokens are shaded by probability and underlined by advantage.

import { el, set } from "./dom.js";
import { number, percent, signed } from "./format.js";

const AT_ONCE = 4000; // tokens rendered before yielding to the browser

export function tokens(data) {
  if (!data.sequences.length)
    return el(
      "p",
      { class: "empty" },
      "No token ids are stored: the agent was not a model, or its server returned no token ids.",
    );
  const most = Math.max(...(data.advantages ?? []).map(Math.abs), 1e-9);
  const text = el("div", {
    class: "tokens",
    tabindex: 0,
    role: "group",
    "aria-label": "Tokens; use the arrow keys to move between them",
  });
  const panel = el("div", { class: "token-panel", "aria-live": "polite" }, hint());
  const facts = [];
  let queue = [];
  for (const [s, sequence] of data.sequences.entries()) {
    if (s > 0)
      queue.push({
        note: `a new prompt that does not extend the tokens above${sequence.split ? ` (${sequence.split})` : ""}`,
      });
    let turn = -1;
    for (const span of sequence.spans) {
      if (span.turn !== turn) {
        turn = span.turn;
        queue.push({ turn });
      }
      span.ids.forEach((id, i) => queue.push({ span, i, id }));
    }
  }
  const draw = () => {
    const part = document.createDocumentFragment();
    for (const item of queue.slice(0, AT_ONCE)) {
      if (item.note) part.append(el("div", { class: "split" }, item.note));
      else if (item.turn !== undefined)
        part.append(
          el(
            "div",
            { class: "turn-mark", "data-turn": item.turn },
            `turn ${item.turn + 1}`,
            reward(data.rewards[item.turn]),
          ),
        );
      else part.append(token(item));
    }
    text.append(part);
    queue = queue.slice(AT_ONCE);
    if (queue.length) requestAnimationFrame(draw);
  };

  function token({ span, i, id }) {
    const piece = span.pieces ? span.pieces[i] : null;
    const logprob = span.logprobs?.[i] ?? null;
    const advantage = span.is_prompt ? null : (data.advantages?.[span.turn] ?? null);
    const node = el(
      "span",
      { class: span.is_prompt ? "tok prompt" : "tok sampled", "data-n": facts.length },
      label(piece, id),
    );
    if (logprob !== null) node.style.setProperty("--shade", (1 - Math.exp(logprob)).toFixed(3));
    if (advantage !== null) {
      node.classList.add(advantage > 0 ? "good" : advantage < 0 ? "poor" : "flat");
      node.style.setProperty("--strength", (0.25 + (0.75 * Math.abs(advantage)) / most).toFixed(3));
    }
    facts.push({ id, piece, logprob, advantage, isPrompt: span.is_prompt, kind: span.kind, turn: span.turn });
    return node;
  }

  let at = -1;
  function point(n) {
    if (Number.isNaN(n) || !facts[n]) return;
    text.querySelector(".tok.at")?.classList.remove("at");
    at = n;
    text.querySelector(`[data-n="${n}"]`)?.classList.add("at");
    set(panel, describe(n, facts[n]));
  }
  text.addEventListener("pointerover", (event) => point(Number(event.target.closest(".tok")?.dataset.n ?? NaN)));
  text.addEventListener("click", (event) => point(Number(event.target.closest(".tok")?.dataset.n ?? NaN)));
  text.addEventListener("keydown", (event) => {
    const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!by) return;
    event.preventDefault();
    event.stopPropagation();
    point(Math.max(0, Math.min(facts.length - 1, at + by)));
    text.querySelector(".tok.at")?.scrollIntoView({ block: "nearest" });
  });
  const only = el("input", {
    type: "checkbox",
    name: "sampled",
    onchange: (event) => text.classList.toggle("sampled-only", event.target.checked),
  });
  draw();
  return el(
    "div",
    {},
    el("div", { class: "token-head" }, legend(data), el("label", {}, only, " sampled only")),
    el("p", { class: "dim small" }, data.decoded ? `Decoded with ${data.tokenizer}.` : `${data.tokenizer}.`),
    text,
    panel,
  );
}

const hint = () => el("span", { class: "dim" }, "Point at a token, or move between tokens with ← and →.");

function label(piece, id) {
  if (piece === null) return `${id} `;
  if (piece === "") return el("i", { class: "rest" }, "·");
  if (/^\s*\n\s*$/.test(piece)) return [el("i", { class: "space" }, "↵".repeat(piece.split("\n").length - 1)), piece];
  return piece;
}

function describe(n, fact) {
  const p = fact.logprob === null ? null : Math.exp(fact.logprob);
  const items = [
    el("code", {}, fact.piece === null ? String(fact.id) : JSON.stringify(fact.piece)),
    el("span", {}, `token ${n + 1}, id ${fact.id}`),
    el(
      "span",
      {},
      fact.isPrompt
        ? "prompt token"
        : `sampled in turn ${fact.turn + 1}${fact.kind === "act" ? "" : ` (${fact.kind})`}`,
    ),
  ];
  if (p !== null)
    items.push(
      el(
        "span",
        {},
        `probability ${p > 0.9999 ? ">99.99%" : percent(p, p < 0.01 ? 4 : 2)} (log ${number(fact.logprob)})`,
      ),
    );
  items.push(el("span", {}, fact.isPrompt ? "mask 0: not trained on" : "mask 1"));
  if (fact.advantage !== null) items.push(el("span", {}, `advantage ${signed(fact.advantage)}`));
  return items;
}

function reward(value) {
  return el("span", { class: `chip ${value > 0 ? "plus" : value < 0 ? "minus" : "quiet"}` }, `reward ${signed(value)}`);
}

function legend(data) {
  const shades = [0.05, 0.5, 0.95].map((shade) =>
    el("span", { class: "tok sampled", style: { "--shade": shade } }, percent(1 - shade, 0)),
  );
  return el(
    "div",
    { class: "legend" },
    el("span", {}, el("span", { class: "tok prompt" }, "prompt"), " mask 0"),
    el("span", {}, "sampled, by probability ", shades),
    data.advantages &&
      el(
        "span",
        {},
        "advantage ",
        el("span", { class: "tok sampled good", style: { "--shade": 0, "--strength": 1 } }, "above"),
        " ",
        el("span", { class: "tok sampled poor", style: { "--shade": 0, "--strength": 1 } }, "below"),
        " zero",
      ),
  );
}
