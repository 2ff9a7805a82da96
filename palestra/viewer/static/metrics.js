// Names and number formats of metrics.

import { number, percent } from "./format.js";

const NAMES = {
  success: "Success",
  return: "Return",
  turns_per_episode: "Turns per episode",
  tokens_per_episode: "Tokens per episode",
  tokens_per_reply: "Tokens per reply",
  invalid_actions: "Invalid actions",
  truncated: "Truncated episodes",
  cut_replies: "Cut replies",
  failures: "Failed episodes",
  entropy: "Entropy",
  kl: "KL to the reference",
  step_kl: "KL of the step",
  approx_kl: "KL to the sampling policy",
  engine_kl: "KL between engine and trainer",
  zero_variance: "Equal returns",
  singleton: "Groups with one episode",
  signal: "Learning signal",
  backtracked: "Steps scaled back",
  updates: "Updates per step",
  grad_norm: "Gradient norm",
  clip_fraction: "Clipped tokens",
  explained_variance: "Explained variance",
  policy_loss: "Policy loss",
  value_loss: "Value loss",
  sft_loss: "Loss (sft)",
  dpo_loss: "Loss (dpo)",
  loss: "Loss",
  nll: "Negative log-likelihood",
  ratio_mean: "Mean probability ratio",
  ratio_max: "Largest probability ratio",
  ratio_min: "Smallest probability ratio",
  staleness_mean: "Mean staleness",
  staleness_max: "Largest staleness",
  entropy_coef: "Entropy coefficient",
  entropy_coef_failed: "Entropy coefficient, failed episodes",
  lr: "Learning rate",
  level: "Level",
  horizon: "Horizon",
  tokens_per_second: "Tokens per second",
  learned_tokens_per_second: "Learned tokens per second",
  gpu_memory_gb: "GPU memory (GiB)",
  seconds_sampling: "Sampling seconds",
  seconds_learning: "Learning seconds",
  seconds_waiting: "Waiting seconds",
  seconds_evaluating: "Evaluating seconds",
  distinct_tasks: "Distinct tasks in training",
  tasks: "Distinct tasks, evaluated",
  seen: "Evaluated tasks seen in training",
  accuracy: "Preference accuracy",
};
const SHARES = new Set([
  "success",
  "truncated",
  "invalid_actions",
  "cut_replies",
  "clip_fraction",
  "accuracy",
  "zero_variance",
  "singleton",
  "seen",
]);
const HIDDEN = /_low$|_high$|^final_|^(step|tokens|time|held_out)$/; // the final evaluation has one value per run

const base = (key) => key.split("/")[0];
export const title = (key) =>
  key.includes("/")
    ? `${NAMES[base(key)] ?? base(key)}, ${key.split("/")[1]}`
    : (NAMES[key] ?? key.replaceAll("_", " "));
export const form = (key) => (SHARES.has(base(key)) ? (value) => percent(value) : (value) => number(value));
export const span = (key) => (["success", "seen", "signal", "backtracked"].includes(base(key)) ? [0, 1] : null);

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
