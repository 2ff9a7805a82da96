// Line chart with a tooltip. It is redrawn when its width changes.

import { el, set, svg } from "./dom.js";

const LEFT = 66;
const RIGHT = 14;
const TOP = 16;
const BOTTOM = 30;
const COMPACT = new Intl.NumberFormat("en", { notation: "compact" });
const LABEL = 14; // room below the ticks for the name of the x axis
export const COLORS = 8;

// options: { series: [{ name, color, raw, line, dots }], marks: [{ x, text, color }], lines: [{ y, text }], form, formX, span, height,
// small, xName, xLabel, yLabel, grid }. `marks` are vertical lines and `lines` horizontal ones.
// `raw` and `line` are lists of [x, y]; `dots` is a list of { x, y, low, high }.
export function chart(options) {
  const frame = el("div", { class: `chart${options.small ? " small" : ""}` });
  const observer = new ResizeObserver(() => draw(frame, options));
  observer.observe(frame);
  frame.stop = () => observer.disconnect();
  return frame;
}

function draw(frame, options) {
  const width = Math.floor(frame.clientWidth);
  if (!width) return;
  const height = options.height ?? 300;
  const bounds = boundsOf(options);
  if (bounds === null) {
    set(frame, el("p", { class: "empty" }, "No data recorded."));
    return;
  }
  const { x0, x1, y0, y1 } = bounds;
  const left = options.small ? 42 : LEFT;
  const bottom = BOTTOM + (options.small ? 0 : LABEL);
  const px = (x) => left + ((x - x0) / (x1 - x0)) * (width - left - RIGHT);
  const py = (y) => height - bottom - ((y - y0) / (y1 - y0)) * (height - bottom - TOP);
  const picture = svg("svg", {
    viewBox: `0 0 ${width} ${height}`,
    width,
    height,
    role: "img",
    "aria-label": options.title,
  });
  const path = (points) =>
    points.map(([x, y], i) => `${i ? "L" : "M"}${px(x).toFixed(1)} ${py(y).toFixed(1)}`).join("");
  for (const y of ticks(y0, y1, options.small ? 3 : 5)) {
    picture.append(
      svg("line", { class: "grid", x1: left, x2: width - RIGHT, y1: py(y), y2: py(y) }),
      svg("text", { class: "tick", x: left - 6, y: py(y) + 4, "text-anchor": "end" }, brief(y, options.form)),
    );
  }
  for (const x of ticks(x0, x1, Math.max(2, Math.floor(width / 110)), options.grid)) {
    picture.append(svg("text", { class: "tick", x: px(x), y: height - bottom + 20, "text-anchor": "middle" }, options.formX(x)));
  }
  if (!options.small) {
    picture.append(
      svg("text", { class: "axis", x: (left + width - RIGHT) / 2, y: height - 2, "text-anchor": "middle" }, options.xLabel ?? ""),
      svg(
        "text",
        { class: "axis", x: -(TOP + height - bottom) / 2, y: 11, transform: "rotate(-90)", "text-anchor": "middle" },
        options.yLabel ?? "",
      ),
    );
  }
  for (const line of options.lines ?? []) {
    if (line.y < y0 || line.y > y1) continue;
    const text = svg("text", { class: "reference", x: width - RIGHT, y: py(line.y) - 4, "text-anchor": "end" }, line.text);
    picture.append(svg("line", { class: "reference", x1: left, x2: width - RIGHT, y1: py(line.y), y2: py(line.y) }));
    if (!options.small) picture.append(text);
  }
  let shown = -1e9;
  for (const mark of options.marks ?? []) {
    const x = px(mark.x);
    picture.append(svg("line", { class: "stage", x1: x, x2: x, y1: TOP, y2: height - bottom }));
    if (!options.small && x - shown > 52) {
      picture.append(svg("text", { class: "stage", x: x + 4, y: TOP + 9 }, mark.text));
      shown = x;
    }
  }
  for (const item of options.series) {
    const style = `c${item.color % COLORS}`;
    const banded = (item.dots ?? []).filter((dot) => dot.low !== null && dot.low !== undefined);
    if (banded.length > 1) {
      const there = banded.map((dot) => [dot.x, dot.high]);
      const back = banded.map((dot) => [dot.x, dot.low]).reverse();
      picture.append(svg("path", { class: `band ${style}`, d: `${path([...there, ...back])}Z` }));
    }
    if (item.raw?.length && item.raw !== item.line)
      picture.append(svg("path", { class: `raw ${style}`, d: path(item.raw) }));
    if (item.line?.length) picture.append(svg("path", { class: `line ${style}`, d: path(item.line) }));
    if (item.line?.length === 1)
      picture.append(svg("circle", { class: style, cx: px(item.line[0][0]), cy: py(item.line[0][1]), r: 3 }));
    if (item.dots?.length) {
      picture.append(svg("path", { class: `through ${style}`, d: path(item.dots.map((dot) => [dot.x, dot.y])) }));
      for (const dot of item.dots)
        picture.append(
          svg("circle", { class: `dot ${style}`, cx: px(dot.x), cy: py(dot.y), r: options.small ? 2 : 3.5 }),
        );
    }
  }
  const cross = svg("line", { class: "cross", x1: 0, x2: 0, y1: TOP, y2: height - bottom, visibility: "hidden" });
  picture.append(cross);
  const tip = el("div", { class: "tip", hidden: true });
  set(frame, picture, tip);
  const off = () => {
    tip.hidden = true;
    cross.setAttribute("visibility", "hidden");
  };
  picture.addEventListener("pointerleave", off);
  picture.addEventListener("pointermove", (event) => {
    const at = event.clientX - picture.getBoundingClientRect().left;
    const x = x0 + ((at - left) / (width - left - RIGHT)) * (x1 - x0);
    const rows = [];
    let where = null;
    for (const item of options.series) {
      const near = nearest(item.line ?? [], x, (point) => point[0]);
      const dot = nearest(item.dots ?? [], x, (point) => point.x);
      if (near) rows.push(tipRow(item, options.form(near[1])));
      if (dot)
        rows.push(
          tipRow(
            item,
            `${options.form(dot.y)}${dot.low === null || dot.low === undefined ? "" : ` (${options.form(dot.low)} to ${options.form(dot.high)})`} evaluated`,
          ),
        );
      where ??= near?.[0] ?? dot?.x ?? null;
      if (near && Math.abs(near[0] - x) < Math.abs(where - x)) where = near[0];
    }
    if (where === null) return;
    cross.setAttribute("x1", px(where));
    cross.setAttribute("x2", px(where));
    cross.setAttribute("visibility", "visible");
    tip.hidden = false;
    set(tip, el("b", {}, `${options.formX(where)} ${options.xName}`), rows.slice(0, 12));
    const room = width - tip.offsetWidth - 8;
    tip.style.left = `${Math.max(4, Math.min(room, px(where) + 12 > room ? px(where) - tip.offsetWidth - 12 : px(where) + 12))}px`;
  });
}

const tipRow = (item, text) =>
  el("div", {}, el("i", { class: `swatch c${item.color % COLORS}` }), item.name, " ", el("span", {}, text));

function nearest(points, x, of) {
  let best = null;
  for (const point of points) if (best === null || Math.abs(of(point) - x) < Math.abs(of(best) - x)) best = point;
  return best;
}

function boundsOf(options) {
  const xs = [];
  const ys = [];
  for (const item of options.series) {
    for (const [x, y] of [...(item.raw ?? []), ...(item.line ?? [])]) {
      xs.push(x);
      ys.push(y);
    }
    for (const dot of item.dots ?? []) {
      xs.push(dot.x);
      ys.push(dot.y, dot.low ?? dot.y, dot.high ?? dot.y);
    }
  }
  if (!xs.length) return null;
  const low = (all) => all.reduce((a, b) => Math.min(a, b));
  const high = (all) => all.reduce((a, b) => Math.max(a, b));
  let [x0, x1] = [Math.min(0, low(xs)), high(xs)];
  if (x1 <= x0) x1 = x0 + 1;
  if (options.span) return { x0, x1, y0: options.span[0], y1: options.span[1] };
  let [y0, y1] = [low(ys), high(ys)];
  if (y1 - y0 < 1e-12) [y0, y1] = [y0 - Math.max(1e-6, Math.abs(y0) * 0.1), y1 + Math.max(1e-6, Math.abs(y1) * 0.1)];
  const room = (y1 - y0) * 0.06;
  if (y0 > 0 && y0 < (y1 - y0) * 0.6) y0 = 0;
  else y0 = y0 === 0 ? 0 : y0 - room;
  return { x0, x1, y0, y1: y1 + room };
}

// Format the label of a tick; the room beside a chart is limited.
function brief(value, form) {
  const text = form(value);
  if (text.length <= 6) return text;
  return Math.abs(value) >= 1000 ? COMPACT.format(value) : value.toExponential(0);
}

const CLOCK = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400]; // seconds

// `grid` is "whole" for integer ticks, or "time" for seconds that are formatted as minutes and hours.
function ticks(low, high, count, grid = "") {
  const rough = Math.max(grid === "whole" ? 1 : 0, (high - low) / Math.max(1, count));
  const size = 10 ** Math.floor(Math.log10(rough));
  const plain = [1, 2, 5, 10].map((n) => n * size).find((n) => n >= rough * 0.999) ?? rough;
  const step = grid === "time" && rough > 1 ? (CLOCK.find((n) => n >= rough * 0.999) ?? plain) : plain;
  const found = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i += 1)
    found.push(Number((i * step).toPrecision(12)));
  return found;
}

// Exponential moving average with bias correction.
export function smoothed(points, weight) {
  if (!weight) return points;
  let mean = 0;
  let sum = 0;
  return points.map(([x, y]) => {
    mean = weight * mean + (1 - weight) * y;
    sum = weight * sum + (1 - weight);
    return [x, mean / sum];
  });
}
