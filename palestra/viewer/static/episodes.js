// List the episodes in a run; the server filters and paginates them.

import { get } from "./api.js";
import { address, el, link, select, set } from "./dom.js";
import { number, percent, plural, seconds } from "./format.js";
import { Cursor } from "./keys.js";
import { mark } from "./mark.js";
import { crumbs, outcome, OUTCOMES, reading, runLink } from "./parts.js";

export const FILTERS = ["env", "outcome", "error", "ending", "seed", "step", "min_turns", "max_turns"];
const SORTS = [
  ["first", "oldest first"],
  ["last", "newest first"],
  ["return", "highest return"],
  ["-return", "lowest return"],
  ["turns", "most turns"],
  ["-turns", "fewest turns"],
  ["tokens", "most tokens"],
  ["seconds", "longest time"],
];

export async function show(page, params) {
  const name = params.get("run") ?? "";
  document.title = `Episodes of ${name} · Palestra`;
  const wanted = { run: name };
  for (const key of [...FILTERS, "sort", "page"]) if (params.has(key)) wanted[key] = params.get(key);
  let data = await get("episodes", wanted);
  const filters = el("form", { class: "filters", onsubmit: (event) => event.preventDefault() });
  const table = el("div");
  const cursor = new Cursor(() => [...table.querySelectorAll("tbody tr")]);
  let requests = 0;

  async function change(values, { first = true } = {}) {
    Object.assign(wanted, values);
    if (first) delete wanted.page;
    history.replaceState(null, "", address("episodes", wanted));
    await load();
    if (!first) window.scrollTo(0, 0);
  }

  async function load() {
    const mine = ++requests;
    const found = await get("episodes", wanted);
    if (mine !== requests) return; // a newer request has been sent
    data = found;
    drawTable();
  }

  function drawFilters() {
    const listed = (key) =>
      data.facets[key].map((item) => [
        item.value,
        `${key === "outcome" ? OUTCOMES[item.value] : item.value} (${number(item.count)})`,
      ]);
    const typed = (label, key, kind, hint) =>
      el(
        "label",
        { class: "field tiny" },
        el("span", {}, label),
        el("input", {
          type: kind,
          name: key,
          min: 0,
          value: wanted[key] ?? "",
          placeholder: hint,
          onchange: (event) => change({ [key]: event.target.value.trim() }),
        }),
      );
    set(
      filters,
      data.facets.env.length > 1 &&
        select("Environment", "env", [["", "all"], ...listed("env")], wanted.env ?? "", (value) =>
          change({ env: value }),
        ),
      select("Outcome", "outcome", [["", "all"], ...listed("outcome")], wanted.outcome ?? "", (value) =>
        change({ outcome: value }),
      ),
      typed("Turns from", "min_turns", "number", "0"),
      typed("to", "max_turns", "number", "any"),
      data.facets.error.length > 0 &&
        select("Error", "error", [["", "all"], ["any", "any error"], ...listed("error")], wanted.error ?? "", (value) =>
          change({ error: value }),
        ),
      data.facets.ending.length > 1 &&
        select("Ending", "ending", [["", "all"], ...listed("ending")], wanted.ending ?? "", (value) =>
          change({ ending: value }),
        ),
      data.rows.some((row) => row.step !== null) && typed("Step", "step", "number", "any"),
      typed("Seed", "seed", "text", "any"),
      select("Sort", "sort", SORTS, wanted.sort ?? "first", (value) => change({ sort: value })),
      el("button", { type: "button", onclick: () => (location.hash = address("episodes", { run: name })) }, "Clear"),
    );
  }

  function drawTable() {
    const { total, rows, pages } = data;
    const at = Number(wanted.page ?? 0);
    const here = Object.fromEntries(FILTERS.filter((key) => wanted[key]).map((key) => [key, wanted[key]]));
    const steps = rows.some((row) => row.step !== null);
    const envs = data.facets.env.length > 1;
    const tools = rows.some((row) => row.tools > 0);
    const tokens = rows.some((row) => row.tokens > 0);
    const judged = total.episodes - total.failed;
    const summary = total.episodes
      ? `${plural(total.episodes, "episode")}${judged > 0 ? `, ${percent(total.solved / judged)} solved, mean return ${number(total.mean_return)}, ${number(total.mean_turns)} turns` : ""}`
      : "No matching episodes.";
    const head = [
      "outcome",
      steps && "step",
      envs && "environment",
      "seed",
      "turns",
      "return",
      tokens && "tokens",
      tools && "tools",
      "time",
      "ending",
      "",
    ];
    const line = (row) =>
      el(
        "tr",
        { "data-at": row.at },
        el(
          "td",
          {},
          link("episode", { run: name, at: row.at, ...here }, outcome(row.outcome)),
          el("div", { class: "narrow sub mono" }, row.seed),
        ),
        steps && el("td", { class: "num" }, row.step),
        envs && el("td", { class: "wide" }, row.env),
        el(
          "td",
          { class: "num mono wide" },
          row.seed,
          row.member > 0 && el("span", { class: "dim" }, ` #${row.member}`),
        ),
        el("td", { class: "num" }, row.turns),
        el("td", { class: "num" }, number(row.ret)),
        tokens && el("td", { class: "num wide" }, number(row.tokens)),
        tools && el("td", { class: "num wide" }, row.tools),
        el("td", { class: "num wide" }, seconds(row.seconds)),
        el(
          "td",
          { class: "wide dim" },
          row.error ?? row.ending ?? "",
          row.invalid > 0 &&
            el("span", { class: "chip warn", title: "invalid actions" }, `${row.invalid} invalid`),
        ),
        el(
          "td",
          {},
          el(
            "button",
            {
              type: "button",
              class: "bare",
              title: "Mark for comparison",
              onclick: () => mark(name, row.at),
            },
            "mark",
          ),
        ),
      );
    const style = (word) =>
      (["step", "seed", "turns", "return", "tokens", "tools", "time"].includes(word) ? "num" : "") +
      (["environment", "seed", "tokens", "tools", "time", "ending"].includes(word) ? " wide" : "");
    const turn = (label, to) =>
      el(
        "button",
        {
          type: "button",
          disabled: to < 0 || to >= pages,
          onclick: () => change({ page: String(to) }, { first: false }),
        },
        label,
      );
    set(
      table,
      reading(data.index),
      el("p", { class: "total" }, summary),
      rows.length > 0 &&
        el(
          "div",
          { class: "scroll" },
          el(
            "table",
            { class: "list" },
            el(
              "thead",
              {},
              el(
                "tr",
                {},
                head.filter((word) => word !== false).map((word) => el("th", { class: style(word) }, word)),
              ),
            ),
            el("tbody", {}, rows.map(line)),
          ),
        ),
      pages > 1 &&
        el(
          "div",
          { class: "pages" },
          turn("« first", 0 === at ? -1 : 0),
          turn("‹ previous", at - 1),
          el("span", {}, `page ${number(at + 1)} of ${number(pages)}`),
          turn("next ›", at + 1),
          turn("last »", at === pages - 1 ? -1 : pages - 1),
        ),
    );
    if (cursor.at >= 0) cursor.move(0);
  }

  set(page, crumbs(link("runs", {}, "runs"), runLink(name), "episodes"), el("h1", {}, "Episodes"), filters, table);
  drawFilters();
  drawTable();
  return {
    runs: [name],
    reading: data.index.reading,
    refresh: async () => {
      await load();
      if (!filters.contains(document.activeElement)) drawFilters();
    },
    keys: {
      j: ["next episode", () => cursor.move(1)],
      k: ["previous episode", () => cursor.move(-1)],
      Enter: ["open the episode", () => cursor.current?.querySelector("a").click()],
      x: ["mark for comparison", () => cursor.current && mark(name, cursor.current.dataset.at)],
      n: [
        "next page",
        () =>
          Number(wanted.page ?? 0) + 1 < data.pages &&
          change({ page: String(Number(wanted.page ?? 0) + 1) }, { first: false }),
      ],
      p: [
        "previous page",
        () => Number(wanted.page ?? 0) > 0 && change({ page: String(Number(wanted.page) - 1) }, { first: false }),
      ],
    },
  };
}
