// Play an environment in the browser and save the episode.

import { get, post } from "./api.js";
import { address, el, link, set } from "./dom.js";
import { number, plural } from "./format.js";
import { crumbs, outcome } from "./parts.js";
import { drawing, message, turn } from "./conversation.js";

const SHOWN = 60;

export async function show(page, params) {
  const game = params.get("game");
  return game ? playGame(page, game) : chooseEnvironment(page, params);
}

async function chooseEnvironment(page, params) {
  document.title = "Play · Palestra";
  const envs = await get("envs");
  let text = params.get("text") ?? "";
  const list = el("div", { class: "envs" });
  const alert = el("p", { class: "problem", role: "alert", hidden: true });
  const seed = el("input", { type: "number", name: "seed", min: 0, placeholder: "any" });

  async function start(id) {
    alert.hidden = true;
    try {
      const started = await post("play", {}, { env: id, seed: seed.value === "" ? null : Number(seed.value) });
      location.hash = address("play", { game: started.game });
    } catch (error) {
      alert.hidden = false;
      alert.textContent = error.message;
      alert.scrollIntoView({ block: "nearest" });
    }
  }

  function draw() {
    const words = text.toLowerCase().split(/\s+/).filter(Boolean);
    const found = envs.filter((env) => words.every((word) => `${env.id} ${env.summary}`.toLowerCase().includes(word)));
    set(
      list,
      found
        .slice(0, SHOWN)
        .map((env) =>
          el(
            "button",
            { type: "button", class: "env-card", "data-env": env.id, onclick: () => start(env.id) },
            el("b", {}, env.id),
            env.needs_data &&
              el(
                "span",
                { class: "chip warn", title: "needs a dataset that must be downloaded first" },
                "needs data",
              ),
            el("span", {}, env.summary),
          ),
        ),
      found.length > SHOWN &&
        el("p", { class: "dim" }, `and ${number(found.length - SHOWN)} more: type a part of the name to filter`),
      !found.length && el("p", { class: "empty" }, "No matching environments."),
    );
  }

  set(
    page,
    el("h1", {}, "Play"),
    el(
      "p",
      { class: "dim" },
      `${plural(envs.length, "environment")}. Finished episodes can be saved as trajectories in the run “played” and used with palestra train --algorithm sft --data.`,
    ),
    el(
      "form",
      { class: "filters", onsubmit: (event) => event.preventDefault() },
      el(
        "label",
        { class: "field grow" },
        el("span", {}, "Environment"),
        el("input", {
          type: "search",
          name: "text",
          value: text,
          placeholder: "sudoku easy",
          oninput: (event) => {
            text = event.target.value;
            history.replaceState(null, "", address("play", { text }));
            draw();
          },
        }),
      ),
      el("label", { class: "field tiny" }, el("span", {}, "Seed"), seed),
    ),
    alert,
    list,
  );
  draw();
  return { runs: [], keys: {} };
}

async function playGame(page, game) {
  let data = await get("play", { game });
  document.title = `Play ${data.env_id} · Palestra`;
  const body = el("div", { class: "conversation" });
  const bar = el("div");
  const alert = el("p", { class: "problem", role: "alert", hidden: true });
  const picture = (part) => `/api/play/picture?${new URLSearchParams({ game, turn: part.turn, part: part.part })}`;
  const input = el("textarea", {
    name: "move",
    rows: 2,
    "aria-label": "your action",
    placeholder: data.example ? `your action, for example ${data.example}` : "your action",
  });
  const box = el("input", { type: "checkbox", name: "box", checked: true });
  let busy = false;

  async function request(path, content) {
    if (busy) return null;
    busy = true;
    alert.hidden = true;
    page.classList.add("busy");
    try {
      return await post(path, { game }, content);
    } catch (error) {
      alert.hidden = false;
      alert.textContent = error.message;
      return null;
    } finally {
      busy = false;
      page.classList.remove("busy");
    }
  }

  async function move() {
    if (!input.value.trim()) return;
    const now = await request("play/move", { text: input.value, box: box.checked });
    if (now === null) return;
    input.value = "";
    data = now;
    draw();
  }

  async function propose(player) {
    const proposal = await request("play/propose", { player });
    if (proposal === null) return;
    if (proposal.text === null) {
      alert.hidden = false;
      alert.textContent = "This environment has no expert.";
      return;
    }
    input.value = proposal.text;
    input.focus();
  }

  async function save() {
    const now = await request("play/save", {});
    if (now !== null) {
      data = now;
      draw();
    }
  }

  async function restart(seed) {
    const started = await request("play", { env: data.env_id, seed });
    if (started !== null) location.hash = address("play", { game: started.game });
  }

  input.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      move();
    }
  });

  function draw() {
    const now = data.views.length - 1;
    const state = drawing(data.views[now], `/api/play/rendered?${new URLSearchParams({ game, n: now })}`);
    set(
      body,
      data.turns.map((item, i) => turn(item, i, picture, data.env_id)),
      el("section", { class: "turn last" }, message(data.final.role, data.final.parts, picture, data.env_id), state),
    );
    if (data.over) {
      set(
        bar,
        el(
          "div",
          { class: "over" },
          el(
            "span",
            {},
            outcome(data.outcome),
            ` return ${number(data.return)} after ${plural(data.turns.length, "turn")}`,
          ),
          data.saved
            ? el(
                "span",
                { class: "saved" },
                "saved: ",
                link("episode", { run: data.run, at: data.saved }, `${data.run}/${data.saved}`),
              )
            : el("button", { type: "button", class: "main", name: "save", onclick: save }, "Save as trajectory"),
          el("button", { type: "button", onclick: () => restart(null) }, "New episode"),
          el("button", { type: "button", onclick: () => restart(Number(data.seed)) }, "Same seed again"),
        ),
      );
    } else {
      set(
        bar,
        el(
          "form",
          { class: "move", onsubmit: (event) => (event.preventDefault(), move()) },
          input,
          el(
            "div",
            { class: "actions" },
            el("button", { class: "main" }, "Send"),
            el("button", { type: "button", onclick: () => propose("expert") }, "Ask the expert"),
            el("button", { type: "button", onclick: () => propose("random") }, "Random action"),
            data.boxes && el("label", {}, box, " wrap in \\boxed{}"),
            el(
              "span",
              { class: "dim" },
              data.max_turns ? `turn ${data.turns.length + 1} of ${data.max_turns}` : `turn ${data.turns.length + 1}`,
            ),
          ),
        ),
      );
      input.focus({ preventScroll: true });
    }
    const down = () => data.turns.length && window.scrollTo(0, document.documentElement.scrollHeight);
    requestAnimationFrame(down);
    state?.querySelector("img")?.addEventListener("load", down); // an image changes the page height
  }

  set(
    page,
    crumbs(link("play", {}, "play"), data.env_id),
    el("h1", {}, data.env_id),
    el("p", { class: "dim" }, `seed ${data.seed}`),
    body,
    alert,
    el("div", { class: "bar" }, bar),
  );
  return { runs: [], ready: draw, keys: { i: ["type an action", () => input.focus()] } };
}
