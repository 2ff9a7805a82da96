"""`agentgym+http://host:port` -> an environment on a server of AgentGym's, or on one that speaks as they do."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Any

from palestra.core import Reset
from palestra.errors import BadValue, EnvFailed
from palestra.parsing import react_action
from palestra.remote.adapter import ForeignEnv
from palestra.remote.adapter_http import Answered, Wire, base_of
from palestra.types import Step

TASKS = {  # family -> how many tasks a seed is drawn from: what AgentGym trains on
    "babyai": 810,
    "textcraft": 374,
    "sciworld": 2_120,
    "searchqa": 221_328,
    "webshop": 3_930,
}
BY_ENV_IDX = frozenset({"searchqa", "webshop"})  # families that call an environment's number env_idx
BY_SCORE = {"babyai": 1.0, "sciworld": 100.0}  # families that tell the score so far, and what is a whole one
_NO_WORDS = re.compile(r"[^A-Za-z0-9, ]+")


def make_agentgym(url: str, **kwargs: Any) -> AgentGymEnv:
    """The environment at `url`; keywords are AgentGymEnv's."""
    return AgentGymEnv(url, **kwargs)


class AgentGymEnv(ForeignEnv):
    """One environment of a server of AgentGym's, of `family`; left out, it is what the address ends with.

    The seed names a task: number `seed % data_len`; `reset(options={"data_idx": 7})` names one itself. Rewards are
    AgentGym's, or the changes of its score where it tells one, a whole success being 1. An action is read out of a
    reply as AgentGym's clients do: what follows `Action:`.
    """

    def __init__(
        self,
        url: str,
        *,
        family: str | None = None,
        data_len: int | None = None,
        max_turns: int | None = None,
        timeout: float = 300.0,
        token: str | None = None,
    ) -> None:
        super().__init__(max_turns=max_turns)
        base = base_of(url, "agentgym")
        self.family = family or base.rpartition("/")[2]
        if self.family not in TASKS:
            raise BadValue(f"family is one of {', '.join(TASKS)}, got {self.family!r}")
        if data_len is not None and (isinstance(data_len, bool) or data_len < 1):
            raise BadValue(f"data_len is a whole number from 1 up, got {data_len!r}")
        self.data_len = data_len or TASKS[self.family]
        self._wire = Wire(base, token, timeout)
        self._number: int | None = None  # what the server calls our environment
        self._score = 0.0
        try:
            self._open()
        except BaseException:
            self._wire.close()
            raise

    # The episode.

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        left = dict(options or {})
        task = left.pop("data_idx", None)
        if left:
            raise BadValue(f"AgentGym's environments know the option data_idx, not {', '.join(map(str, left))}")
        if task is not None and (isinstance(task, bool) or not isinstance(task, int) or task < 0):
            raise BadValue(f"data_idx is a whole number from 0 up, got {task!r}")
        if task is not None and seed is None:
            seed = task % self.data_len
        seed = self.start_episode(seed)
        number = seed % self.data_len if task is None else task
        if self._number is None:
            self._open()
        name = {"searchqa": "id", "webshop": "session_id"}.get(self.family, "data_idx")
        answer = self._ask("reset", {name: number})
        if self.family == "searchqa":
            text = self._word(answer)
        elif self.family == "webshop":
            text = self._word(self._look("observation"))
        else:
            text = self._field(answer, "observation", str)
            if self.family == "sciworld":
                text = f"{self._field(answer, 'task_description', str)}\n{text}"
        self._score = 0.0
        self._begun()
        return text, {"seed": seed, "data_idx": number}

    def step(self, action: str) -> Step:
        self._check_running(action)
        answer = self._ask("step", {"action": self._said(action)})
        text = self._field(answer, "state" if self.family == "webshop" else "observation", str)
        done = self._field(answer, "done", bool)
        whole = BY_SCORE.get(self.family)
        if whole is None:
            reward = float(self._field(answer, "reward", int, float))
        else:
            score = float(self._field(answer, "score", int, float)) / whole
            reward, self._score = score - self._score, score
        return self._stepped(text, reward, done, {})

    def close(self) -> None:
        number, self._number = self._number, None
        self._state = "reset"
        if number is not None:
            with suppress(EnvFailed, BadValue):  # several of AgentGym's servers have no close
                self._wire.ask("POST", "close", {self._key: number}, timeout=min(5.0, self._wire.timeout))
        self._wire.close()

    def _said(self, reply: str) -> str:
        """What AgentGym's client would send."""
        if self.family == "searchqa":
            return reply
        action = (react_action(reply) or reply).strip()
        return " ".join(_NO_WORDS.sub("", action).split()) if self.family == "textcraft" else action

    # The server.

    @property
    def _key(self) -> str:
        return "env_idx" if self.family in BY_ENV_IDX else "id"

    def _open(self) -> None:
        body = {"textcraft": {"commands": None, "goal": None}, "searchqa": {"id": 0}}.get(self.family)
        made = self._wire.ask("POST", "create", body)
        number = made if self.family in BY_ENV_IDX else self._field(made, "id", int)
        if isinstance(number, bool) or not isinstance(number, int):
            raise EnvFailed(f"{self._wire.where}/create answers {str(made)[:200]!r}, which is no environment's number")
        self._number = number

    def _ask(self, what: str, body: dict[str, Any]) -> Any:
        try:
            answer = self._wire.ask("POST", what, {**body, self._key: self._number})
            if isinstance(answer, dict) and "error" in answer:  # with status 200, as AgentGym's servers do
                raise Answered(f"{self._wire.where}/{what} answers: {str(answer['error'])[:300]}")
        except BaseException as err:
            self._give_up(told=isinstance(err, Answered))
            raise
        return answer

    def _look(self, what: str) -> Any:
        try:
            return self._wire.ask("GET", f"{what}?{self._key}={self._number}")
        except BaseException:
            self._give_up(told=False)
            raise

    def _give_up(self, *, told: bool) -> None:
        """Whatever the environment there is at now, the next episode gets another. `told`: the server still talks."""
        if told:
            self.close()
        self._wire.close()
        self._number = None
        self._state = "failed"

    def _field(self, answer: Any, name: str, *kinds: type) -> Any:
        value = answer.get(name) if isinstance(answer, dict) else None
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            self._give_up(told=False)
            raise EnvFailed(f"{self._wire.where} answers without {name!r}: {str(answer)[:200]}")
        return value

    def _word(self, answer: Any) -> str:
        if not isinstance(answer, str):
            self._give_up(told=False)
            raise EnvFailed(f"{self._wire.where} answers {str(answer)[:200]!r}, which is no observation")
        return answer
