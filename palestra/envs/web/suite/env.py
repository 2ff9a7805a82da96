"""WebSuite environment: tasks on sites with generated content in a real browser, graded from their databases."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any, Unpack, cast

from palestra.browser.actions import parse_action
from palestra.browser.context import Context
from palestra.browser.observation import Form
from palestra.browser.sites import Site
from palestra.envs.multi_turn import MultiTurnOptions
from palestra.envs.web.base import EXAMPLE, WebEnv
from palestra.envs.web.suite.app import App, RunningApp
from palestra.envs.web.suite.tasks import LEVELS, NOT_POSSIBLE, TEMPLATES, Draw, Task, Template
from palestra.envs.web.tasks import same_answer
from palestra.errors import BadValue

TRAIN_DATA, TEST_DATA = range(8), range(8, 10)  # data seeds
TASKS = (  # modules that register templates
    "palestra.envs.web.encyclopedia.reading",
    "palestra.envs.web.encyclopedia.writing",
    "palestra.envs.web.town.tasks",
    "palestra.envs.web.town.institutions",
    "palestra.envs.web.shop.buying",
    "palestra.envs.web.shop.selling",
    "palestra.envs.web.forge.reading",
    "palestra.envs.web.forge.writing",
    "palestra.envs.web.store.buying",
    "palestra.envs.web.store.selling",
)
SIZE = (1280, 720)  # width and height of the viewport in pixels
TURNS = {1: 10, 2: 20, 3: 30}  # by level
MAX_DRAWS = 1000  # maximum number of tasks that are drawn to find a possible one


@cache
def apps() -> Mapping[str, App]:
    """Return the applications by name; importing them registers their templates."""
    from palestra.envs.web.encyclopedia.app import ENCYCLOPEDIA
    from palestra.envs.web.forge.app import FORGE
    from palestra.envs.web.shop.app import SHOP
    from palestra.envs.web.store.app import STORE
    from palestra.envs.web.town.app import TOWN

    for tasks in TASKS:
        import_module(tasks)
    return {app.name: app for app in (ENCYCLOPEDIA, TOWN, SHOP, FORGE, STORE)}


def templates() -> Mapping[str, Template]:
    """Return all templates by name."""
    apps()
    return TEMPLATES


@dataclass(frozen=True, slots=True)
class SuiteStart:
    """The home page of the first site, with the unchanged content of all sites of a task."""

    names: tuple[str, ...]
    data_seed: int

    @property
    def label(self) -> str:
        return "web"

    @property
    def size(self) -> tuple[int, int]:
        return SIZE

    def sites(self) -> Mapping[str, Site]:
        return {}

    def open(self, context: Context) -> None:
        for name in self.names:
            app = apps()[name]
            running = app.launch(self.data_seed)
            context.sites[app.host] = running
            context.closers.append(running.stop)
        context.start_again(apps()[self.names[0]].home)


class WebSuite(WebEnv):
    """Tasks on sites with generated content, such as an encyclopedia and a map.

    `sites` is a list or a comma-separated string of site names: encyclopedia, map, shop, forge (which needs Fossil and
    libfaketime) and store (which needs the extra `store`). Tasks that need several sites are sampled only if all of
    them are given. `level` is 1, 2 or 3; None means all levels. `split="train"` samples templates and content for
    training, and `split="test"` samples all templates, with other content; templates marked `held_out` are never used
    in training. `impossible=False` leaves out tasks whose answer is N/A, which an agent can give without using the
    sites. `reset(options={"template": name, "data_seed": 3})` selects the template and the content.

    A task is solved if, at `stop`, the answer and the address are correct and the databases of the sites contain
    exactly the requested changes. `observation` is "axtree", "html" or "screenshot".
    """

    expert_peeks = True  # the expert knows the answer
    filters_tasks = False  # `split` selects templates and content
    shared = WebEnv.shared | {"template", "task", "_templates"}

    def __init__(
        self,
        *,
        sites: str | Iterable[str] = "encyclopedia,map,shop",
        level: int | None = None,
        impossible: bool = True,
        observation: Form = "axtree",
        viewport_only: bool = False,
        max_turns: int | None = None,
        **options: Unpack[MultiTurnOptions],
    ) -> None:
        names = [name.strip() for name in sites.split(",")] if isinstance(sites, str) else list(sites)
        unknown = [name for name in names if name not in apps()]
        if unknown or not names:
            raise BadValue(f"`sites` must be one or more of {', '.join(apps())}; got {sites!r}")
        if level not in (None, *LEVELS):
            raise BadValue(f"`level` must be 1, 2, 3 or None for all levels, got {level!r}")
        for name in names:
            apps()[name].require()
        super().__init__(
            observation=observation,
            viewport_only=viewport_only,
            max_turns=TURNS[level or 3] if max_turns is None else max_turns,
            **options,
        )
        self.names, self.level, self._turns = tuple(names), level, max_turns
        self._impossible = impossible
        self._templates = tuple(
            template
            for template in TEMPLATES.values()
            if set(template.apps) <= set(names)
            and level in (None, template.level)
            and not (template.held_out and self.split == "train")
        )
        if not self._templates:
            raise BadValue(f"there are no tasks on {', '.join(names)} at level {level}")

    @property
    def intent(self) -> str:
        return self.task.intent

    def setup(self, options: dict[str, Any]) -> None:
        data = {"train": TRAIN_DATA, "test": TEST_DATA, None: range(TEST_DATA.stop)}[self.split]
        given: dict[str, Any] = {k: options.pop(k) for k in ("template", "data_seed") if k in options}
        for _ in range(MAX_DRAWS):
            self._draw(data, given)
            if self._impossible or "template" in given or NOT_POSSIBLE not in self.task.answer:
                break
        else:
            raise BadValue(f"no possible task was found in {MAX_DRAWS} draws; use impossible=True")
        self.max_turns = TURNS[self.template.level] if self._turns is None else self._turns
        self._at, self._seen, self._suggested = 0, 0, EXAMPLE  # the expert's next move, and what it has seen

    def _draw(self, data: range, given: Mapping[str, Any]) -> None:
        """Draw the template and the content, unless they are given, and the task."""
        self.template: Template = self.rng.choice(self._templates)
        self.data_seed = int(self.rng.choice(data))
        if "template" in given:
            name = given["template"]
            if name not in TEMPLATES or not set(TEMPLATES[name].apps) <= set(self.names):
                known = ", ".join(template.name for template in self._templates)
                raise BadValue(f"the reset option `template` must be one of {known}; got {name!r}")
            self.template = TEMPLATES[name]
        if "data_seed" in given:
            self.data_seed = int(given["data_seed"])
        self.task: Task = self.template.draw(Draw(self.rng, self.data_seed))

    def task_key(self) -> object:
        return self.template.name, self.data_seed, self.task.intent

    def start(self) -> SuiteStart:
        return SuiteStart(self.template.apps, self.data_seed)

    def reset_info(self) -> dict[str, Any]:
        chosen = {"template": self.template.name, "level": self.template.level, "data_seed": self.data_seed}
        return {**chosen, **super().reset_info()}

    def about(self) -> str:
        sites = ", ".join(apps()[name].url for name in self.template.apps)
        return f" The only sites are: {sites}"

    def solved(self, answer: str) -> bool:
        episode = self._running()
        sites = episode.context().sites
        return is_done(self.task, self.start(), answer, episode.state.url, cast("Mapping[str, RunningApp]", sites))

    def expert_action(self) -> str | None:
        """Return the expert's next move. If another action was taken, the expert starts again at the home page."""
        commands, nodes = self._running().commands, self._running().state.nodes
        if len(commands) != self._seen:
            followed = len(commands) == self._seen + 1 and commands[-1] == parse_action(self._suggested)
            self._at = self._at + 1 if followed else -1
        self._seen = len(commands)
        moves = self.task.expert
        action = moves[self._at].action(nodes) if 0 <= self._at < len(moves) else None
        if action is None:
            self._at, action = -1, f"goto [{apps()[self.template.apps[0]].url}]"
        self._suggested = action
        return action


def is_done(task: Task, start: SuiteStart, answer: str, url: str, sites: Mapping[str, RunningApp]) -> bool:
    """Return whether a task is done: the answer and the address are right, and the sites were changed as asked."""
    if task.answer and not any(same_answer(answer, accepted) for accepted in task.answer):
        return False
    used = [apps()[name] for name in start.names]
    if task.url and not any(app.same_page(url, task.url) for app in used if task.url.startswith(app.url)):
        return False
    return all(app.has_changes(sites[app.host], start.data_seed, task.changes) for app in used)
