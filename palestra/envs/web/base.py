"""WebEnv: base class for environments in which an agent carries out tasks on sites in a real browser."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Unpack

from palestra.browser.actions import BadAction, is_action, parse_action
from palestra.browser.episode import Episode, Start
from palestra.browser.executable import find_browser
from palestra.browser.observation import Form, PageState, View
from palestra.core import Reset
from palestra.envs.multi_turn import MultiTurnEnv, MultiTurnOptions, Outcome
from palestra.errors import BadValue
from palestra.types import Observation, Step

EXAMPLE = "click [12]"
TURN_MS = 1000.0
ANSWER_EXAMPLE = "stop [your answer]"
STOP_RATE = 0.05  # how often the random player ends the task


class WebEnv(MultiTurnEnv):
    """A subclass samples a task in `setup`, returns how its episode starts, and grades its end."""

    inline = False
    shared = MultiTurnEnv.shared | {"view"}

    def __init__(
        self,
        *,
        observation: Form = "axtree",
        viewport_only: bool = True,
        max_turns: int,
        **options: Unpack[MultiTurnOptions],
    ) -> None:
        super().__init__(max_turns=max_turns, **options)
        self.view = View(form=observation, viewport_only=viewport_only)
        self._episode: Episode | None = None
        find_browser()

    @abstractmethod
    def start(self) -> Start:
        """Return how the episode of the current task starts."""

    @abstractmethod
    def solved(self, answer: str) -> bool:
        """Return whether the current state and the answer satisfy all of the task's criteria."""

    @property
    @abstractmethod
    def intent(self) -> str:
        """Instruction for the agent."""

    def about(self) -> str:
        """Return a sentence about the sites, for the prompt."""
        return ""

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        self.close()
        prompt, info = super().reset(seed, options)
        return self._with_image(str(prompt)), info

    def reset_info(self) -> dict[str, Any]:
        self._episode = Episode(self.start(), self.view, milliseconds=TURN_MS)
        return {"goal": self.intent}

    def prompt(self) -> str:
        return (
            "You use a web browser to carry out a task. Every observation lists the open tabs and then shows the "
            "current page, in which each element has an id.\nActions:\n"
            "- click [id], hover [id], select [id] [option]\n"
            "- type [id] [text] [1]: type into a field and press Enter; with [0], do not press Enter\n"
            "- fill [id] [text]: replace the content of a field\n"
            "- press [keys], scroll [up], scroll [down]\n"
            "- goto [url], go_back, go_forward, new_tab, tab_focus [index], close_tab\n"
            f"- {ANSWER_EXAMPLE}: end the task, with the answer if it is a question, or with N/A if it is impossible\n"
            f"Write one action per turn, for example: {EXAMPLE}\n"
            "You may think first; write the action on the last line of your reply, or after `Action:`. "
            f"You have {self.max_turns} turns.{self.about()}\n\nTask: {self.intent}\n\n{self._page()}"
        )

    @property
    def state(self) -> PageState:
        """The page as it was observed last."""
        return self._running().state

    def _page(self) -> str:
        state = self._running().state
        body = "" if self.view.form == "screenshot" else state.text(self.view.form)
        return f"{body}\nURL: {state.url}"

    def _running(self) -> Episode:
        if self._episode is None:
            raise BadValue("this env was closed; call reset() to start an episode")
        return self._episode

    def can_read(self, action: str) -> bool:
        return is_action(action)

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
        if not nodes or rng.random() < STOP_RATE:
            return "stop [N/A]"
        node = rng.choice(nodes)
        if node.role in ("textbox", "searchbox"):
            return f"type [{node.number}] [{rng.choice(self.intent.split())}] [1]"
        return f"click [{node.number}]"
