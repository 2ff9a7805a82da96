// Display one run: summary, curves and settings.

import { get } from "./api.js";
import { el, link, set } from "./dom.js";
import { keysOf } from "./metrics.js";
import { ago, number, percent, plural } from "./format.js";
import { crumbs, OUTCOMES, reading, state, tile } from "./parts.js";
import { large, many } from "./plots.js";

export async function show(page, params) {
  const name = params.get("run") ?? "";
  document.title = `${name} · Palestra`;
  const top = el("div");
  const big = el("section", { class: "card" });
  const small = el("section", { class: "several" });
  let key = "success";
  let run = await get("run", { run: name });
  let curves = run.kind === "train" ? await get("curves", { run: name }) : null;
  let listed = await get("episodes", { run: name });

  const table = el("div");
  const rest = el("div");

  // Sections may appear while the page is open: charts after the first step, the table after the last episode.
  function draw() {
    set(top, header(run), el("div", { class: "tiles" }, tiles(run, curves, listed)), reading(run.index));
    const keys = curves ? keysOf([curves]) : [];
    big.hidden = small.hidden = !keys.length;
    if (keys.length) {
      if (!keys.includes(key)) key = keys[0];
      large(big, [curves], key, "step", 0.6);
      many(small, [curves], key, "step", 0.6, (chosen) => {
        key = chosen;
        draw();
        big.scrollIntoView({ block: "nearest" });
      });
    }
    const found = run.summary === null ? null : results(run.summary);
    set(
      table,
      found ?? (run.summary !== null && el("section", { class: "card" }, el("h2", {}, "Summary"), tree(run.summary))),
    );
  }

  set(
    rest,
    details("Settings", { ...run.config, ...run.settings }),
    run.command && details("Versions", { command: run.command.join(" "), ...run.versions }),
  );
  set(page, crumbs(link("runs", {}, "runs"), name === "." ? "this run" : name), top, big, small, table, rest);
  draw();
  return {
    runs: [name],
    reading: run.index.reading,
    refresh: async () => {
      run = await get("run", { run: name });
      if (run.kind === "train") curves = await get("curves", { run: name });
      listed = await get("episodes", { run: name });
      draw();
    },
    keys: { e: ["episodes of this run", () => page.querySelector("a.main")?.click()] },
    close: () => {
      for (const chart of page.querySelectorAll(".chart")) chart.stop();
    },
  };
}

function header(run) {
  const how = [run.algorithm, run.model && `on ${run.model}`, run.seed && `seed ${run.seed}`].filter(Boolean).join(", ");
  const open = link("episodes", { run: run.name }, `Episodes`);
  open.className = "button main";
  const toCurves = link("curves", { run: run.name }, "Curves");
  toCurves.className = "button";
  return el(
    "header",
    { class: "run" },
    el(
      "div",
      {},
      el(
        "h1",
        {},
        run.name === "." ? "This run" : run.name,
        " ",
        el("span", { class: `chip kind ${run.kind}` }, run.kind),
        state(run),
      ),
      el(
        "p",
        { class: "dim" },
        [run.envs.join(", "), how, ago(run.updated) && `updated ${ago(run.updated)}`].filter(Boolean).join(" · "),
      ),
    ),
    run.error && el("p", { class: "problem" }, `The last process that wrote to this run failed: ${run.error}`),
    el("div", { class: "actions" }, open, run.kind === "train" && toCurves),
  );
}

function tiles(run, curves, listed) {
  const found = [];
  const held = curves?.evaluations;
  if (held?.success?.length) {
    const values = held.success;
    const interval = (i) =>
      held.success_low?.[i] == null ? "" : `${percent(held.success_low[i])} to ${percent(held.success_high[i])}`;
    const last = values.length - 1;
    const best = values.indexOf(Math.max(...values));
    found.push(tile("evaluated before training", percent(values[0]), interval(0)));
    found.push(tile(`evaluated after ${number(held.step[last])} steps`, percent(values[last]), interval(last)));
    const end = (name) => curves.training?.[`final_${name}`]?.findLast((value) => value != null);
    if (end("success") != null)
      found.push(tile("final success", percent(end("success")), `${percent(end("success_low"))} to ${percent(end("success_high"))}`));
    if (best !== last)
      found.push(tile(`best evaluated success, after ${number(held.step[best])} steps`, percent(values[best]), interval(best)));
  }
  if (run.kind === "eval" && run.success !== undefined)
    found.push(
      tile(
        "success",
        percent(run.success),
        run.low == null ? "of the stored episodes" : `${percent(run.low)} to ${percent(run.high)}`,
      ),
    );
  if (run.kind === "train")
    found.push(
      tile(
        "steps",
        number(run.done),
        run.planned ? `of ${number(run.planned)}${run.finished ? ", finished" : ""}` : "",
      ),
    );
  const total = listed.total;
  const parts = listed.facets.outcome.map((item) => `${number(item.count)} ${OUTCOMES[item.value]}`).join(", ");
  found.push(tile("episodes stored", number(total.episodes), parts));
  if (total.mean_return !== null)
    found.push(tile("mean return", number(total.mean_return), `${plural(total.mean_turns, "turn")} per episode`));
  return found;
}

// Result table for an evaluation, in the format of `palestra eval`.
function results(summary) {
  const table = summary.table;
  if (!Array.isArray(table?.envs) || !table.total) return null;
  const rows = [...table.envs, ...(table.envs.length > 1 ? [{ ...table.total, env: "all" }] : [])];
  const between = (row, key, form) =>
    row[`${key}_low`] == null ? "" : `${form(row[`${key}_low`])} to ${form(row[`${key}_high`])}`;
  const shares = [
    ["success", percent],
    ["return", number],
    ["score", number],
    ["normalised", number],
  ].filter(([key]) => rows.some((row) => row[key] != null));
  const plain = ["turns", "tool_calls", "tokens_written", "truncated", "failed", "missing"].filter((key) =>
    rows.some((row) => row[key]),
  );
  const line = (row) =>
    el(
      "tr",
      {},
      el("td", {}, row.env === "all" ? el("b", {}, "all") : (row.name ?? row.env)),
      el("td", { class: "num" }, number(row.episodes)),
      shares.map(([key, form]) =>
        el(
          "td",
          { class: "num" },
          row[key] == null ? "" : form(row[key]),
          el("div", { class: "sub" }, between(row, key, form)),
        ),
      ),
      plain.map((key) =>
        el("td", { class: "num" }, row[key] == null ? "" : key === "truncated" ? percent(row[key]) : number(row[key])),
      ),
    );
  const head = [
    "environment",
    "episodes",
    ...shares.map(([key]) => (key === "normalised" ? "random=0, expert=1" : key)),
    ...plain.map((key) => key.replaceAll("_", " ")),
  ];
  return el(
    "section",
    {},
    el("h2", {}, "Results, with 95% intervals"),
    el(
      "div",
      { class: "scroll spaced" },
      el(
        "table",
        { class: "list results" },
        el(
          "thead",
          {},
          el(
            "tr",
            {},
            head.map((word, i) => el("th", { class: i ? "num" : "" }, word)),
          ),
        ),
        el("tbody", {}, rows.map(line)),
      ),
    ),
  );
}

function details(title, data) {
  const entries = Object.entries(data ?? {}).filter(([, value]) => value !== null && value !== undefined);
  if (!entries.length) return null;
  return el("details", { class: "card" }, el("summary", {}, title), tree(Object.fromEntries(entries)));
}

function tree(value) {
  if (value === null || typeof value !== "object") return typeof value === "number" ? number(value, 4) : String(value);
  if (Array.isArray(value)) {
    if (value.every((item) => item === null || typeof item !== "object")) return value.map(String).join(", ") || "–";
    return el(
      "ol",
      { class: "tree" },
      value.slice(0, 200).map((item) => el("li", {}, tree(item))),
    );
  }
  return el(
    "dl",
    { class: "settings" },
    Object.entries(value).map(([name, item]) => {
      const deep =
        item !== null &&
        typeof item === "object" &&
        !(Array.isArray(item) && item.every((one) => typeof one !== "object"));
      return el("div", { class: deep ? "deep" : "" }, el("dt", {}, name), el("dd", {}, item === "" ? "–" : tree(item)));
    }),
  );
}
