// UI elements shared by several views.

import { el, link } from "./dom.js";
import { bytes, number, percent } from "./format.js";

export const OUTCOMES = {
  solved: "solved",
  unsolved: "not solved",
  truncated: "truncated",
  failed: "failed",
  unfinished: "unfinished",
};

export const outcome = (name) => el("span", { class: `chip ${name}` }, OUTCOMES[name] ?? name);

const STATES = { running: "live", finished: "solved", stopped: "warn", failed: "failed" };

// Chip with the state of a training run or an evaluation; the error that ended it is the tooltip.
export const state = (run) =>
  run.state && el("span", { class: `chip ${STATES[run.state]}`, title: run.error || undefined }, run.state);

export function crumbs(...parts) {
  return el(
    "nav",
    { class: "crumbs", "aria-label": "Breadcrumb" },
    parts.map((part, i) => [i ? el("i", {}, "/") : "", part]),
  );
}

export const runLink = (name) => link("run", { run: name }, name === "." ? "this run" : name);

export function reading(index) {
  if (!index.reading && index.bytes_done >= index.bytes) return problems(index);
  const share = index.bytes ? index.bytes_done / index.bytes : 0;
  return el(
    "div",
    { class: "reading", role: "status" },
    el("progress", { max: 1, value: share }),
    ` indexing episodes: ${number(index.episodes)} so far, ${percent(share, 0)} of ${bytes(index.bytes)}`,
  );
}

function problems(index) {
  const messages = [];
  if (index.unreadable) messages.push(`${number(index.unreadable)} lines do not contain an episode`);
  messages.push(...index.errors);
  return messages.length ? el("div", { class: "reading bad" }, messages.join("; ")) : null;
}

export function tile(name, value, more = "") {
  return el("div", { class: "tile" }, el("span", {}, name), el("b", {}, value), el("small", {}, more));
}
