// Select an episode to compare with another one.

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

export function forget() {
  sessionStorage.removeItem("marked");
  document.dispatchEvent(new Event("marked"));
}
