"""Browser tool: the model uses sites in a real browser while it works on another task."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from palestra.browser.actions import BadAction, parse_action
from palestra.browser.context import Context
from palestra.browser.episode import Episode
from palestra.browser.executable import find_browser
from palestra.browser.observation import View
from palestra.browser.sites import FolderSite, PortSite, Site
from palestra.tools.base import BadCall, Tool

if TYPE_CHECKING:
    from palestra.tools.search.corpus import Corpus

DEFAULT_HOST = "site.test"
PAGES = " (pages with a search field)"
TURN_MS = 1000.0


@dataclass(frozen=True, slots=True)
class BrowsingStart:
    """The first page of one of the sites."""

    addresses: tuple[tuple[str, str | int | Corpus], ...]  # host name, and a folder, a local port or a corpus
    url: str

    @property
    def label(self) -> None:
        return None

    @property
    def size(self) -> tuple[int, int]:
        return 1280, 720

    def sites(self) -> Mapping[str, Site]:
        return {host: make_site(place) for host, place in self.addresses}

    def open(self, context: Context) -> None:
        context.tab.navigate(self.url)


def make_site(place: str | int | Corpus) -> Site:
    """Return the site in a folder, on a port of this machine, or with the pages of a corpus ("": the encyclopedia)."""
    if isinstance(place, int):
        return PortSite(place)
    if isinstance(place, str) and place:
        return FolderSite(place)
    from palestra.tools.search.site import CorpusSite

    return CorpusSite(None if isinstance(place, str) else place)


def _has_own_pages(place: str | int | Corpus) -> bool:
    return isinstance(place, int) or (isinstance(place, str) and place != "")


def _place(place: str | int | Path | Corpus) -> str | int | Corpus:
    """Return a folder as text, and the text of a number as the port."""
    if not isinstance(place, str | int | Path):
        return place
    return int(str(place)) if str(place).isdigit() else str(place)


class BrowserTool(Tool):
    """Opens pages in a browser and acts on them."""

    name = "browser"
    tag = "browser"
    body = "action"
    example: Mapping[str, Any] | None = {"action": "click [12]"}

    def __init__(
        self,
        site: str | Corpus = "",
        *,
        sites: Mapping[str, str | int | Path | Corpus] | None = None,
        viewport_only: bool = True,
    ) -> None:
        """Create the tool.

        `site` is the folder of a static site or a port of this machine, as in `tools=["browser:/srv/site"]`, or a
        Corpus, whose pages get a search field, and becomes http://site.test/. `sites` maps host names to folders, ports
        and corpora. Without both, the site is the corpus of the environment, or the built-in encyclopedia. No other
        address can be reached.
        """
        addresses: dict[str, str | int | Path | Corpus] = dict(sites or {})
        if site != "" or not addresses:
            addresses = {DEFAULT_HOST: site, **addresses}
        self.addresses = tuple((host.lower(), _place(place)) for host, place in addresses.items())
        for _, place in self.addresses:
            make_site(place)  # raises an error for a folder that does not exist
        find_browser()
        self.view = View(viewport_only=viewport_only)
        hosts = ", ".join(f"http://{host}/{'' if _has_own_pages(place) else PAGES}" for host, place in self.addresses)
        self.description = (
            f"Use a web browser. The sites are {hosts}. Actions: goto [url], click [id], type [id] [text] [1] (1 "
            "presses Enter), select [id] [option], scroll [down], go_back, new_tab, tab_focus [index], close_tab. The "
            "result is the page as an accessibility tree, in which elements have ids."
        )

    def open(self, *, seed: int) -> BrowserTool:  # noqa: ARG002  # pages do not depend on the seed
        return _EpisodeBrowserTool(self)

    def call(self, action: str) -> str:  # noqa: ARG002
        """action: the action to take, for example goto [http://site.test/]"""
        raise BadCall("the browser is not open")


class _EpisodeBrowserTool(BrowserTool):
    """Browser tool for one episode, with its open tabs."""

    def __init__(self, tool: BrowserTool) -> None:
        self.addresses = tool.addresses
        self.view = tool.view
        self.description = tool.description
        self._episode: Episode | None = None

    def call(self, action: str) -> str:
        """action: the action to take, for example goto [http://site.test/]"""
        try:
            command = parse_action(action)
            if command.name == "stop":
                raise BadAction("stop is not available in the browser tool; write your answer instead.")
            if self._episode is None:
                start = BrowsingStart(self.addresses, f"http://{self.addresses[0][0]}/")
                self._episode = Episode(start, self.view, milliseconds=TURN_MS)
            state = self._episode.perform(command)
        except BadAction as err:
            raise BadCall(str(err)) from None
        return f"{state.text()}\nURL: {state.url}"

    def close(self) -> None:
        episode, self._episode = self._episode, None
        if episode is not None:
            episode.release()

    def fork(self) -> Self:
        copied = object.__new__(type(self))
        copied.__dict__.update(self.__dict__)
        if self._episode is not None:
            copied._episode = self._episode.__deepcopy__({})
        return copied
