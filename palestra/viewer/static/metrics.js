// Names and number formats of metrics.

import { number, percent } from "./format.js";

const NAMES = {
  success: "Success",
  return: "Return",
  turns_per_episode: "Turns per episode",
  tokens_per_episode: "Tokens per episode",
  invalid_actions: "Invalid actions",
  truncated: "Truncated episodes",
  cut_replies: "Truncated replies",
  failures: "Failed episodes",
  entropy: "Entropy",
  kl: "KL to the reference",
  approx_kl: "KL of the update",
  grad_norm: "Gradient norm",
  clip_fraction: "Clipped tokens",
  explained_variance: "Explained variance",
  policy_loss: "Policy loss",
  value_loss: "Value loss",
  sft_loss: "Loss (sft)",
  dpo_loss: "Loss (dpo)",
  loss: "Loss",
  lr: "Learning rate",
  level: "Level",
  horizon: "Horizon",
  tokens_per_second: "Tokens per second",
  learned_tokens_per_second: "Learned tokens per second",
  gpu_memory_gb: "GPU memory (GiB)",
  seconds_sampling: "Sampling seconds",
  seconds_learning: "Learning seconds",
  accuracy: "Preference accuracy",
};
const SHARES = new Set([
  "success",
  "truncated",
  "invalid_actions",
  "cut_replies",
  "clip_fraction",
  "accuracy",
  "signal",
]);
const HIDDEN = /_low$|_high$|^(step|tokens|time)$/;

const base = (key) => key.split("/")[0];
export const title = (key) =>
  key.includes("/")
    ? `${NAMES[base(key)] ?? base(key)}, ${key.split("/")[1]}`
    : (NAMES[key] ?? key.replaceAll("_", " "));
export const form = (key) => (SHARES.has(base(key)) ? (value) => percent(value) : (value) => number(value));
export const span = (key) => (base(key) === "success" ? [0, 1] : null);

// Return `success` and the metrics that are nonzero in some run, in the order of NAMES, then alphabetically.
export function keysOf(all) {
  const known = Object.keys(NAMES);
  const found = new Set();
  for (const run of all) {
    for (const part of [run.training, run.evaluations]) {
      for (const [key, values] of Object.entries(part))
        if (!HIDDEN.test(key) && (key === "success" || values.some((value) => value))) found.add(key);
    }
  }
  const rank = (key) => (known.includes(key) ? known.indexOf(key) : known.length);
  return [...found].sort((a, b) => rank(a) - rank(b) || a.localeCompare(b));
}
