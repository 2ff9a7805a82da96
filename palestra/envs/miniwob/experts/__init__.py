"""Experts for MiniWoB tasks, which read the task's text and the observed page."""

from __future__ import annotations

from palestra.envs.miniwob.experts import clicking, inbox, pictures, typing
from palestra.envs.miniwob.experts.look import Expert

EXPERTS: dict[str, Expert] = {**clicking.EXPERTS, **inbox.EXPERTS, **pictures.EXPERTS, **typing.EXPERTS}
