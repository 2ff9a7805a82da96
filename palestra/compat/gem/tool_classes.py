"""GEM's tools and the wrapper that runs them: `PythonCodeTool`, `SearchTool` and `ToolEnvWrapper`.

Programs run in Palestra's sandbox. A search server that cannot be reached raises ToolFailed, so that its failure does
not become an observation with a reward.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Sequence
from typing import Any

from palestra.compat.gem.base import EnvWrapper
from palestra.core import Env, Reset
from palestra.errors import BadValue
from palestra.tools.sandbox import Limits, shared_sandbox
from palestra.types import Step, text_of

# Whether there is a call, whether it failed, the observation, and the action up to the call.
Execution = tuple[bool, bool, str, str]
_PYTHON = (re.compile(r"<python>(.*?)</python>", re.DOTALL), re.compile(r"```\n?python(.*?)```", re.DOTALL))
_SEARCH = re.compile(r"<search>(.*?)</search>", re.DOTALL)


class BaseTool:
    """Base class of tools written for GEM."""

    tool_type = "base"

    def __init__(self, num_workers: int = 1) -> None:
        self.num_workers = num_workers

    @property
    def name(self) -> str:
        """Name of the tool, for messages."""
        return self.tool_type

    def instruction_string(self) -> str:
        """Return instructions for the model."""
        raise TypeError(f"{type(self).__name__} does not define instruction_string()")

    def execute_action(self, action: str) -> Execution:  # noqa: ARG002
        """Run the first call in the action.

        Returns whether there is one, whether it failed, the observation, and the action up to the end of the call.
        """
        raise TypeError(f"{type(self).__name__} does not define execute_action(action)")


def run_python(
    code: str, sandbox_type: str = "bwrap", stdin: str | None = None, timeout: float = 10
) -> tuple[bool, str, str]:
    """Run a program in Palestra's sandbox, whatever `sandbox_type` is; return success, output and errors."""
    del sandbox_type
    limits = Limits(wall=float(timeout), cpu=float(timeout))
    result = shared_sandbox().run(code, stdin=stdin or "", limits=limits)
    errors = result.stderr.strip()
    if result.limit == "time":
        errors = f"Execution timed out after {timeout:g} seconds."
    elif result.limit is not None:
        errors = f"{errors}\nThe program exceeded its limit on {result.limit}.".strip()
    return result.ok, result.stdout, errors


class PythonCodeTool(BaseTool):
    """Runs the first program in the action, in `<python>` tags or a fenced block."""

    tool_type = "python_code"

    def __init__(self, timeout: float = 5, sandbox_type: str = "bwrap", keep_error_last_line: bool = False) -> None:
        super().__init__()
        self.timeout = timeout
        self.sandbox_type = sandbox_type
        self.keep_error_last_line = keep_error_last_line

    def instruction_string(self) -> str:
        return (
            "You can run Python programs. Write a complete program between <python> and </python>, or in a block that "
            "starts with ```python. You will see what it prints after 'Code execution result:'. Write your final "
            "answer inside \\boxed{}."
        )

    def execute_action(self, action: str) -> Execution:
        matches = [match for pattern in _PYTHON if (match := pattern.search(action))]
        if not matches:
            return False, True, "", action
        first = min(matches, key=lambda match: match.end())
        ok, output, errors = run_python(first[1].strip(), self.sandbox_type, timeout=self.timeout)
        if self.keep_error_last_line and errors:
            errors = errors.splitlines()[-1]
        text = f"{output}\n{errors}" if errors else output
        return True, not ok, f"Code execution result: {text.lstrip()}\n", action[: first.end()]


class SearchTool(BaseTool):
    """Sends the first query in `<search>` tags to a search server; the address may be in the variable SEARCH_URL."""

    tool_type = "search"

    def __init__(self, num_workers: int = 1, search_url: str | None = None, topk: int = 3, timeout: float = 5) -> None:
        super().__init__(num_workers)
        self.search_url = search_url
        self.topk = topk
        self.timeout = timeout

    def instruction_string(self) -> str:
        return (
            "You can search for information. Write a query between <search> and </search>; the results appear between "
            "<information> and </information>. You may think between <think> and </think> and search several times. "
            "Write your final answer between <answer> and </answer>."
        )

    def execute_action(self, action: str) -> Execution:
        match = _SEARCH.search(action)
        if match is None:
            return False, True, "", ""
        from palestra.tools.search.client import Retriever

        url = self.search_url or os.environ.get("SEARCH_URL")
        if not url:
            raise BadValue("SearchTool needs the address of a search server: pass search_url=, or set SEARCH_URL")
        hits = Retriever(url, timeout=self.timeout).search(match[1].strip(), self.topk)
        lines = (f"Doc {number}(Title: {hit.passage.title}) {hit.passage.text}\n" for number, hit in enumerate(hits, 1))
        return True, False, "".join(lines), action[: match.end()]


class ToolEnvWrapper(EnvWrapper):
    """Run tool calls in actions, and pass actions without a tool call to the environment.

    The reward for a call is `tool_reward`, plus `tool_success_reward` if the call succeeds. If
    `tool_execute_error_reward` is not 0, it is the reward for a failed call instead. After `max_tool_uses` calls, every
    action is passed to the environment.
    """

    def __init__(
        self,
        env: Env,
        tools: Sequence[BaseTool],
        tool_reward: float = 0.0,
        tool_success_reward: float = 0.0,
        tool_execute_error_reward: float = 0.0,
        max_tool_uses: int | None = 10,
    ) -> None:
        super().__init__(env)
        if tool_execute_error_reward > 0:
            raise ValueError(f"tool_execute_error_reward must not be positive, got {tool_execute_error_reward}")
        if tool_execute_error_reward and (tool_reward or tool_success_reward):
            raise ValueError("tool_execute_error_reward cannot be combined with tool_reward or tool_success_reward")
        self.tools = list(tools)
        self.tool_reward = tool_reward
        self.tool_success_reward = tool_success_reward
        self.tool_execute_error_reward = tool_execute_error_reward
        self.max_tool_uses: float = math.inf if max_tool_uses is None else max_tool_uses
        self.tool_use_counter = 0
        self.tool_success_counter = 0

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        observation, info = self.env.reset(seed=seed, options=options)
        instructions = "\n".join(tool.instruction_string() for tool in self.tools)
        if len(self.tools) > 1:
            instructions = f"Available tools:\n{instructions}"
        info |= {
            "prev_ep_tool_use_counter": self.tool_use_counter,
            "prev_ep_tool_success_counter": self.tool_success_counter,
            "use_tool": False,
        }
        self.tool_use_counter = self.tool_success_counter = 0
        return f"{text_of(observation)}\n{instructions}", {**info, **self._counters()}

    def step(self, action: str, verbose: bool = False) -> Step:
        called: tuple[BaseTool, bool, str, str] | None = None
        if self.tool_use_counter < self.max_tool_uses:
            for tool in self.tools:
                found, failed, observation, parsed = tool.execute_action(action)
                if found:
                    called = (tool, failed, observation, parsed)
                    if not failed:
                        break
        if called is None:
            step = Step(*self.env.step(action))
            return step._replace(info={**step.info, "use_tool": False, **self._counters()})
        tool, failed, observation, parsed = called
        self.tool_use_counter += 1
        if self.tool_use_counter == self.max_tool_uses:
            observation = f"{observation}\n\nYou have used all tool calls. Write your final answer now."
        reward = self.tool_reward
        if not failed:
            self.tool_success_counter += 1
            reward += self.tool_success_reward
        elif self.tool_execute_error_reward:
            reward = self.tool_execute_error_reward
        if verbose:
            print(f"{tool.name}: call {self.tool_use_counter}, {'failed' if failed else 'succeeded'}")
        info = {"parsed_action": parsed, "tool_type": tool.tool_type, "use_tool": True, **self._counters()}
        return Step(observation, reward, False, False, info)

    def _counters(self) -> dict[str, int]:
        return {"tool_use_counter": self.tool_use_counter, "tool_success_counter": self.tool_success_counter}

    def get_state(self) -> dict[str, Any]:
        """Return the state of the episode, for `set_state`."""
        return {**self._inner_state(), **self._counters()}

    def set_state(self, state: dict[str, Any]) -> None:
        """Continue from a state that `get_state` returned."""
        self._set_inner_state(state)
        self.tool_use_counter = state.get("tool_use_counter", 0)
        self.tool_success_counter = state.get("tool_success_counter", 0)
