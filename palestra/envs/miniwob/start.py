"""Start MiniWoB episodes: load a task's page once, and generate each episode's problem inside the page."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from palestra.browser.context import Context
from palestra.browser.sites import FolderSite, Site
from palestra.errors import EnvFailed
from palestra.optional import require

HOST = "miniwob.test"
SIZE = (400, 320)  # the tasks use 160 x 210 pixels; some menus and calendars are larger
HIDDEN = ("#query", "#reward-display", "#sync-task-cover", "#click-canvas", "#attention-canvas")
STATUS = "[WOB_DONE_GLOBAL,WOB_RAW_REWARD_GLOBAL,core.getUtterance()]"
_RESET = """(() => {{
  const P = __palestra;
  P.clearTimers(); P.forget(); P.seed(0);
  if (document.activeElement && document.activeElement !== document.body) document.activeElement.blur();
  core.EPISODE_MAX_TIME = {limit};
  core.cover_div || core.startEpisode();
  Math.seedrandom('{seed}');
  core.startEpisodeReal();
}})()"""


@cache
def _sites() -> Mapping[str, Site]:
    package: Any = require("miniwob", extra="web") if _installed() is None else None
    folder = _installed() or Path(package.__file__).parent
    return {HOST: FolderSite(folder / "html")}


@cache
def _installed() -> Path | None:
    """Return the package's folder without importing the package, which would import gymnasium and selenium."""
    from importlib.util import find_spec

    spec = find_spec("miniwob")
    return Path(spec.origin).parent if spec is not None and spec.origin else None


@dataclass(frozen=True, slots=True)
class MiniWobStart:
    """The start of an episode: the task and its seed; `reload` is True for pages that keep state between problems."""

    task: str
    page_seed: int
    reload: bool
    limit_ms: float

    @property
    def label(self) -> Hashable:
        return "miniwob", self.task

    @property
    def size(self) -> tuple[int, int]:
        return SIZE

    def sites(self) -> Mapping[str, Site]:
        return _sites()

    def open(self, context: Context) -> None:
        if self.reload or context.label != self.label:
            error = context.tab.navigate(f"http://{HOST}/miniwob/{self.task}.html")
            if error is not None:
                raise EnvFailed(f"the page for {self.task} did not load: {error}")
            context.label = self.label
        context.tab.call_all([("Input.dispatchMouseEvent", {"type": "mouseMoved", "x": SIZE[0] - 1, "y": SIZE[1] - 1})])
        context.tab.evaluate(_RESET.format(limit=self.limit_ms, seed=self.page_seed))
