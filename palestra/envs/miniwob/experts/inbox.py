"""Experts for the e-mail and calendar tasks."""

from __future__ import annotations

import re

from palestra.browser.observation import Node
from palestra.envs.miniwob.experts.look import Expert, Look, click, press_button

MONTHS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)


def email_inbox(look: Look) -> str:
    """Delete, star, reply to or forward the e-mail from the given sender."""
    goal = look.goal
    sender = re.search(r"email by (\w+)", goal)
    name = sender[1] if sender else ""
    reply = re.search(r'with the text "(.*)"', goal)
    forward = re.search(r"forward that email to (\w+)", goal)
    if reply is None and forward is None:
        row = look.named(name, "StaticText")
        icon = "trash" if "trash" in goal else "star"
        return click(None if row is None else next((n for n in look.after(row) if n.props.get("class") == icon), None))
    return _answer(look, name, reply[1] if reply else None, forward[1] if forward else None)


def _answer(look: Look, name: str, reply: str | None, forward: str | None) -> str:
    areas = [node for node in look.all("textbox") if not node.props.get("readonly")]
    if not areas:
        verb = "Reply" if reply is not None else "Forward"
        button = next((node for node in look.nodes if node.name == verb or _has_class(node, verb)), None)
        return click(button or look.named(name, "StaticText"))
    field, text = (areas[-1], reply) if reply is not None else (areas[0], forward)
    if str(field.props.get("value", "")).strip() != text:
        return f"fill [{field.number}] [{text}]"
    send = [node for node in look.nodes if _has_class(node, "send") or node.name.lower() == "send"]
    return click(send[-1] if send else None)


def _has_class(node: Node, word: str) -> bool:
    return any(word.lower() in part.lower() for part in str(node.props.get("class", "")).split())


def choose_date(look: Look) -> str:
    match = re.search(r"(\d\d)/(\d\d)/(\d{4})", look.goal)
    month, day, year = (int(part) for part in match.groups()) if match else (1, 1, 2000)
    field = look.all("textbox")[0]
    if field.props.get("value") == f"{month:02d}/{day:02d}/{year}":
        return press_button(look)
    shown = next((text for text in look.texts() if text in MONTHS), None)
    if shown is None:
        return click(field)
    if MONTHS.index(shown) + 1 == month:
        return click(look.named(str(day), "link"))
    return click(look.named("Prev" if MONTHS.index(shown) + 1 > month else "Next", "link"))


EXPERTS: dict[str, Expert] = {
    "choose-date": choose_date,
    "choose-date-easy": choose_date,
    "choose-date-medium": choose_date,
    "choose-date-nodelay": choose_date,
    "email-inbox": email_inbox,
    "email-inbox-delete": email_inbox,
    "email-inbox-forward": email_inbox,
    "email-inbox-important": email_inbox,
    "email-inbox-noscroll": email_inbox,
    "email-inbox-reply": email_inbox,
    "email-inbox-star-reply": email_inbox,
}
