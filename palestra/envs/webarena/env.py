"""WebArena environment: the original tasks or those of WebArena Verified, on sites that the user runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Unpack

from palestra.browser.connection import ProtocolError
from palestra.browser.context import Context
from palestra.browser.observation import Form, View, observe
from palestra.browser.sites import Site
from palestra.browser.tab import CALL_SECONDS, ScriptError
from palestra.envs.multi_turn import MultiTurnOptions
from palestra.envs.web.base import TURN_MS, WebEnv
from palestra.envs.webarena import evaluators, verified
from palestra.envs.webarena.sites import LiveSite, live_sites, login_cookies, site_urls
from palestra.envs.webarena.tasks import FILES, ArenaTask, read_tasks
from palestra.errors import BadValue, EnvFailed

MAX_TURNS = 30
SIZE = (1280, 720)


@dataclass(slots=True)
class ArenaStart:
    """A task's start pages. An episode can be started only once, because its changes to the sites are permanent."""

    urls: tuple[str, ...]
    addresses: tuple[str, ...]
    cookies: list[dict[str, Any]]
    opened: bool = field(default=False)

    @property
    def label(self) -> None:
        return None

    @property
    def size(self) -> tuple[int, int]:
        return SIZE

    def sites(self) -> Mapping[str, Site]:
        return live_sites(self.addresses)

    def open(self, context: Context) -> None:
        if self.opened:
            raise EnvFailed(
                "a WebArena episode cannot be forked, or repeated after the browser was lost, because its changes to "
                "the sites are permanent"
            )
        self.opened = True
        if self.cookies:
            params = {"cookies": self.cookies, "browserContextId": context.context_id}
            context.connection.call("Storage.setCookies", params, timeout=CALL_SECONDS)
        for place, url in enumerate(self.urls):
            if place:
                context.open_tab()
            error = context.tab.navigate(url)
            if error is not None:
                raise EnvFailed(f"{url} did not load: {error}")
        context.select_tab(0)


class EpisodePages(evaluators.Pages):
    """The pages of an episode; other pages are loaded in a new tab, which is closed afterwards."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self.url = context.tab.url

    def read(self, url: str | None, scripts: list[str]) -> str:
        context = self._context
        before = context.current
        if url is not None:
            context.open_tab()
            context.tab.navigate(url)
            observe(context, View(), milliseconds=TURN_MS)
        try:
            value = ""
            for script in scripts:
                value = str(context.tab.evaluate(script) or "")
            return value
        except (ScriptError, ProtocolError):  # the page has no such element
            return ""
        finally:
            if url is not None:
                context.close_tab()
                context.select_tab(before)


class WebArena(WebEnv):
    """WebArena's tasks on your own copies of its sites.

    `urls` are the addresses of the sites by name (shopping, shopping_admin, reddit, gitlab, map, wikipedia, homepage),
    by default those in WebArena's environment variables (SHOPPING and so on). `dataset` is "original" or "verified";
    `tasks` is a file in the same format instead of the one in the package. Only tasks whose sites have an address are
    sampled; `task` or `reset(options={"task": 12})` selects one by its number. `auth` is the folder with the logins
    that WebArena's `auto_login.py` wrote. `judge` is a function, or its name "module:function", that compares an
    answer with a reference: `judge(question, reference, answer) -> bool`; without it, tasks that need a judge are not
    sampled. The sites are not reset, so a task that changes them can affect later tasks.
    """

    filters_tasks = False
    shared = WebEnv.shared | {"tasks", "urls", "judge"}

    def __init__(
        self,
        *,
        dataset: str = "original",
        urls: Mapping[str, str] | None = None,
        tasks: str | None = None,
        task: int | None = None,
        auth: str | None = None,
        judge: str | Callable[[str, str, str], bool] | None = None,
        observation: Form = "axtree",
        viewport_only: bool = True,
        max_turns: int = MAX_TURNS,
        **options: Unpack[MultiTurnOptions],
    ) -> None:
        if dataset not in FILES:
            raise BadValue(f"`dataset` must be one of {', '.join(FILES)}; got {dataset!r}")
        self.urls = site_urls(urls)
        super().__init__(observation=observation, viewport_only=viewport_only, max_turns=max_turns, **options)
        self.dataset, self.auth, self.only = dataset, auth, task
        self.judge = _load(judge) if isinstance(judge, str) else judge
        self.tasks = read_tasks(dataset, tasks, self.urls)
        if task is not None:
            self._select(task)
        if not self._playable():
            raise BadValue(f"no task can be played on the sites {', '.join(self.urls)}")

    def _playable(self) -> list[ArenaTask]:
        return [task for task in self.tasks.values() if self.judge is not None or not task.needs_judge]

    def _select(self, number: int) -> ArenaTask:
        task = self.tasks.get(number)
        if task is None:
            raise BadValue(
                f"there is no task {number} on the sites {', '.join(self.urls)}; pass the addresses of others"
            )
        if task.needs_judge and self.judge is None:
            raise BadValue(f"the answer to task {number} is compared by a language model; pass `judge`")
        return task

    def setup(self, options: dict[str, Any]) -> None:
        number = options.pop("task", self.only)
        self.task = self.rng.choice(self._playable()) if number is None else self._select(int(number))

    def task_key(self) -> object:
        return self.dataset, self.task.id

    @property
    def intent(self) -> str:
        return f"{self.task.intent}\n{verified.FORMAT}" if self.dataset == "verified" else self.task.intent

    def about(self) -> str:
        return f" The only sites are: {', '.join(self.urls.values())}"

    def start(self) -> ArenaStart:
        logins = self.task.logins
        if logins and self.auth is None:
            raise BadValue(
                f"task {self.task.id} needs a login on {', '.join(logins)}; pass `auth`, the folder that WebArena's "
                "auto_login.py has written (.auth)"
            )
        cookies = login_cookies(self.auth, logins) if logins and self.auth is not None else []
        return ArenaStart(self.task.start_urls, tuple(self.urls.values()), cookies)

    def reset_info(self) -> dict[str, Any]:
        return {"task": self.task.id, "sites": list(self.task.sites), **super().reset_info()}

    def solved(self, answer: str) -> bool:
        context = self._running().context()
        if self.dataset == "original":
            return evaluators.evaluate(self.task.raw, answer, EpisodePages(context), self.urls, self.judge)
        site = next(site for site in context.sites.values() if isinstance(site, LiveSite))
        return verified.evaluate(self.task, answer, site.requests, self.urls)


def _load(name: str) -> Callable[[str, str, str], bool]:
    module, _, function = name.partition(":")
    try:
        judge: Callable[[str, str, str], bool] = getattr(import_module(module), function)
    except (ImportError, AttributeError) as err:
        raise BadValue(f"`judge` must be a function or its name, module:function; got {name!r}: {err}") from err
    return judge
