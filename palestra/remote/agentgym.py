"""Use environments on servers with AgentGym's protocol, with URLs like `agentgym+http://host:port`."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Any

from palestra.core import Reset
from palestra.errors import BadValue, EnvFailed
from palestra.parsing import react_action
from palestra.remote.adapter import AdapterEnv
from palestra.remote.json_http import ErrorResponse, JsonHttpClient, base_url
from palestra.types import Step

TASKS = {  # number of AgentGym's training tasks per family
    "babyai": 810,
    "textcraft": 374,
    "sciworld": 2_120,
    "searchqa": 221_328,
    "webshop": 3_930,
}
BY_ENV_IDX = frozenset({"searchqa", "webshop"})  # families whose requests contain the environment number as env_idx
BY_SCORE = {"babyai": 1.0, "sciworld": 100.0}  # family that reports a cumulative score -> maximum score
_SPECIAL_CHARACTERS = re.compile(r"[^A-Za-z0-9, ]+")


class AgentGymEnv(AdapterEnv):
    """Environment on an AgentGym server. `family` defaults to the last part of the URL's path.

    The seed selects task `seed % data_len`, and `reset(options={"data_idx": 7})` selects a task by number. The server
    determines the rewards. For families that report a cumulative score, the reward is the change in the score, scaled
    so that the maximum score is 1. As in AgentGym's clients, the action is the part of a model's reply after `Action:`.
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
        base = base_url(url, "agentgym")
        self.family = family or base.rpartition("/")[2]
        if self.family not in TASKS:
            raise BadValue(f"family must be one of {', '.join(TASKS)}; got {self.family!r}")
        if data_len is not None and (isinstance(data_len, bool) or data_len < 1):
            raise BadValue(f"data_len must be a positive integer, got {data_len!r}")
        self.data_len = data_len or TASKS[self.family]
        self._http = JsonHttpClient(base, token, timeout)
        self._number: int | None = None  # number of the environment on the server
        self._score = 0.0
        try:
            self._open()
        except BaseException:
            self._http.close()
            raise

    # Episodes.

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        left = dict(options or {})
        task = left.pop("data_idx", None)
        if left:
            raise BadValue(f"AgentGym environments accept only the data_idx option, got {', '.join(map(str, left))}")
        if task is not None and (isinstance(task, bool) or not isinstance(task, int) or task < 0):
            raise BadValue(f"data_idx must be a non-negative integer, got {task!r}")
        if task is not None and seed is None:
            seed = task % self.data_len
        seed = self.start_episode(seed)
        number = seed % self.data_len if task is None else task
        if self._number is None:
            self._open()
        name = {"searchqa": "id", "webshop": "session_id"}.get(self.family, "data_idx")
        response = self._request("reset", {name: number})
        if self.family == "searchqa":
            text = self._text_of(response)
        elif self.family == "webshop":
            text = self._text_of(self._get("observation"))
        else:
            text = self._field(response, "observation", str)
            if self.family == "sciworld":
                text = f"{self._field(response, 'task_description', str)}\n{text}"
        self._score = 0.0
        self._started()
        return text, {"seed": seed, "data_idx": number}

    def step(self, action: str) -> Step:
        self._check_running(action)
        response = self._request("step", {"action": self._action_of(action)})
        text = self._field(response, "state" if self.family == "webshop" else "observation", str)
        done = self._field(response, "done", bool)
        whole = BY_SCORE.get(self.family)
        if whole is None:
            reward = float(self._field(response, "reward", int, float))
        else:
            score = float(self._field(response, "score", int, float)) / whole
            reward, self._score = score - self._score, score
        return self._step_result(text, reward, done, {})

    def close(self) -> None:
        number, self._number = self._number, None
        self._state = "reset"
        if number is not None:
            with suppress(EnvFailed, BadValue):  # some AgentGym servers do not implement `close`
                self._http.request("POST", "close", {self._key: number}, timeout=min(5.0, self._http.timeout))
        self._http.close()

    def _action_of(self, reply: str) -> str:
        """Return the action that AgentGym's client would extract from a model's reply."""
        if self.family == "searchqa":
            return reply
        action = (react_action(reply) or reply).strip()
        return " ".join(_SPECIAL_CHARACTERS.sub("", action).split()) if self.family == "textcraft" else action

    # Requests to the server.

    @property
    def _key(self) -> str:
        return "env_idx" if self.family in BY_ENV_IDX else "id"

    def _open(self) -> None:
        body = {"textcraft": {"commands": None, "goal": None}, "searchqa": {"id": 0}}.get(self.family)
        response = self._http.request("POST", "create", body)
        number = response if self.family in BY_ENV_IDX else self._field(response, "id", int)
        if isinstance(number, bool) or not isinstance(number, int):
            raise EnvFailed(f"{self._http.server}/create returned {str(response)[:200]!r} instead of an id")
        self._number = number

    def _request(self, path: str, body: dict[str, Any]) -> Any:
        try:
            response = self._http.request("POST", path, {**body, self._key: self._number})
            # AgentGym servers return errors with HTTP status 200.
            if isinstance(response, dict) and "error" in response:
                raise ErrorResponse(f"{self._http.server}/{path} returned an error: {str(response['error'])[:300]}")
        except BaseException as err:
            self._abandon(responsive=isinstance(err, ErrorResponse))
            raise
        return response

    def _get(self, path: str) -> Any:
        try:
            return self._http.request("GET", f"{path}?{self._key}={self._number}")
        except BaseException:
            self._abandon(responsive=False)
            raise

    def _drop_episode(self) -> None:
        self._abandon(responsive=True)

    def _abandon(self, *, responsive: bool) -> None:
        """Stop using the environment, and close it if the server still responds. The next `reset` creates a new one."""
        if responsive:
            self.close()
        self._http.close()
        self._number = None
        self._state = "failed"

    def _field(self, response: Any, name: str, *kinds: type) -> Any:
        value = response.get(name) if isinstance(response, dict) else None
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            self._abandon(responsive=False)
            raise EnvFailed(f"{self._http.server} returned a response without a valid {name!r}: {str(response)[:200]}")
        return value

    def _text_of(self, response: Any) -> str:
        if not isinstance(response, str):
            self._abandon(responsive=False)
            raise EnvFailed(f"{self._http.server} returned {str(response)[:200]!r} instead of an observation")
        return response
