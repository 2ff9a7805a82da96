"""MiniWoB's tasks: names, turn budgets, success thresholds, and the pages that must be reloaded for every episode."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches

from palestra.errors import BadValue


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    name: str  # MiniWoB's name, such as click-button
    turns: int = 10
    reload: bool = False  # whether the page must be reloaded for every episode, because it keeps state
    threshold: float = 1.0  # minimum raw reward for success
    expert_peeks: bool = False

    @property
    def title(self) -> str:
        """Name used in ids, such as ClickButton."""
        return "".join(part.capitalize() for part in self.name.split("-"))


NAMES = [
    "ascending-numbers",
    "bisect-angle",
    "book-flight",
    "book-flight-nodelay",
    "button-delay",
    "buy-ticket",
    "chase-circle",
    "choose-date",
    "choose-date-easy",
    "choose-date-medium",
    "choose-date-nodelay",
    "choose-list",
    "circle-center",
    "click-button",
    "click-button-sequence",
    "click-checkboxes",
    "click-checkboxes-large",
    "click-checkboxes-soft",
    "click-checkboxes-transfer",
    "click-collapsible",
    "click-collapsible-2",
    "click-collapsible-2-nodelay",
    "click-collapsible-nodelay",
    "click-color",
    "click-dialog",
    "click-dialog-2",
    "click-link",
    "click-menu",
    "click-menu-2",
    "click-option",
    "click-pie",
    "click-pie-nodelay",
    "click-scroll-list",
    "click-shades",
    "click-shape",
    "click-tab",
    "click-tab-2",
    "click-tab-2-easy",
    "click-tab-2-hard",
    "click-tab-2-medium",
    "click-test",
    "click-test-2",
    "click-test-transfer",
    "click-widget",
    "copy-paste",
    "copy-paste-2",
    "count-shape",
    "count-sides",
    "daily-calendar",
    "drag-box",
    "drag-circle",
    "drag-cube",
    "drag-items",
    "drag-items-grid",
    "drag-shapes",
    "drag-shapes-2",
    "drag-single-shape",
    "drag-sort-numbers",
    "draw-circle",
    "draw-line",
    "email-inbox",
    "email-inbox-delete",
    "email-inbox-forward",
    "email-inbox-forward-nl",
    "email-inbox-forward-nl-turk",
    "email-inbox-important",
    "email-inbox-nl-turk",
    "email-inbox-noscroll",
    "email-inbox-reply",
    "email-inbox-star-reply",
    "enter-date",
    "enter-password",
    "enter-text",
    "enter-text-2",
    "enter-text-dynamic",
    "enter-time",
    "find-greatest",
    "find-midpoint",
    "find-word",
    "focus-text",
    "focus-text-2",
    "form-sequence",
    "form-sequence-2",
    "form-sequence-3",
    "generate-number",
    "grid-coordinate",
    "guess-number",
    "highlight-text",
    "highlight-text-2",
    "hot-cold",
    "hover-shape",
    "identify-shape",
    "login-user",
    "login-user-popup",
    "moving-items",
    "multi-layouts",
    "multi-orderings",
    "navigate-tree",
    "number-checkboxes",
    "odd-or-even",
    "order-food",
    "phone-book",
    "read-table",
    "read-table-2",
    "resize-textarea",
    "right-angle",
    "scroll-text",
    "scroll-text-2",
    "search-engine",
    "sign-agreement",
    "simon-says",
    "simple-algebra",
    "simple-arithmetic",
    "social-media",
    "social-media-all",
    "social-media-some",
    "stock-market",
    "terminal",
    "text-editor",
    "text-transform",
    "tic-tac-toe",
    "unicode-test",
    "use-autocomplete",
    "use-autocomplete-nodelay",
    "use-colorwheel",
    "use-colorwheel-2",
    "use-slider",
    "use-slider-2",
    "use-spinner",
    "visual-addition",
]
# The reward on these pages depends on a distance and is rarely exactly 1, so MiniWoB recommends a threshold.
THRESHOLDS = {
    "bisect-angle": 0.8,
    "circle-center": 0.9,
    "find-midpoint": 0.8,
    "right-angle": 0.9,
    "use-colorwheel": 0.9,
    "use-colorwheel-2": 0.9,
}
TURNS = {
    "book-flight": 25,
    "book-flight-nodelay": 25,
    "choose-date": 20,
    "choose-date-nodelay": 20,
    "click-checkboxes-large": 20,
    "click-checkboxes-soft": 15,
    "click-shades": 20,
    "drag-shapes": 15,
    "drag-shapes-2": 20,
    "drag-sort-numbers": 15,
    "email-inbox-forward-nl": 15,
    "email-inbox-forward-nl-turk": 15,
    "email-inbox-nl-turk": 15,
    "form-sequence": 30,
    "generate-number": 20,
    "guess-number": 20,
    "navigate-tree": 15,
    "number-checkboxes": 30,
    "order-food": 15,
    "phone-book": 15,
    "simon-says": 20,
    "social-media-all": 20,
    "social-media-some": 20,
    "stock-market": 30,
    "terminal": 15,
    "tic-tac-toe": 10,
    "use-slider": 30,
    "use-slider-2": 60,
    "use-spinner": 20,
}
# These pages keep event handlers, scroll positions or widgets from the previous problem, so that an episode would
# depend on the previous one. They are therefore reloaded for every episode.
RELOADED_PREFIXES = (
    *(
        "book-flight",
        "chase-circle",
        "choose-date",
        "click-pie",
        "copy-paste",
        "drag-items",
        "drag-sort",
        "email-inbox",
    ),
    *("form-sequence", "highlight-text", "hover-shape", "moving-items", "order-food", "resize-textarea", "scroll-text"),
    *(
        "sign-agreement",
        "simon-says",
        "social-media",
        "text-editor",
        "use-autocomplete",
        "use-colorwheel",
        "use-slider",
        "use-spinner",
    ),
)
TASKS = {
    name: Task(
        name=name,
        turns=TURNS.get(name, 10),
        reload=name.startswith(RELOADED_PREFIXES),
        threshold=THRESHOLDS.get(name, 1.0),
    )
    for name in NAMES
}


def task_named(name: str) -> Task:
    """Return the task with this name, which is MiniWoB's name or the name in the env id."""
    by_title = {task.title: task for task in TASKS.values()}
    match = TASKS.get(name) or by_title.get(name)
    if match is None:
        matches = get_close_matches(str(name), [*TASKS, *by_title], n=3)
        hint = f" Did you mean {', '.join(matches)}?" if matches else ""
        raise BadValue(f"MiniWoB has no task {name!r}.{hint}")
    return match
