"""Convert key names and texts into DevTools key events."""

from __future__ import annotations

from typing import Any

from palestra.browser.actions import BadAction
from palestra.parsing import clip

Calls = list[tuple[str, dict[str, Any]]]
MODIFIERS = {"alt": 1, "control": 2, "ctrl": 2, "meta": 4, "command": 4, "cmd": 4, "controlormeta": 2, "shift": 8}
_MODIFIER_KEYS = {1: ("Alt", 18), 2: ("Control", 17), 4: ("Meta", 91), 8: ("Shift", 16)}
_NAMED = {  # lower-case name -> (key, code, key code, text)
    "enter": ("Enter", "Enter", 13, "\r"),
    "return": ("Enter", "Enter", 13, "\r"),
    "tab": ("Tab", "Tab", 9, ""),
    "escape": ("Escape", "Escape", 27, ""),
    "esc": ("Escape", "Escape", 27, ""),
    "backspace": ("Backspace", "Backspace", 8, ""),
    "delete": ("Delete", "Delete", 46, ""),
    "space": (" ", "Space", 32, " "),
    "home": ("Home", "Home", 36, ""),
    "end": ("End", "End", 35, ""),
    "pageup": ("PageUp", "PageUp", 33, ""),
    "pagedown": ("PageDown", "PageDown", 34, ""),
    "arrowleft": ("ArrowLeft", "ArrowLeft", 37, ""),
    "arrowup": ("ArrowUp", "ArrowUp", 38, ""),
    "arrowright": ("ArrowRight", "ArrowRight", 39, ""),
    "arrowdown": ("ArrowDown", "ArrowDown", 40, ""),
    "insert": ("Insert", "Insert", 45, ""),
    **{f"f{i}": (f"F{i}", f"F{i}", 111 + i, "") for i in range(1, 13)},
}
_COMMANDS = {
    "a": "selectAll",
    "z": "undo",
}  # edit commands for Ctrl+A and similar keys, which key events alone do not trigger
MAX_TYPED = 400  # longer texts are inserted at once instead of key by key


def text_events(text: str) -> Calls:
    """Return the events that type a text at the caret."""
    if len(text) > MAX_TYPED:
        return [("Input.insertText", {"text": text})]
    calls: Calls = []
    for char in text.replace("\r\n", "\n"):
        if char == "\n":
            calls += key_events(0, "Enter")
        elif char.isascii() and char.isprintable():
            calls += _pair(*_printable(char), 0)
        else:
            calls.append(("Input.insertText", {"text": char}))
    return calls


def parse_keys(combination: str) -> tuple[int, str]:
    """Split a combination such as Control+Shift+a into its modifiers and its key; raise BadAction if it has none."""
    parts = [part.strip() for part in combination.replace("++", "+Plus").split("+")] if combination != "+" else ["Plus"]
    modifiers = 0
    for part in parts[:-1]:
        if part.lower() not in MODIFIERS:
            names = "Alt, Control, Meta and Shift"
            raise BadAction(
                f"{clip(part, 20)!r} in {clip(combination, 40)!r} is not a modifier key; the modifier keys are {names}"
            )
        modifiers |= MODIFIERS[part.lower()]
    key = "+" if parts[-1] == "Plus" else parts[-1] or " "
    if key.lower().replace("_", "") not in _NAMED and len(key) != 1 and key.lower() not in MODIFIERS:
        raise BadAction(
            f"{clip(key, 20)!r} is not a key. Keys are single characters and names such as Enter, Tab, Escape, "
            "Backspace, ArrowDown, Home and PageDown; combine them as in Control+a"
        )
    return modifiers, key


def key_events(modifiers: int, key: str) -> Calls:
    """Return the events that press the modifiers and the key, and then release the key and the modifiers."""
    if key.lower() in MODIFIERS:
        modifiers |= MODIFIERS[key.lower()]
        inner: Calls = []
    elif key.lower().replace("_", "") in _NAMED:
        name, code, number, text = _NAMED[key.lower().replace("_", "")]
        inner = _pair(name, code, number, "" if modifiers & 7 else text, modifiers)
    else:
        name, code, number, text = _printable(key)
        inner = _pair(name, code, number, "" if modifiers & 7 else text, modifiers)
        command = _COMMANDS.get(key.lower()) if modifiers & 6 else None
        if command is not None:
            inner[0][1]["commands"] = [command]
    held = [pair for bit, pair in _MODIFIER_KEYS.items() if modifiers & bit]
    down: Calls = [("Input.dispatchKeyEvent", _modifier("rawKeyDown", *pair, modifiers)) for pair in held]
    up: Calls = [("Input.dispatchKeyEvent", _modifier("keyUp", *pair, 0)) for pair in held]
    return [*down, *inner, *up]


def _printable(char: str) -> tuple[str, str, int, str]:
    if char.isalpha() and char.isascii():
        return char, f"Key{char.upper()}", ord(char.upper()), char
    if char.isdigit() and char.isascii():
        return char, f"Digit{char}", ord(char), char
    return char, "Space" if char == " " else "", 32 if char == " " else 0, char


def _pair(key: str, code: str, number: int, text: str, modifiers: int) -> Calls:
    shared = {"key": key, "code": code, "windowsVirtualKeyCode": number, "modifiers": modifiers}
    down = {"type": "keyDown" if text else "rawKeyDown", **shared}
    if text:
        down |= {"text": text, "unmodifiedText": text}
    return [("Input.dispatchKeyEvent", down), ("Input.dispatchKeyEvent", {"type": "keyUp", **shared})]


def _modifier(kind: str, key: str, number: int, modifiers: int) -> dict[str, Any]:
    return {"type": kind, "key": key, "code": f"{key}Left", "windowsVirtualKeyCode": number, "modifiers": modifiers}
