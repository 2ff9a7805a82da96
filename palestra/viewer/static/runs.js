// List all runs, with a filter and a selection of runs for comparing curves.

import { get } from "./api.js";
import { address, el, link, select, set, svg } from "./dom.js";
import { ago, number, percent, plural } from "./format.js";
import { Cursor } from "./keys.js";
import { state } from "./parts.js";

const chosen = new Set();

// [key, title, style, value to sort by, whether large values come first]
const COLUMNS = [
  ["", "", "", null, false],
  ["name", "run", "", (run) => run.name, false],
  ["env", "environment", "wide", (run) => run.envs.join(" "), false],
  ["model", "algorithm, model", "wide", (run) => `${run.algorithm} ${run.model}`, false],
  ["steps", "steps", "wide num", (run) => (run.kind === "train" ? run.done : -1), true],
  ["success", "success", "num", (run) => run.success ?? -1, true],
  ["", "", "wide", null, false],
  ["episodes", "episodes", "num", (run) => run.episodes, true],
  ["updated", "updated", "wide", (run) => run.updated, true],
];

export async function show(page, params) {
  let data = await get("runs");
  const wanted = { text: params.get("text") ?? "", kind: params.get("kind") ?? "", sort: params.get("sort") ?? "" };
  const table = el("div", { class: "scroll" });
  const bar = el("span", { class: "actions" });
  const cursor = new Cursor(() => [...table.querySelectorAll("tbody tr")]);

  function update() {
    history.replaceState(null, "", address("runs", wanted));
    draw();
  }

  function draw() {
    const words = wanted.text.toLowerCase().split(/\s+/).filter(Boolean);
    const fits = (run) => {
      const all = [run.name, run.kind, run.algorithm, run.model, ...run.envs].join(" ").toLowerCase();
      return (!wanted.kind || run.kind === wanted.kind) && words.every((word) => all.includes(word));
    };
    const found = sorted(data.runs.filter(fits), wanted.sort);
    if (!data.runs.length) {
      const how = "palestra train --env game:GuessTheNumber-v0-easy";
      set(
        table,
        el("p", { class: "empty" }, "There are no runs in this folder yet. Start one with ", el("code", {}, how)),
      );
    } else if (!found.length) set(table, el("p", { class: "empty" }, "No matching runs."));
    else
      set(
        table,
        el(
          "table",
          { class: "list runs" },
          head(wanted.sort, (sort) => ((wanted.sort = sort), update())),
          el(
            "tbody",
            {},
            found.map((run) => row(run, updateActions)),
          ),
        ),
      );
    if (cursor.at >= 0) cursor.move(0);
    updateActions();
  }

  function updateActions() {
    const names = [...chosen].filter((name) => data.runs.some((run) => run.name === name));
    const picked = data.runs.filter((run) => names.includes(run.name)).sort((a, b) => a.updated - b.updated);
    const evaluations = picked.length === 2 && picked.every((run) => run.kind === "eval");
    const button = (text) => el("button", { type: "button", class: "main" }, text);
    set(
      bar,
      evaluations
        ? link("comparison", { before: picked[0].name, after: picked[1].name }, button("Compare 2 evaluations"))
        : names.length
          ? link("curves", { run: names }, button(`Curves of ${plural(names.length, "run")}`))
          : el("span", { class: "hint" }, "select runs to overlay their curves, or two evaluations to compare them"),
    );
  }

  const kinds = ["train", "eval", "play", "episodes"].map((kind) => [kind, kind]);
  set(
    page,
    el("h1", {}, data.folder),
    el(
      "form",
      { class: "filters", onsubmit: (event) => event.preventDefault() },
      el(
        "label",
        { class: "field grow" },
        el("span", {}, "Filter"),
        el("input", {
          type: "search",
          name: "text",
          value: wanted.text,
          placeholder: "name, environment, algorithm, model",
          oninput: (event) => ((wanted.text = event.target.value), update()),
        }),
      ),
      select("Kind", "kind", [["", "all"], ...kinds], wanted.kind, (value) => ((wanted.kind = value), update())),
      bar,
    ),
    table,
  );
  draw();
  return {
    runs: [],
    refresh: async () => {
      data = await get("runs");
      draw();
    },
    keys: {
      j: ["next run", () => cursor.move(1)],
      k: ["previous run", () => cursor.move(-1)],
      x: ["select the run", () => cursor.current?.querySelector("input").click()],
      Enter: ["open the run", () => cursor.current?.querySelector("a").click()],
      c: ["curves of the selected runs", () => bar.querySelector("a")?.click()],
    },
  };
}

// `order` is the key of a column, with "-" for the reverse of the column's usual order; without it, running runs come first.
function sorted(runs, order) {
  const column = COLUMNS.find(([key]) => key && key === order.replace("-", ""));
  const first = (run) => run.state === "running";
  if (!column) return runs.sort((a, b) => first(b) - first(a) || b.updated - a.updated);
  const [, , , value, descending] = column;
  const sign = descending === order.startsWith("-") ? 1 : -1;
  return runs.sort((a, b) => {
    const [x, y] = [value(a), value(b)];
    return sign * (typeof x === "string" ? x.localeCompare(y) : x - y) || a.name.localeCompare(b.name);
  });
}

function head(order, sort) {
  const cell = ([key, name, style, , descending]) => {
    if (!key) return el("th", { class: style });
    const current = order.replace("-", "") === key;
    const next = current && !order.startsWith("-") ? `-${key}` : key;
    const rising = descending === order.startsWith("-");
    return el(
      "th",
      { class: style, "aria-sort": current ? (rising ? "ascending" : "descending") : null },
      el("button", { type: "button", class: "bare sort", onclick: () => sort(next) }, name, current && (rising ? " ▲" : " ▼")),
    );
  };
  return el("thead", {}, el("tr", {}, COLUMNS.map(cell)));
}

function row(run, updateActions) {
  const box = el("input", {
    type: "checkbox",
    "aria-label": `select ${run.name}`,
    checked: chosen.has(run.name),
    onchange: (event) => {
      if (event.target.checked) chosen.add(run.name);
      else chosen.delete(run.name);
      updateActions();
    },
  });
  const envs = run.envs;
  const few = envs.slice(0, 3).join(", ") + (envs.length > 3 ? ` +${envs.length - 3}` : "");
  const how = [run.algorithm, run.model].filter(Boolean).join(" · ");
  const interval = run.low === undefined || run.low === null ? "" : `${percent(run.low)} to ${percent(run.high)}`;
  const title = run.training
    ? "success rate of the last training step"
    : interval && `${run.kind === "train" ? "evaluated, " : ""}95% interval ${interval}`;
  return el(
    "tr",
    {},
    el("td", { class: "pick" }, box),
    el(
      "td",
      {},
      link("run", { run: run.name }, el("b", {}, run.name === "." ? "this run" : run.name)),
      el("span", { class: `chip kind ${run.kind}` }, run.kind),
      state(run),
      el("div", { class: "narrow sub" }, [few, how].filter(Boolean).join(" · ")),
    ),
    el(
      "td",
      { class: "wide", title: run.envs.join("\n") },
      few,
    ),
    el("td", { class: "wide" }, how),
    el(
      "td",
      { class: "wide num" },
      run.kind === "train" ? `${number(run.done)}${run.planned ? ` of ${number(run.planned)}` : ""}` : "",
    ),
    el("td", { class: "num", title: title || undefined }, run.success === undefined ? "" : percent(run.success)),
    el("td", { class: "wide" }, spark(run.spark)),
    el(
      "td",
      { class: "num" },
      run.episodes ? link("episodes", { run: run.name }, number(run.episodes)) : el("span", { class: "dim" }, "0"),
    ),
    el("td", { class: "wide dim" }, ago(run.updated)),
  );
}

function spark(values) {
  if (values.length < 2) return "";
  const points = values.map(
    (value, i) => `${((i / (values.length - 1)) * 78 + 1).toFixed(1)},${(21 - value * 20).toFixed(1)}`,
  );
  return svg(
    "svg",
    { class: "spark", viewBox: "0 0 80 22", width: 80, height: 22, role: "img", "aria-label": "success over steps" },
    svg("polyline", { points: points.join(" ") }),
  );
}
