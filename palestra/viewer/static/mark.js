// Mark an episode for comparison with another episode.

export function marked() {
  try {
    return JSON.parse(sessionStorage.getItem("marked"));
  } catch {
    return null;
  }
}

export function mark(run, at) {
  sessionStorage.setItem("marked", JSON.stringify({ run, at }));
  document.dispatchEvent(new Event("marked"));
}

export function unmark() {
  sessionStorage.removeItem("marked");
  document.dispatchEvent(new Event("marked"));
}
