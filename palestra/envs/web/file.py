"""WebFile environment: a user's own site or application in a real browser, with tasks from a JSON file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Unpack

from palestra.browser.context import Context
from palestra.browser.observation import Form
from palestra.browser.sites import FolderSite, PortSite, Site
from palestra.envs.multi_turn import MultiTurnOptions
from palestra.envs.web.app import App
from palestra.envs.web.base import WebEnv
from palestra.envs.web.tasks import accepts_answer, accepts_databases, read_tasks
from palestra.errors import BadValue

HOST = "site.test"


@dataclass(frozen=True, slots=True)
class WebStart:
    """A task's first page, on a static site or in an application that starts with a new copy of its data."""

    url: str
    site: str | None
    command: str | None
    data: str | None

    @property
    def label(self) -> None:
        return None

    @property
    def size(self) -> tuple[int, int]:
        return 1280, 720

    def sites(self) -> Mapping[str, Site]:
        return {} if self.site is None else {HOST: FolderSite(self.site)}

    def open(self, context: Context) -> None:
        if self.command is not None:
            app = App(self.command, self.data)
            context.closers.append(app.stop)
            context.sites[HOST] = PortSite(app.port)
            context.data_folder = app.folder
        context.tab.navigate(self.url)


class WebFile(WebEnv):
    """Tasks on your own site, whose address in the browser is http://site.test/.

    `tasks` is a JSON file (docs/web.md describes its fields). Pass either `site`, a folder with static files, or
    `command`, which starts an application. In the command, `{port}` is replaced by the port on which the application
    must listen, and `{data}` by a copy of the `data` folder, which is created for every episode. `observation` is
    "axtree", "html" or "screenshot". The tree contains only elements that are visible without scrolling, unless
    `viewport_only` is False.
    """

    shared = WebEnv.shared | {"_tasks"}

    def __init__(
        self,
        *,
        tasks: str,
        site: str | None = None,
        command: str | None = None,
        data: str | None = None,
        observation: Form = "axtree",
        viewport_only: bool = True,
        max_turns: int | None = None,
        **options: Unpack[MultiTurnOptions],
    ) -> None:
        self._tasks = read_tasks(tasks)
        super().__init__(
            observation=observation,
            viewport_only=viewport_only,
            max_turns=max(task.max_turns for task in self._tasks) if max_turns is None else max_turns,
            **options,
        )
        if (site is None) is (command is None):
            raise BadValue("pass either `site`, a folder with static files, or `command`, which starts an application")
        if data is not None and not Path(data).is_dir():
            raise BadValue(f"`data` must be a folder, got {data!r}")
        if site is not None:
            FolderSite(site)  # raises an error if the folder does not exist
        self.site, self.command, self.data = site, command, data
        self._turns = max_turns

    def setup(self, options: dict[str, Any]) -> None:
        self.task = self.rng.choice(self._tasks)
        if "task" in options:
            wanted = str(options.pop("task"))
            matches = [task for task in self._tasks if task.id == wanted]
            if not matches:
                known = ", ".join(task.id for task in self._tasks)
                raise BadValue(f"there is no task {wanted!r}; the tasks are {known}")
            self.task = matches[0]
        self.max_turns = self.task.max_turns if self._turns is None else self._turns

    def task_key(self) -> object:
        return self.task.id, self.task.intent

    def start(self) -> WebStart:
        return WebStart(self.task.start_url, self.site, self.command, self.data)

    def reset_info(self) -> dict[str, Any]:
        return {"task": self.task.id, **super().reset_info()}

    @property
    def intent(self) -> str:
        return self.task.intent

    def solved(self, answer: str) -> bool:
        """Return whether the current state and the answer satisfy all of the task's criteria."""
        episode, task = self._running(), self.task
        if not accepts_answer(task, answer):
            return False
        if task.url and not re.fullmatch(task.url, episode.state.url):
            return False
        if task.script and not episode.evaluate(f"Boolean({task.script})"):
            return False
        return accepts_databases(task, episode.context().data_folder)
