// Compare two evaluations on the same tasks, as `palestra compare` does; tasks link to both episodes.

import { get } from "./api.js";
import { address, el, link, select, set } from "./dom.js";
import { number, percent, plural } from "./format.js";
import { crumbs, runLink } from "./parts.js";

const METRICS = [
  ["success", "success"],
  ["return", "return"],
  ["score", "score"],
];
const LISTED = 50;

export async function show(page, params) {
  const before = params.get("before") ?? "";
  const after = params.get("after") ?? "";
  const metric = params.get("metric") ?? "success";
  document.title = "Two evaluations · Palestra";
  const data = await get("comparison", { before, after, metric });
  const form = metric === "success" ? percent : number;
  const points = (value) => (metric === "success" ? `${signed(value * 100, 1)} points` : signed(value, 3));
  const swap = address("comparison", { before: after, after: before, metric });
  set(
    page,
    crumbs(link("runs", {}, "runs"), "two evaluations"),
    el(
      "header",
      { class: "run" },
      el(
        "div",
        {},
        el("h1", {}, runLink(after), " against ", runLink(before)),
        el("p", { class: "dim" }, verdict(data, points)),
      ),
      el(
        "div",
        { class: "actions" },
        select("Metric", "metric", METRICS, metric, (value) => (location.hash = address("comparison", { before, after, metric: value }))),
        el("a", { class: "button", href: swap }, "Swap"),
      ),
    ),
    table(data, form, points),
    data.total.unpaired > 0 &&
      el("p", { class: "dim" }, `${plural(data.total.unpaired, "task")} with a result in only one evaluation are excluded.`),
    tasks("Wins", data, "wins", form),
    tasks("Losses", data, "losses", form),
    data.settings_that_differ.length > 0 &&
      el(
        "section",
        { class: "card" },
        el("h2", {}, "Settings that differ"),
        el(
          "ul",
          { class: "plain mono" },
          data.settings_that_differ.map((line) => el("li", {}, line)),
        ),
      ),
  );
  return { runs: [], keys: { s: ["swap the evaluations", () => (location.hash = swap)] } };
}

const signed = (value, digits) => `${value >= 0 ? "+" : "−"}${Math.abs(value).toFixed(digits)}`;

function verdict(data, points) {
  const { p, test, difference } = data.total;
  const significance = `p = ${number(p)}, ${test}`;
  return p >= 0.05
    ? `The difference is not statistically significant (${significance}).`
    : `${difference > 0 ? "Better" : "Worse"} by ${points(Math.abs(difference)).slice(1)} (${significance}).`;
}

// The number of tasks is hidden on phones, so that the difference is visible without scrolling.
const columnClass = (i) => (i === 0 ? "" : i === 1 ? "num wide" : "num");

function table(data, form, points) {
  const several = data.envs.length > 1;
  const rows = [...data.envs, ...(several ? [{ ...data.total, name: "all environments", p_holm: null }] : [])];
  const head = ["environment", "tasks", "before", "after", "difference", "95% interval", "p"];
  if (several) head.push("p (Holm)");
  head.push("wins", "losses");
  const count = (value) => (Array.isArray(value) ? value.length : value);
  return el(
    "div",
    { class: "scroll spaced" },
    el(
      "table",
      { class: "list comparison" },
      el(
        "thead",
        {},
        el(
          "tr",
          {},
          head.map((word, i) => el("th", { class: columnClass(i) }, word)),
        ),
      ),
      el(
        "tbody",
        {},
        rows.map((row) =>
          el(
            "tr",
            {},
            el("td", {}, row.name),
            [
              number(row.tasks),
              form(row.before),
              form(row.after),
              el("b", {}, points(row.difference)),
              row.difference_low === null ? "–" : `${points(row.difference_low).replace(" points", "")} to ${points(row.difference_high)}`,
              number(row.p),
              ...(several ? [row.p_holm === null ? "–" : number(row.p_holm)] : []),
              number(count(row.wins)),
              number(count(row.losses)),
            ].map((cell, i) => el("td", { class: columnClass(i + 1) }, cell)),
          ),
        ),
      ),
    ),
  );
}

function tasks(title, data, key, form) {
  const all = data.envs.flatMap((row) => row[key].map((task) => ({ ...task, name: row.name })));
  if (!all.length) return null;
  return el(
    "section",
    { class: "card" },
    el("h2", {}, `${title}: ${plural(all.length, "task")}`),
    el(
      "ul",
      { class: "plain" },
      all.slice(0, LISTED).map((task) => {
        const both = task.before_at && task.after_at;
        const words = `${task.name}, seed ${task.seed}`;
        return el(
          "li",
          {},
          both
            ? link("compare", { a_run: data.before, a_at: task.before_at, b_run: data.after, b_at: task.after_at }, words)
            : words,
          el("span", { class: "dim" }, ` ${form(task.before)} → ${form(task.after)} · `),
          task.before_at && link("episode", { run: data.before, at: task.before_at }, "episode before"),
          task.before_at && task.after_at && " · ",
          task.after_at && link("episode", { run: data.after, at: task.after_at }, "episode after"),
        );
      }),
    ),
    all.length > LISTED && el("p", { class: "dim" }, `and ${number(all.length - LISTED)} more`),
  );
}
