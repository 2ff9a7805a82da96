// Display the training curves of several runs in the same charts.

import { get } from "./api.js";
import { address, el, link, select, set } from "./dom.js";
import { keysOf, title } from "./metrics.js";
import { AXES, large, many } from "./plots.js";

const MOST = 20;

export async function show(page, params) {
  document.title = "Curves · Palestra";
  const cards = (await get("runs")).runs.filter((run) => run.kind === "train" && run.done);
  let names = params.getAll("run").slice(0, MOST);
  if (!names.length) names = cards.slice(0, 6).map((run) => run.name);
  const wanted = {
    run: names,
    y: params.get("y") ?? "success",
    x: AXES.some(([name]) => name === params.get("x")) ? params.get("x") : "step",
    smooth: Math.min(0.99, Math.max(0, Number(params.get("smooth") ?? 0.6) || 0)),
  };
  let all = await load(wanted.run);
  const big = el("section", { class: "card" });
  const small = el("section", { class: "several" });
  const figure = el("span");

  function update() {
    history.replaceState(null, "", address("curves", { ...wanted, smooth: String(wanted.smooth) }));
    draw();
  }

  function draw() {
    const keys = keysOf(all);
    if (!keys.includes(wanted.y) && keys.length) wanted.y = keys[0];
    set(
      figure,
      select(
        "Metric",
        "y",
        keys.map((key) => [key, title(key)]),
        wanted.y,
        (value) => ((wanted.y = value), update()),
      ),
    );
    large(big, all, wanted.y, wanted.x, wanted.smooth);
    many(small, all, wanted.y, wanted.x, wanted.smooth, (key) => {
      wanted.y = key;
      update();
      big.scrollIntoView({ block: "nearest" });
    });
  }

  const picker = el(
    "details",
    { class: "picker" },
    el("summary", {}, `${names.length} run${names.length === 1 ? "" : "s"}`),
    el(
      "div",
      { class: "options" },
      cards.map((run) =>
        el(
          "label",
          {},
          el("input", {
            type: "checkbox",
            checked: wanted.run.includes(run.name),
            onchange: async (event) => {
              wanted.run = event.target.checked
                ? [...wanted.run, run.name].slice(-MOST)
                : wanted.run.filter((name) => name !== run.name);
              picker.querySelector("summary").textContent =
                `${wanted.run.length} run${wanted.run.length === 1 ? "" : "s"}`;
              all = await load(wanted.run);
              view.runs = wanted.run;
              update();
            },
          }),
          run.name,
        ),
      ),
    ),
  );
  const weight = el("span", {}, wanted.smooth.toFixed(2));
  set(
    page,
    el("h1", {}, "Curves"),
    el(
      "form",
      { class: "filters", onsubmit: (event) => event.preventDefault() },
      picker,
      figure,
      select("X axis", "x", AXES, wanted.x, (value) => ((wanted.x = value), update())),
      el(
        "label",
        { class: "field" },
        el("span", {}, "Smoothing ", weight),
        el("input", {
          type: "range",
          name: "smooth",
          min: 0,
          max: 0.98,
          step: 0.02,
          value: wanted.smooth,
          oninput: (event) => {
            wanted.smooth = Number(event.target.value);
            weight.textContent = wanted.smooth.toFixed(2);
            update();
          },
        }),
      ),
    ),
    all.length
      ? [big, small]
      : el("p", { class: "empty" }, "No training runs to show. ", link("runs", {}, "All runs")),
  );
  const view = {
    runs: wanted.run,
    refresh: async () => {
      all = await load(wanted.run);
      draw();
    },
    keys: {
      s: [
        "switch the x axis: steps, tokens, time",
        () => {
          const at = AXES.findIndex(([name]) => name === wanted.x);
          wanted.x = AXES[(at + 1) % AXES.length][0];
          page.querySelector("select[name=x]").value = wanted.x;
          update();
        },
      ],
    },
    close: () => {
      for (const chart of page.querySelectorAll(".chart")) chart.stop();
    },
  };
  if (all.length) draw();
  return view;
}

async function load(names) {
  const replies = await Promise.allSettled(names.map((name) => get("curves", { run: name })));
  return replies.flatMap((reply, color) => (reply.status === "fulfilled" ? [{ ...reply.value, color }] : []));
}
