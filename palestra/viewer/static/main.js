// Route URLs to views, and refresh the current view when files change.

import { get } from "./api.js";
import { el, link, set } from "./dom.js";
import { bindKeys } from "./keys.js";
import { marked, unmark } from "./mark.js";
import * as compare from "./compare.js";
import * as comparison from "./comparison.js";
import * as curves from "./curves.js";
import * as episode from "./episode.js";
import * as episodes from "./episodes.js";
import * as play from "./play.js";
import * as run from "./run.js";
import * as runs from "./runs.js";

const VIEWS = { "": runs, runs, run, curves, episodes, episode, compare, comparison, play };
const INTERVAL = 2000; // polling interval in milliseconds
const FAST_INTERVAL = 500; // polling interval while a run is being indexed
const main = document.getElementById("main");
const state = document.getElementById("state");
let shown = null; // result of the current view: { runs, refresh, keys }
let serial = 0;
let seen = "";

export function route() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  return { path: path.split("/")[0], params: new URLSearchParams(query) };
}

async function show() {
  if (location.hash === "#main") return; // the "skip to content" link
  const mine = ++serial;
  const { path, params } = route();
  const view = VIEWS[path] ?? null;
  shown?.close?.();
  shown = null;
  document.title = "Palestra";
  for (const item of document.querySelectorAll("nav a")) {
    const current = item.dataset.view === (path || "runs");
    if (current) item.setAttribute("aria-current", "page");
    else item.removeAttribute("aria-current");
  }
  showMark();
  const page = el("div", { class: `page ${path || "runs"}` });
  if (view === null) {
    set(main, problem(`Unknown view “${path}”.`));
    return;
  }
  try {
    const requested = params.getAll("run");
    // Requested before rendering, so that the next poll detects changes made in the meantime.
    const before = await get("changes", { run: requested });
    const result = await view.show(page, params);
    if (mine !== serial) {
      result?.close?.();
      return;
    }
    shown = result ?? {};
    seen = JSON.stringify(shown.runs ?? []) === JSON.stringify(requested) ? markOf(before) : "";
    set(main, page);
    shown.ready?.();
  } catch (error) {
    if (mine !== serial) return;
    set(main, problem(error.message));
    if (error.status === 202) setTimeout(() => mine === serial && show(), 500);
    else if (error.status === undefined) throw error;
  }
  if (mine === serial && !params.has("turn")) window.scrollTo(0, 0);
}

const markOf = (now) => (shown?.runs?.length ? JSON.stringify(now.runs) : now.all);

function problem(text) {
  return el("div", { class: "problem", role: "alert" }, el("p", {}, text), el("p", {}, link("runs", {}, "All runs")));
}

export function showMark() {
  const selected = marked();
  const place = document.getElementById("marked");
  if (selected === null) return set(place);
  const off = el(
    "button",
    { type: "button", class: "bare", title: "Unmark", onclick: () => (unmark(), showMark()) },
    "×",
  );
  return set(
    place,
    el("span", { class: "chip mark" }, "marked ", link("episode", selected, selected.at.split("/").at(-1)), off),
  );
}

async function poll() {
  let pause = shown?.reading ? FAST_INTERVAL : INTERVAL;
  if (document.visibilityState === "visible") {
    const mine = serial;
    try {
      const now = await get("changes", { run: shown?.runs ?? [] });
      set(state);
      if (Object.values(now.runs).some((run) => run.reading)) pause = FAST_INTERVAL;
      if (mine === serial && shown?.refresh) {
        const mark = markOf(now);
        if (mark !== seen) await shown.refresh(now);
        seen = mark;
      }
    } catch (error) {
      set(state, el("span", { class: "chip bad" }, error.status === 0 ? "no connection" : "error"));
      if (error.status === undefined) console.error(error);
    }
  }
  setTimeout(poll, pause);
}

window.addEventListener("hashchange", show);
bindKeys(() => shown?.keys ?? {});
document.addEventListener("marked", showMark);
await show();
setTimeout(poll, shown?.reading ? 100 : INTERVAL);
