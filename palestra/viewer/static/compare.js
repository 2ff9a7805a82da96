// Display two episodes side by side, turn by turn.

import { get } from "./api.js";
import { address, el, link, set } from "./dom.js";
import { facts } from "./episode.js";
import { crumbs, outcome } from "./parts.js";
import { failure, message, turn } from "./conversation.js";

export async function show(page, params) {
  const sides = ["a", "b"].map((side) => ({
    run: params.get(`${side}_run`) ?? "",
    at: params.get(`${side}_at`) ?? "",
  }));
  document.title = "Two episodes · Palestra";
  const both = await Promise.all(sides.map((side) => get("episode", side)));
  const picture = (i) => (part) =>
    `/api/picture?${new URLSearchParams({ ...sides[i], turn: part.turn, part: part.part })}`;
  const cell = (i, ...children) => el("div", { class: `side ${"ab"[i]}`, "data-side": "AB"[i] }, children);
  const count = Math.max(...both.map((data) => data.turns.length));
  const rows = [];
  for (let t = 0; t < count; t += 1) {
    const same =
      both.every((data) => data.turns[t]) &&
      JSON.stringify(both[0].turns[t].shown) === JSON.stringify(both[1].turns[t].shown) &&
      both[0].turns[t].text === both[1].turns[t].text;
    rows.push(
      el(
        "div",
        { class: `pair${same ? " same" : ""}`, "data-turn": t },
        both.map((data, i) =>
          cell(i, data.turns[t] ? turn(data.turns[t], t, picture(i), data.env_id) : el("p", { class: "dim ended" }, "(the episode has ended)")),
        ),
      ),
    );
  }
  const swap = address("compare", { a_run: sides[1].run, a_at: sides[1].at, b_run: sides[0].run, b_at: sides[0].at });
  const sameTask = both[0].env_id === both[1].env_id && both[0].seed === both[1].seed;
  set(
    page,
    crumbs(link("runs", {}, "runs"), "two episodes"),
    el(
      "header",
      { class: "run" },
      el(
        "h1",
        {},
        "Side by side ",
        el("span", { class: `chip ${sameTask ? "solved" : "warn"}` }, sameTask ? "the same task" : "different tasks"),
      ),
      el("div", { class: "actions" }, el("a", { class: "button", href: swap }, "Swap")),
    ),
    el(
      "div",
      { class: "pair heads" },
      both.map((data, i) =>
        cell(
          i,
          el(
            "h2",
            {},
            el("b", { class: "side-name" }, "AB"[i]),
            " ",
            link("episode", sides[i], data.env_id),
            " ",
            outcome(data.outcome),
          ),
          el("p", { class: "small mono" }, `${sides[i].run} / ${sides[i].at}`),
          facts(data),
        ),
      ),
    ),
    rows,
    el(
      "div",
      { class: "pair" },
      both.map((data, i) => cell(i, message(data.final.role, data.final.parts, picture(i), data.env_id), failure(data))),
    ),
  );
  let current = -1;
  const go = (to) => {
    current = Math.max(0, Math.min(rows.length - 1, to));
    rows.forEach((row, i) => row.classList.toggle("current", i === current));
    rows[current]?.scrollIntoView({ block: "start", behavior: "smooth" });
  };
  return {
    runs: [],
    keys: {
      j: ["next turn", () => go(current + 1)],
      k: ["previous turn", () => go(current - 1)],
      s: ["swap the episodes", () => (location.hash = swap)],
    },
  };
}
