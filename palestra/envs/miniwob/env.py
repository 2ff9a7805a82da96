"""MiniWoB environment: one MiniWoB++ task in a real browser, observed as text or as screenshots."""

from __future__ import annotations

from typing import Any, Unpack

from palestra.browser.actions import BadAction, is_action, parse_action
from palestra.browser.episode import Episode
from palestra.browser.executable import find_browser
from palestra.browser.names import is_named_action, name_to_number, number_to_name
from palestra.browser.observation import FORMS, SHAPE_ROLES, Form, PageState, View, brief_tree
from palestra.core import Reset
from palestra.envs.miniwob.experts import EXPERTS
from palestra.envs.miniwob.experts.look import Look
from palestra.envs.miniwob.start import HIDDEN, STATUS, MiniWobStart, _sites
from palestra.envs.miniwob.tasks import task_named
from palestra.envs.multi_turn import MultiTurnEnv, MultiTurnOptions, Outcome
from palestra.errors import BadValue
from palestra.spec import fingerprint
from palestra.types import Observation, Step

EXAMPLE = "click [12]"
NAMED = "Instead of [id] you may write the element's name, or its role if it has no name: click Submit.\n"
TURN_MS = 1000.0  # milliseconds by which the page's clock advances per turn
SCREEN = (160, 210)  # width and height of a task in pixels
WORDS = ("a", "1", "hello")  # texts that the random player types, in addition to words from the task


class MiniWob(MultiTurnEnv):
    """A MiniWoB++ task (Liu et al. 2018), solved if the page's reward reaches a threshold, which is 1 for most tasks.

    `task` is MiniWoB's name ("click-button") or the name in the env id ("ClickButton"). `observation` is "axtree"
    (WebArena's accessibility tree), "html" or "screenshot" (an image, in which numbered boxes mark the elements unless
    `marks` is False). `coordinates` adds positions to the tree. `brief` is a short form for models that are trained
    from scratch: every observation consists of the task and the page, without the list of actions, the tabs, the root
    of the tree, quotation marks and properties that are false, so an agent needs only the latest observation. With
    `names`, an action may give an element's name instead of its number (`click Submit`), and the expert does so. With
    `partial_credit`, a failed episode earns the page's reward if it is between 0 and 1. The episode ends after
    `time_limit` seconds on the page's clock, which every action advances by one second; None means no limit.

    Differences from the package: the page has its own clock, so that an episode depends only on its seed and its
    actions, and the reward does not decrease with time. A seed generates the same problem as in MiniWoB.
    """

    inline = False
    shared = MultiTurnEnv.shared | {"task", "view"}
    filters_tasks = False  # a task is known only after its page has been loaded, so there are no splits

    def __init__(
        self,
        *,
        task: str = "click-button",
        observation: Form = "axtree",
        coordinates: bool = False,
        marks: bool = True,
        brief: bool = False,
        names: bool = False,
        partial_credit: bool = False,
        time_limit: float | None = None,
        max_turns: int | None = None,
        **options: Unpack[MultiTurnOptions],
    ) -> None:
        self.task = task_named(task)
        super().__init__(max_turns=self.task.turns if max_turns is None else max_turns, **options)
        if observation not in FORMS:
            raise BadValue(f"`observation` must be one of {', '.join(FORMS)}; got {observation!r}")
        if time_limit is not None and not time_limit > 0:
            raise BadValue(f"`time_limit` must be a positive number of seconds or None, got {time_limit!r}")
        self.view = View(form=observation, coordinates=coordinates, marks=marks, boxes=True, hidden=HIDDEN, clip=SCREEN)
        self.brief = bool(brief)
        self.names = bool(names)
        self.partial_credit = bool(partial_credit)
        self.limit_ms = 1e9 if time_limit is None else 1000.0 * time_limit
        self._episode: Episode | None = None
        self.expert_peeks = self.task.expert_peeks
        find_browser()  # raises an error if no browser is installed
        _sites()

    # The episode

    def setup(self, options: dict[str, Any]) -> None:
        self.page_seed = int(options.pop("page_seed", self.task_seed))

    def task_key(self) -> object:
        return self.task.name, self.page_seed

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        self.close()
        prompt, info = super().reset(seed, options)
        return self._with_image(str(prompt)), info

    def reset_info(self) -> dict[str, Any]:
        self._open()
        shown = [(node.role, node.name, node.props) for node in self.state.nodes]
        self.task_id = fingerprint((self.task.name, self.goal, shown))  # several seeds may give the same page
        info = {"task": self.task.name, "goal": self.goal, "page_seed": self.page_seed}
        return {**info, "task_id": self.task_id}

    def _open(self) -> None:
        start = MiniWobStart(self.task.name, self.page_seed, self.task.reload, self.limit_ms)
        self._episode = Episode(start, self.view, milliseconds=TURN_MS, extra=STATUS)
        utterance = self.state.extra[2]  # some tasks also list the fields of the utterance
        self.goal = str(utterance["utterance"] if isinstance(utterance, dict) else utterance)

    @property
    def state(self) -> PageState:
        """The page in the latest observation."""
        return self._running().state

    def _running(self) -> Episode:
        if self._episode is None:  # the env was closed during the episode
            raise BadValue("this env was closed; call reset() to start an episode")
        return self._episode

    def prompt(self) -> str:
        if self.brief:
            return self._page()
        what = {
            "axtree": "The page is shown as an accessibility tree, one element per line: [id] role 'name' properties.",
            "html": "The page is shown as HTML; the bid attribute of an element is its id.",
            "screenshot": "The page is shown as a screenshot; the number of the box around an element is its id.",
        }[self.view.form]
        return (
            f"You use a web page to solve a task. {what}\n"
            "Actions:\n"
            "- click [id], dblclick [id], hover [id]\n"
            "- type [id] [text] [1]: type into a field and press Enter; with [0], do not press Enter\n"
            "- fill [id] [text]: replace the content of a field\n"
            "- select [id] [option]: choose an option in a list\n"
            "- press [keys]: for example press [Enter] or press [Control+a]\n"
            "- drag [id] [id]: drag the first element to the second\n"
            "- mouse_click [x] [y], mouse_drag [x] [y] [x] [y]: positions in pixels\n"
            "- select_text [id] [start] [end]: select the characters between two positions in a text\n"
            "- scroll [up] or scroll [down], wait [seconds]\n"
            "Calls such as click('12') and fill('12', 'text') are accepted as well.\n"
            f"{NAMED if self.names else ''}"
            f"Write one action per turn, for example: {EXAMPLE}\n"
            "You may think first; write the action on the last line of your reply, or after `Action:`. "
            f"You have {self.max_turns} turns.\n\n"
            f"Task: {self.goal}\n\n{self._page()}"
        )

    def _page(self) -> str:
        form = self.view.form
        if self.brief:
            page = brief_tree(self.state.nodes) if form == "axtree" else self.state.html
            return "\n".join([*self.state.messages, self.goal, *([page] if page else [])])
        return "The page:\n" + ("" if form == "screenshot" else self.state.text(form))

    def can_read(self, action: str) -> bool:
        return is_action(action) or (self.names and is_named_action(action))

    def act(self, action: str) -> Outcome:
        episode = self._running()
        if self.names:
            try:
                action = name_to_number(action, self.state.nodes)
            except BadAction as err:
                return Outcome(f"{err}\n{self._page()}", invalid="rule")
        try:
            command = parse_action(action)
            if command.name in ("stop", "goto", "go_back", "go_forward", "new_tab", "tab_focus", "close_tab"):
                raise BadAction(f"{command.name} is not available in this task.")
        except BadAction as err:
            return Outcome(f"{err}\n{self._page()}", invalid="format")
        try:
            state = episode.perform(command)
        except BadAction as err:
            if not episode.state.extra[0]:
                return Outcome(f"{err}\n{self._page()}", invalid="rule")
            state = episode.state
        done, raw, _ = state.extra
        if not done:
            return Outcome(self._page())
        solved = raw >= self.task.threshold
        reward = 1.0 if solved else min(max(float(raw), 0.0), 1.0) if self.partial_credit else 0.0
        text = "The task is solved." if solved else "The task has ended; it was not solved."
        return Outcome(text, reward, "solved" if solved else "lost", info={"raw_reward": raw})

    def step(self, action: str) -> Step:
        step = super().step(action)
        return step._replace(observation=self._with_image(str(step.observation)))

    def _with_image(self, text: str) -> Observation:
        if self.view.form != "screenshot" or self.ending is not None:
            return text
        return [{"type": "text", "text": text}, {"type": "image", "image": self.state.image}]

    def close(self) -> None:
        episode, self._episode = self._episode, None
        if episode is not None:
            episode.release()

    def render(self, mode: str = "text") -> str | bytes | None:
        """Return the task and the page as text, or as a PNG image."""
        if mode == "image":
            return self._running().context().tab.screenshot({"x": 0, "y": 0, "width": SCREEN[0], "height": SCREEN[1]})
        return f"Task: {self.goal}\n{self.state.text()}" if mode == "text" else None

    # Players

    def example_action(self) -> str:
        return EXAMPLE

    def sample_random_action(self) -> str:
        rng = self.player_rng
        nodes = [node for node in self.state.nodes if node.active or node.role in SHAPE_ROLES]
        if not nodes:
            nodes = list(self.state.nodes)
        node = rng.choice(nodes)
        if node.role in ("textbox", "searchbox", "spinbutton"):
            words = [word.strip("\"'.,:!?") for word in self.goal.split()]
            return f"type [{node.number}] [{rng.choice([*words, *WORDS]) or 'a'}] [0]"
        if node.role in SHAPE_ROLES and rng.random() < 0.3:
            return f"drag [{node.number}] [{rng.choice(nodes).number}]"
        return f"click [{node.number}]"

    def expert_action(self) -> str | None:
        expert = EXPERTS.get(self.task.name)
        episode = self._running()
        if expert is None:
            return None
        action = expert(Look(self.goal, episode.state.nodes, tuple(episode.commands)))
        return number_to_name(action, episode.state.nodes) if self.names else action
