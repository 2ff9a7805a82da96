"""AgentGym's client for WebArena, copied from agentenv/envs/webarena.py (MIT License, (c) 2023 FudanNLP-Agent).

The prompt and the base class, which the requests do not depend on, are left out; annotations were added.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import requests
from requests.exceptions import RequestException


@dataclass
class StepOutput:
    state: str
    reward: float
    done: bool


class WebarenaEnvClient:
    def __init__(self, env_server_base: str, data_len: int, *, timeout: int = 300) -> None:
        self.env_server_base = env_server_base
        self.timeout = timeout
        self.data_len = data_len

        ok = requests.post(
            f"{self.env_server_base}/create",
            timeout=self.timeout,
        )
        if ok.status_code != 200:
            raise RequestException(f"Failed to create environment: {ok}")

        self.env_id = ok.json()["env_idx"]

    def __len__(self) -> int:
        return self.data_len

    def _post(self, path: str, data: dict[str, Any]) -> dict[str, Any]:
        data["env_idx"] = self.env_id
        res = requests.post(
            f"{self.env_server_base}/{path}",
            json=data,
            timeout=self.timeout,
        )
        assert res.status_code == 200
        reply: dict[str, Any] = res.json()
        return reply

    def _get(self, path: str) -> dict[str, Any]:
        res = requests.get(
            f"{self.env_server_base}/{path}?env_idx={self.env_id}",
            timeout=self.timeout,
        )
        assert res.status_code == 200
        reply: dict[str, Any] = res.json()
        return reply

    def observe(self) -> dict[str, Any]:
        return self._get("observation")

    def step(self, action: str) -> StepOutput:
        # action is the original output of llm
        _action = re.findall(r"```(.*?)```", action, re.DOTALL)
        if len(_action) == 0:
            return StepOutput(
                state="Cannot parse action from response. Your action should be inside triple backticks (```). "
                "Please adjust accordingly.",
                reward=0,
                done=False,
            )
        response = self._post("step", {"action": action})
        reward = response["reward"] if response["terminated"] else 0
        return StepOutput(
            state=response["observation"],
            reward=reward,
            done=response["terminated"],
        )

    def reset(self, idx: int) -> dict[str, Any]:
        response = self._post("reset", {"seed": 0, "idx": idx})
        if response["observation"] == "TimeoutError":
            raise TimeoutError(f"WebArena Reset Timeout: item id={idx}, you may consider restarting the web server.")
        return response

    def close(self) -> dict[str, Any]:
        return self._post("close", {})
