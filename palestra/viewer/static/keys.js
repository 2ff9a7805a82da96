// Keyboard shortcuts: global shortcuts and shortcuts for the current view.

import { el, set } from "./dom.js";

const EVERYWHERE = {
  r: ["all runs", () => (location.hash = "#/")],
  "/": ["focus the first filter", () => document.querySelector("main input, main select")?.focus()],
  "?": ["list of shortcuts", () => help.click()],
};
const help = document.getElementById("help");
const dialog = document.getElementById("keys");

export function bindKeys(own) {
  help.addEventListener("click", () => {
    const all = { ...own(), ...EVERYWHERE, Esc: ["leave a field, close this dialog"] };
    const rows = Object.entries(all).map(([key, [words]]) =>
      el("div", {}, el("kbd", {}, name(key)), el("span", {}, words)),
    );
    const close = el("button", { type: "button", onclick: () => dialog.close() }, "Close");
    set(dialog, el("h2", {}, "Keyboard shortcuts"), el("div", { class: "keys" }, rows), close);
    dialog.showModal();
  });
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || dialog.open) return;
    const typing = event.target.closest("input:not([type=checkbox]):not([type=range]), textarea, select");
    if (typing) {
      if (event.key === "Escape") typing.blur();
      return;
    }
    const found = own()[event.key] ?? EVERYWHERE[event.key];
    if (!found?.[1]) return;
    if (event.key === "Enter" && event.target.closest("a, button, summary")) return; // handled by the browser
    event.preventDefault();
    found[1]();
  });
}

const name = (key) => ({ ArrowLeft: "←", ArrowRight: "→", Enter: "Enter" })[key] ?? key;

// Selection in a list, moved with j and k.
export class Cursor {
  constructor(items) {
    this.items = items; // a function that returns the elements, which may be recreated
    this.at = -1;
  }

  move(by) {
    const items = this.items();
    if (!items.length) return;
    this.at = Math.max(0, Math.min(items.length - 1, this.at + by));
    for (const item of items) item.classList.toggle("current", item === items[this.at]);
    items[this.at].scrollIntoView({ block: "nearest" });
  }

  get current() {
    return this.items()[this.at] ?? null;
  }
}
