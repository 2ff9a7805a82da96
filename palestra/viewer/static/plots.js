// One large chart and a small chart per metric for the selected runs.

import { chart, smoothed } from "./chart.js";
import { el, set } from "./dom.js";
import { form, keysOf, span, title } from "./metrics.js";
import { number, seconds } from "./format.js";

export const AXES = [
  ["step", "steps"],
  ["tokens", "sampled tokens"],
  ["time", "time"],
];

const nameOf = (run, all) => (all.length > 1 ? run.name : "training");

function options(all, key, axis, weight, small) {
  const series = all.map((run, color) => {
    const raw = pairs(run.training, axis, key);
    return {
      name: nameOf(run, all),
      color: run.color ?? color,
      raw,
      line: smoothed(raw, weight),
      dots: dots(run.evaluations, axis, key),
    };
  });
  const marks = all.flatMap((run) => run.stages.map((stage) => ({ x: stage[axis], text: `${stage.turns} turns` })));
  const unique = marks.filter(
    (mark, i) => marks.findIndex((other) => other.x === mark.x && other.text === mark.text) === i,
  );
  return {
    title: `${title(key)} over ${AXES.find(([name]) => name === axis)[1]}`,
    series,
    marks: unique.sort((a, b) => a.x - b.x),
    form: form(key),
    formX: axis === "time" ? seconds : (value) => number(value),
    xName: axis === "time" ? "" : AXES.find(([name]) => name === axis)[1],
    xLabel: AXES.find(([name]) => name === axis)[1],
    yLabel: title(key),
    lines: references(all, key),
    grid: axis === "time" ? "time" : "whole",
    span: span(key),
    small,
    height: small ? 130 : 340,
  };
}

// Success rates of the random player and the expert, if all runs have the same environments.
function references(all, key) {
  if (key !== "success") return [];
  const same = all.every((run) => JSON.stringify(run.reference) === JSON.stringify(all[0].reference));
  return same ? Object.entries(all[0]?.reference ?? {}).map(([player, y]) => ({ y, text: player })) : [];
}

function pairs(columns, axis, key) {
  const xs = columns[axis] ?? [];
  const ys = columns[key] ?? [];
  return xs.map((x, i) => [x, ys[i]]).filter(([, y]) => y !== null && y !== undefined);
}

function dots(columns, axis, key) {
  const values = columns[key] ?? [];
  return (columns[axis] ?? [])
    .map((x, i) => ({ x, y: values[i], low: columns[`${key}_low`]?.[i], high: columns[`${key}_high`]?.[i] }))
    .filter((dot) => dot.y !== null && dot.y !== undefined);
}

export function large(place, all, key, axis, weight) {
  place.querySelector(".chart")?.stop();
  set(place, el("h2", {}, title(key)), chart(options(all, key, axis, weight, false)), legend(all, key, axis));
}

export function many(place, all, chosen, axis, weight, choose) {
  for (const old of place.querySelectorAll(".chart")) old.stop();
  set(
    place,
    keysOf(all).map((key) =>
      el(
        "figure",
        { class: key === chosen ? "chosen" : "" },
        el("figcaption", {}, el("button", { type: "button", class: "bare", onclick: () => choose(key) }, title(key))),
        chart(options(all, key, axis, weight, true)),
      ),
    ),
  );
}

function legend(all, key, axis) {
  const write = form(key);
  const items = all.map((run, color) => {
    const points = pairs(run.training, axis, key);
    const held = dots(run.evaluations, axis, key);
    const last = [
      points.length ? `${write(points.at(-1)[1])} in training` : null,
      held.length ? `${write(held.at(-1).y)} evaluated` : null,
    ];
    return el(
      "li",
      {},
      el("i", { class: `swatch c${(run.color ?? color) % 8}` }),
      el("b", {}, run.name),
      run.state === "running" && el("span", { class: "chip live" }, "running"),
      el("span", { class: "dim" }, last.filter(Boolean).join(", ")),
    );
  });
  return el("ul", { class: "legend" }, items);
}
