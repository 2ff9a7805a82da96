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

export function crumbs(...parts) {
  return el(
    "nav",
    { class: "crumbs", "aria-label": "Where" },
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
    ` reading episodes: ${number(index.episodes)} so far, ${percent(share, 0)} of ${bytes(index.bytes)}`,
  );
}

function problems(index) {
  const said = [];
  if (index.unreadable) said.push(`${number(index.unreadable)} lines are not episodes`);
  said.push(...index.errors);
  return said.length ? el("div", { class: "reading bad" }, said.join("; ")) : null;
}

export function tile(name, value, more = "") {
  return el("div", { class: "tile" }, el("span", {}, name), el("b", {}, value), el("small", {}, more));
}
