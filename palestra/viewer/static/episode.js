// Display one episode as a conversation or as tokens.

import { get, post } from "./api.js";
import { address, el, link, set } from "./dom.js";
import { FILTERS } from "./episodes.js";
import { number, plural, seconds } from "./format.js";
import { mark, marked } from "./mark.js";
import { crumbs, outcome, runLink } from "./parts.js";
import { drawing, failure, message, strip, turn } from "./conversation.js";
import { tokens } from "./tokens.js";

export async function show(page, params) {
  const run = params.get("run") ?? "";
  const at = params.get("at") ?? "";
  document.title = `Episode ${at} · Palestra`;
  const here = Object.fromEntries(FILTERS.filter((key) => params.get(key)).map((key) => [key, params.get(key)]));
  const asTokens = params.get("view") === "tokens";
  const data = await get("episode", { run, at, ...here });
  const body = el("div", { class: "conversation" });
  const picture = (part) => `/api/picture?${new URLSearchParams({ run, at, turn: part.turn, part: part.part })}`;
  let current = -1;

  function go(to) {
    const all = [...body.querySelectorAll("[data-turn]")];
    if (!all.length) return;
    current = Math.max(0, Math.min(all.length - 1, to));
    all.forEach((item, i) => item.classList.toggle("current", i === current));
    all[current].scrollIntoView({ block: "start", behavior: "smooth" });
    history.replaceState(
      null,
      "",
      address("episode", { run, at, ...here, view: asTokens ? "tokens" : "", turn: String(current + 1) }),
    );
  }

  async function draw(button) {
    button.disabled = true;
    button.textContent = "Drawing …";
    try {
      const views = await post("render", { run, at }, {});
      const places = [...body.querySelectorAll(".turn")];
      views.forEach((view, n) => {
        const image = drawing(view, `/api/rendered?${new URLSearchParams({ run, at, n })}`);
        if (image && places[n]) places[n].querySelector(".message").after(image);
      });
      button.remove();
    } catch (error) {
      button.replaceWith(el("span", { class: "dim" }, `Cannot draw: ${error.message}`));
    }
  }

  if (asTokens) {
    set(body, tokens(await get("tokens", { run, at })));
  } else {
    set(
      body,
      data.turns.map((item, i) => turn(item, i, picture, data.env_id)),
      el("section", { class: "turn" }, message(data.final.role, data.final.parts, picture, data.env_id)),
      failure(data),
    );
  }
  const tab = (words, view, on) =>
    el("a", { href: address("episode", { run, at, ...here, view }), "aria-current": on ? "page" : null }, words);
  const step = (words, to, title) =>
    to
      ? el(
          "a",
          {
            class: "button",
            href: address("episode", { run, at: to, ...here, view: asTokens ? "tokens" : "" }),
            title,
          },
          words,
        )
      : el("span", { class: "button off" }, words);
  const previous = marked();
  const other = previous && (previous.run !== run || previous.at !== at) ? previous : null;
  set(
    page,
    crumbs(
      link("runs", {}, "runs"),
      runLink(run),
      link("episodes", { run, ...here }, "episodes"),
      el("span", { class: "mono" }, at),
    ),
    el(
      "header",
      { class: "run" },
      el("div", {}, el("h1", {}, data.env_id, " ", outcome(data.outcome)), facts(data)),
      el(
        "div",
        { class: "actions" },
        step("‹", data.around.before, "previous episode (←)"),
        step("›", data.around.after, "next episode (→)"),
        !asTokens &&
          data.drawable &&
          el(
            "button",
            {
              type: "button",
              title: "Replay the episode and draw its states",
              onclick: (event) => draw(event.target),
            },
            "Draw states",
          ),
        el(
          "a",
          {
            class: "button",
            href: `/api/shared?${new URLSearchParams({ run, at })}`,
            download: "",
            title: "Download the episode as one HTML file",
          },
          "Share",
        ),
        el("button", { type: "button", onclick: () => mark(run, at) }, "Mark"),
        other &&
          el(
            "a",
            {
              class: "button main",
              href: address("compare", { a_run: other.run, a_at: other.at, b_run: run, b_at: at }),
            },
            "Compare with marked episode",
          ),
      ),
    ),
    el("div", { class: "tabs" }, tab("Conversation", "", !asTokens), tab("Tokens", "tokens", asTokens)),
    !asTokens && strip(data.turns, go),
    el(
      "p",
      { class: "dim small" },
      data.turns.some((item) => item.advantage !== null)
        ? `Advantages: ${data.advantage_source}.`
        : `No advantages: ${data.advantage_source}.`,
    ),
    body,
    same(data, run, at),
  );
  return {
    runs: [],
    ready: () => params.has("turn") && go(Number(params.get("turn")) - 1),
    keys: {
      j: ["next turn", () => go(current + 1)],
      k: ["previous turn", () => go(current - 1)],
      t: [
        "switch between conversation and tokens",
        () => (location.hash = address("episode", { run, at, ...here, view: asTokens ? "" : "tokens" })),
      ],
      x: ["mark for comparison", () => mark(run, at)],
      ArrowLeft: [
        "previous episode",
        () =>
          data.around.before &&
          (location.hash = address("episode", {
            run,
            at: data.around.before,
            ...here,
            view: asTokens ? "tokens" : "",
          })),
      ],
      ArrowRight: [
        "next episode",
        () =>
          data.around.after &&
          (location.hash = address("episode", { run, at: data.around.after, ...here, view: asTokens ? "tokens" : "" })),
      ],
      e: ["all episodes", () => (location.hash = address("episodes", { run, ...here }))],
    },
  };
}

export function facts(data) {
  const items = [
    `seed ${data.seed}`,
    data.member > 0 && `member ${data.member}`,
    plural(data.turns.length, "turn"),
    `return ${number(data.return)}`,
    data.gamma < 1 && `discount ${number(data.gamma)}`,
    data.seconds > 0 && seconds(data.seconds),
    data.attempts > 1 && `attempt ${data.attempts}`,
    ...Object.entries(data.meta ?? {})
      .slice(0, 5)
      .map(([key, value]) => `${key} ${typeof value === "object" ? JSON.stringify(value) : value}`),
    ...Object.entries(data.kwargs ?? {}).map(([key, value]) => `${key} ${typeof value === "string" ? value : JSON.stringify(value)}`),
  ];
  return el("p", { class: "dim facts" }, items.filter(Boolean).join(" · "));
}

function same(data, run, at) {
  if (!data.same_task.length) return null;
  return el(
    "section",
    { class: "card" },
    el("h2", {}, "Other episodes of this task"),
    el(
      "ul",
      { class: "plain" },
      data.same_task.map((item) =>
        el(
          "li",
          {},
          outcome(item.outcome),
          link("episode", { run: item.run, at: item.at }, `${item.run}, ${item.at}`),
          el("span", { class: "dim" }, ` return ${number(item.ret)}, ${plural(item.turns, "turn")} `),
          link("compare", { a_run: run, a_at: at, b_run: item.run, b_at: item.at }, "compare"),
        ),
      ),
    ),
  );
}
