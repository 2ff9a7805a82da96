// Human-readable numbers and times.

export function number(value, digits = 3) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (Number.isInteger(value) && size < 1e7) return value.toLocaleString("en");
  if (size >= 1e9) return `${trim(value / 1e9)}G`;
  if (size >= 1e6) return `${trim(value / 1e6)}M`;
  if (size >= 1e4) return `${trim(value / 1e3)}k`;
  if (size < 1e-3) return value.toExponential(1);
  return String(Number(value.toPrecision(digits)));
}

const trim = (value) => String(Number(value.toPrecision(3)));

export function signed(value) {
  if (value === null || value === undefined) return "–";
  return value > 0 ? `+${number(value)}` : number(value).replace("-", "−");
}

export function percent(value, digits = 1) {
  return value === null || value === undefined ? "–" : `${Number((value * 100).toFixed(digits))}%`;
}

export function seconds(value) {
  if (value === null || value === undefined) return "–";
  if (value === 0) return "0 s";
  if (value < 1e-3) return `${Math.max(1, Math.round(value * 1e6))} µs`;
  if (value < 1) return `${Number((value * 1e3).toPrecision(3))} ms`;
  if (value < 60) return `${Number(value.toPrecision(3))} s`;
  const minutes = Math.floor(value / 60);
  if (minutes < 100) return value % 60 < 0.5 ? `${minutes} min` : `${minutes} min ${Math.round(value % 60)} s`;
  return minutes % 60 ? `${Math.floor(minutes / 60)} h ${minutes % 60} min` : `${minutes / 60} h`;
}

export function ago(time) {
  if (!time) return "";
  const past = Date.now() / 1000 - time;
  if (past < 60) return "just now";
  if (past < 3600) return `${Math.floor(past / 60)} min ago`;
  if (past < 86400) return `${Math.floor(past / 3600)} h ago`;
  return new Date(time * 1000).toISOString().slice(0, 10);
}

export function bytes(value) {
  if (value < 1e6) return `${Math.round(value / 1e3)} kB`;
  if (value < 1e9) return `${Math.round(value / 1e6)} MB`;
  return `${(value / 1e9).toFixed(2)} GB`;
}

export const plural = (count, word) => `${number(count)} ${word}${count === 1 ? "" : "s"}`;
