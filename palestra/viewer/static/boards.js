// Draw the boards of games as grids of cells. Boards of other environments stay text.

import { el } from "./dom.js";

const SOKOBAN = {
  "#": ["wall", ""],
  _: ["floor", ""],
  O: ["goal", "•"],
  X: ["box", "▣"],
  "√": ["box done", "▣"],
  P: ["player", "☻"],
  S: ["player goal", "☻"],
};
const WORDLE = { G: "right", Y: "near", X: "wrong" };

// Each function returns rows of [style, text], or null if the text is not a board of the game.
const GAMES = {
  Sokoban: (lines) => grid(lines, (word) => SOKOBAN[word] ?? null),
  Minesweeper: (lines) =>
    grid(
      lines.slice(1).map((line) => line.trim().split(/\s+/).slice(1).join(" ")),
      (word) =>
        word === "." ? ["hidden", ""] : word === "F" ? ["hidden flag", "⚑"] : /^\d$/.test(word) ? [`open n${word}`, word === "0" ? "" : word] : null,
    ),
  Sudoku: (lines) => {
    const box = lines[1]?.split("|")[0].trim().split(/\s+/).length - 1;
    const rows = [];
    let edge = false;
    for (const line of lines.slice(1)) {
      if (line.includes("-+-") || /^[\s-]+$/.test(line)) {
        edge = true;
        continue;
      }
      const words = line.replaceAll("|", " ").trim().split(/\s+/).slice(1);
      rows.push(
        words.map((word, i) => [
          `digit${edge ? " below" : ""}${i && box && i % box === 0 ? " after" : ""}`,
          word === "." ? "" : word,
        ]),
      );
      edge = false;
    }
    return rows;
  },
  TowerofHanoi: (lines) => hanoi(lines),
  FifteenPuzzle: (lines) => grid(lines, (word) => (/^_+$/.test(word) ? ["hole", ""] : /^\d+$/.test(word) ? ["tile-cell", word] : null)),
  Game2048: (lines) =>
    grid(lines, (word) =>
      word === "." ? ["hole", ""] : /^\d+$/.test(word) ? [`tile-cell p${Math.min(11, Math.round(Math.log2(Number(word))))}`, word] : null,
    ),
  Crosswords: (lines) => letters(lines),
  WordSearch: (lines) => letters(lines),
  Wordle: (lines) => grid(lines.slice(1), (word) => (/^[A-Z]=[GYX]$/.test(word) ? [`letter ${WORDLE[word[2]]}`, word[0]] : null)),
};

function grid(lines, cell) {
  const rows = lines.filter((line) => line.trim()).map((line) => line.trim().split(/\s+/).map(cell));
  return rows.every((row) => row.every((item) => item !== null)) ? rows : null;
}

// A grid with a header of columns and the name of the row at the start of each line, followed by notes.
function letters(lines) {
  const end = lines.findIndex((line) => !line.trim());
  const rows = lines.slice(1, end < 0 ? undefined : end).map((line) => line.trim().split(/\s+/).slice(1));
  return rows.map((row) =>
    row.map((word) =>
      word === "." ? ["wall", ""] : word.startsWith("[") ? ["letter right", word[1]] : ["letter", word === "_" ? "" : word],
    ),
  );
}

// Lines such as "A: 3 2 1" list the disks of a peg from the bottom; each peg becomes a column.
function hanoi(lines) {
  const pegs = lines.filter((line) => line.trim()).map((line) => /^([A-Z]): (empty|\d+(?: \d+)*)$/.exec(line.trim()));
  if (!pegs.length || pegs.includes(null)) return null;
  const disks = pegs.map((peg) => (peg[2] === "empty" ? [] : peg[2].split(" ")));
  const height = disks.flat().length;
  const rows = Array.from({ length: height }, (_, row) =>
    disks.map((peg) => (peg[height - 1 - row] ? ["tile-cell", peg[height - 1 - row]] : ["floor", ""])),
  );
  return [...rows, pegs.map((peg) => ["peg", peg[1]])];
}

// Return the board as a drawing with its notes, or null if it cannot be drawn.
export function board(env, text) {
  const name = /:([A-Za-z0-9_]+)/.exec(env ?? "")?.[1];
  const lines = text.split("\n");
  const rows = GAMES[name]?.(lines) ?? null;
  const width = rows?.[0]?.length ?? 0;
  if (!width || rows.length > 40 || width > 40 || rows.some((row) => row.length !== width)) return null;
  const notes = lines.includes("") ? lines.slice(lines.indexOf("") + 1).join("\n") : "";
  return el(
    "figure",
    { class: "drawn" },
    el(
      "div",
      { class: "cells", role: "img", "aria-label": text, style: { "--columns": width } },
      rows.flat().map(([style, word]) => el("span", { class: style }, word)),
    ),
    notes && el("figcaption", {}, notes),
    el("details", {}, el("summary", {}, "as text"), el("pre", {}, text)),
  );
}
