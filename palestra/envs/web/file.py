"""WebFile environment: a user's own site or application in a real browser, with tasks from a JSON file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Unpack

from palestra.browser.actions import BadAction, parse_action
from palestra.browser.context import Context
from palestra.browser.episode import Episode
from palestra.browser.executable import find_browser
from palestra.browser.observation import Form, View
from palestra.browser.sites import FolderSite, PortSite, Site
from palestra.core import Reset
from palestra.envs.multi_turn import MultiTurnEnv, MultiTurnOptions, Outcome
from palestra.envs.web.app import App
from palestra.envs.web.tasks import accepts_answer, accepts_databases, read_tasks
from palestra.errors import BadValue
from palestra.types import Observation, Step

HOST = "site.test"
EXAMPLE = "click [12]"
TURN_MS = 1000.0
ANSWER_EXAMPLE = "stop [your answer]"


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


class WebFile(MultiTurnEnv):
    """Tasks on your own site, whose address in the browser is http://site.test/.

    `tasks` is a JSON file (docs/web.md describes its fields). Pass either `site`, a folder with static files, or
    `command`, which starts an application. In the command, `{port}` is replaced by the port on which the application
    must listen, and `{data}` by a copy of the `data` folder, which is created for every episode. `observation` is
    "axtree", "html" or "screenshot". The tree contains only elements that are visible without scrolling, unless
    `viewport_only` is False.
    """

    inline = False
    shared = MultiTurnEnv.shared | {"_tasks", "view"}

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
            max_turns=max(task.max_turns for task in self._tasks) if max_turns is None else max_turns, **options
        )
        if (site is None) is (command is None):
            raise BadValue("pass either `site`, a folder with static files, or `command`, which starts an application")
        if data is not None and not Path(data).is_dir():
            raise BadValue(f"`data` must be a folder, got {data!r}")
        if site is not None:
            FolderSite(site)  # raises an error if the folder does not exist
        self.site, self.command, self.data = site, command, data
        self.view = View(form=observation, viewport_only=viewport_only)
        self._turns = max_turns
        self._episode: Episode | None = None
        find_browser()

    def setup(self, options: dict[str, Any]) -> None:
        self.task = self.rng.choice(self._tasks)
        if "task" in options:
            wanted = str(options.pop("task"))
            found = [task for task in self._tasks if task.id == wanted]
            if not found:
                known = ", ".join(task.id for task in self._tasks)
                raise BadValue(f"there is no task {wanted!r}; the tasks are {known}")
            self.task = found[0]
        self.max_turns = self.task.max_turns if self._turns is None else self._turns

    def task_key(self) -> object:
        return self.task.id, self.task.intent

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        self.close()
        prompt, info = super().reset(seed, options)
        return self._with_image(str(prompt)), info

    def reset_info(self) -> dict[str, Any]:
        start = WebStart(self.task.start_url, self.site, self.command, self.data)
        self._episode = Episode(start, self.view, milliseconds=TURN_MS)
        return {"task": self.task.id, "goal": self.task.intent}

    def prompt(self) -> str:
        return (
            "You use a web browser to carry out a task. Every observation lists the open tabs and then shows the "
            "current page, in which each element has an id.\nActions:\n"
            "- click [id], hover [id], select [id] [option]\n"
            "- type [id] [text] [1]: type into a field and press Enter; with [0], do not press Enter\n"
            "- press [keys], scroll [up], scroll [down]\n"
            "- goto [url], go_back, go_forward, new_tab, tab_focus [index], close_tab\n"
            f"- {ANSWER_EXAMPLE}: end the task, with the answer if it is a question, or with N/A if it is impossible\n"
            f"Write one action per turn, for example: {EXAMPLE}\n"
            "You may think first; write the action on the last line of your reply, or after `Action:`. "
            f"You have {self.max_turns} turns.\n\nTask: {self.task.intent}\n\n{self._page()}"
        )

    def _page(self) -> str:
        state = self._running().state
        body = "" if self.view.form == "screenshot" else state.text(self.view.form)
        return f"{body}\nURL: {state.url}"

    def _running(self) -> Episode:
        if self._episode is None:
            raise BadValue("this env was closed; call reset() to start an episode")
        return self._episode

    def act(self, action: str) -> Outcome:
        try:
            command = parse_action(action)
        except BadAction as err:
            return Outcome(f"{err}\n{self._page()}", invalid="format")
        if command.name == "stop":
            solved = self.solved(str(command.args[0]) if command.args else "")
            text = "The task is solved." if solved else "The task has ended; it was not solved."
            return Outcome(text, float(solved), "solved" if solved else "lost")
        try:
            self._running().perform(command)
        except BadAction as err:
            return Outcome(f"{err}\n{self._page()}", invalid="rule")
        return Outcome(self._page())

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

    def step(self, action: str) -> Step:
        step = super().step(action)
        return step._replace(observation=self._with_image(str(step.observation)))

    def _with_image(self, text: str) -> Observation:
        if self.view.form != "screenshot" or self.ending is not None:
            return text
        return [{"type": "text", "text": text}, {"type": "image", "image": self._running().state.image}]

    def close(self) -> None:
        episode, self._episode = self._episode, None
        if episode is not None:
            episode.release()

    def render(self, mode: str = "text") -> str | bytes | None:
        """Return the page as text, or as a PNG image."""
        if mode == "image":
            return self._running().context().tab.screenshot()
        return self._page() if mode == "text" else None

    def example_action(self) -> str:
        return EXAMPLE

    def sample_random_action(self) -> str:
        rng = self.player_rng
        nodes = [node for node in self._running().state.nodes if node.active]
        if not nodes or rng.random() < 0.05:
            return "stop [N/A]"
        node = rng.choice(nodes)
        if node.role in ("textbox", "searchbox"):
            return f"type [{node.number}] [{rng.choice(self.task.intent.split())}] [1]"
        return f"click [{node.number}]"
