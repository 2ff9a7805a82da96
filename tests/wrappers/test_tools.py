"""Test the `Tools` wrapper: turns, budgets, rewards, copies, failures and exact tokens."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

import palestra
from palestra.agents import ChatAgent
from palestra.conformance import check_env
from palestra.core import Env
from palestra.engines.bytes_tokenizer import ByteTokenizer
from palestra.engines.default_model import default_model
from palestra.engines.scripted import Reply, ScriptedEngine
from palestra.errors import BadValue, EpisodeOver, ResetNeeded, ToolFailed
from palestra.rollout import collect
from palestra.rollout.samples import to_samples
from palestra.tools import Tool, Toolset
from palestra.tools.python import PythonTool
from palestra.tools.sandbox import Limits
from palestra.types import Observation
from palestra.wrappers import History, Horizon, Tools

GAME = "game:GuessTheNumber-v0-easy"


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def python(code: str) -> str:
    """Return the code; this tool has no tag."""
    return code


class Counter(Tool):
    """Count up, from 1 in every episode."""

    opened = closed = 0

    def __init__(self) -> None:
        self.count = 0

    def call(self) -> str:
        self.count += 1
        return str(self.count)

    def open(self, *, seed: int) -> Counter:
        type(self).opened += 1
        return Counter()

    def close(self) -> None:
        type(self).closed += 1

    def fork(self) -> Counter:
        fork = Counter()
        fork.count = self.count
        return fork


class Broken(Tool):
    """Raise on every call."""

    def call(self) -> str:
        raise ConnectionError("the server is gone")


class Picture(Tool):
    """Show a picture."""

    def call(self) -> list[dict[str, Any]]:
        return [{"type": "image", "image": b"png"}]


def call(name: str, **arguments: Any) -> str:
    return f"<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>"


def env_with(*tools: Any, **options: Any) -> Tools:
    return Tools(palestra.make(GAME), tools, **options)


def test_make_accepts_tools() -> None:
    env = palestra.make(GAME, tools=["python", add], max_tool_calls=2)
    observation, info = env.reset(seed=3)
    assert isinstance(env, Tools)
    assert str(observation).startswith(str(palestra.make(GAME).reset(seed=3)[0]))
    assert "You have 2 tool calls in total." in str(observation)
    assert [schema["function"]["name"] for schema in info["tools"]] == ["python", "add"]
    assert env.step("<python>print(6*7)</python>").observation == "42"
    env.close()
    with pytest.raises(BadValue, match="max_tool_calls needs tools"):
        palestra.make(GAME, max_tool_calls=2)


def test_a_call_is_a_separate_turn_that_does_not_change_the_task() -> None:
    env, bare = env_with(add), palestra.make(GAME)
    env.reset(seed=1)
    bare.reset(seed=1)
    step = env.step(f"I add.\n{call('add', a=1, b=2)} So it is 4!")
    assert (step.observation, step.reward, step.terminated, step.truncated) == ("3", 0.0, False, False)
    assert step.info["use_tool"] is True
    assert step.info["parsed_action"] == f"I add.\n{call('add', a=1, b=2)}"
    assert step.info["cut"] == len(" So it is 4!")
    assert step.info["tool_calls"] == [{"name": "add", "arguments": {"a": 1, "b": 2}, "ok": True}]
    assert (step.info["tool_calls_used"], step.info["tool_calls_left"]) == (1, None)
    while True:
        action = bare.expert_action() or ""
        step, expected = env.step(action), bare.step(action)
        assert step[:4] == expected[:4]
        assert step.info["use_tool"] is False
        if step.done:
            break
    with pytest.raises(EpisodeOver):
        env.step(call("add", a=1, b=2))


def test_a_call_before_reset_raises() -> None:
    with pytest.raises(ResetNeeded):
        env_with(add).step(call("add", a=1, b=1))


def test_parallel_calls() -> None:
    env = env_with(add, Counter())
    env.reset(seed=1)
    text = "\n".join([call("add", a=1, b=2), call("nothing"), call("add", a="x", b=2), call("counter")])
    steps = [env.step(text)]
    env.reset(seed=1)
    steps.append(asyncio.run(env.astep(text)))
    for step in steps:
        shown = str(step.observation)
        assert shown.startswith("[1] add:\n3\n[2] nothing:\nError: no tool 'nothing'.")
        assert "[3] add:\nError: add: a must be an integer." in shown
        assert shown.endswith("[4] counter:\n1\n")
        assert [one["ok"] for one in step.info["tool_calls"]] == [True, False, False, True]
        assert step.info["tool_calls_used"] == 4


def test_malformed_calls_get_an_error_message() -> None:
    env = env_with(add, "python")
    env.reset(seed=1)
    for text, message in (
        ("<tool_call>{broken}</tool_call>", "not JSON"),
        ("<python>print(1)", "</python>"),
        (call("ad", a=1), "Did you mean add?"),
        (call("add", a=1), "missing argument 'b'"),
    ):
        step = env.step(text)
        assert message in str(step.observation)
        assert str(step.observation).startswith("Error: ")
        assert not step.info["tool_calls"][0]["ok"]
        assert step.info["use_tool"]


def test_number_of_calls_is_limited() -> None:
    env = env_with(add, max_calls=2)
    env.reset(seed=1)
    assert env.step(call("add", a=1, b=1)).observation == "2"
    last = env.step("\n".join([call("add", a=1, b=1)] * 2))
    assert "[2] add:\nError: no tool calls are left" in str(last.observation)
    assert str(last.observation).endswith("No tool calls are left. Give your answer now.")
    assert last.info["tool_calls_left"] == 0
    over = env.step(call("add", a=1, b=1))
    assert not over.info["use_tool"]
    assert over.info["invalid"] == "format"  # the reply was passed to the task, which cannot parse it
    env.reset(seed=1)
    assert env.step(call("add", a=1, b=1)).info["tool_calls_left"] == 1
    none = env_with(add, max_calls=0)
    none.reset(seed=1)
    assert not none.step(call("add", a=1, b=1)).info["use_tool"]


def test_the_expert_calls_python_once_if_it_can_write_a_program() -> None:
    env = palestra.make("math:Arithmetic-v0-easy", tools=["python"], max_tool_calls=2)
    env.reset(seed=1)  # What is 76 - 87 + 56?
    call = env.expert_action()
    assert call == "<python>print(76 - 87 + 56)</python>"
    assert env.step(call).observation == "45"
    assert env.expert_action() == r"\boxed{45}"
    assert env.step(r"\boxed{45}").reward == 1.0
    for other in (
        palestra.make("math:Arithmetic-v0-easy", tools=["python"], max_tool_calls=0),
        palestra.make("math:Arithmetic-v0-easy", tools=[add]),
        palestra.make("math:Arithmetic-v0-easy", tools=[python]),
        palestra.make("math:Arithmetic-v0-easy"),
    ):
        other.reset(seed=1)
        assert other.expert_action() == r"\boxed{45}"
    game = palestra.make(GAME, tools=["python"])
    game.reset(seed=1)
    assert game.expert_code() is None
    assert game.expert_action() == r"\boxed{5}"


def test_rewards_and_penalties() -> None:
    env = env_with(add, call_reward=-0.01, success_reward=0.05, error_reward=-0.2)
    env.reset(seed=1)
    good, bad = env.step(call("add", a=1, b=1)), env.step(call("add"))
    assert good.reward == pytest.approx(0.04)
    assert bad.reward == pytest.approx(-0.21)
    low, high = env.reward_range
    assert low <= bad.reward <= good.reward <= high


def test_long_results_are_truncated_in_the_middle() -> None:
    env = env_with("python", max_chars=100)
    env.reset(seed=1)
    shown = str(env.step("<python>print('a' * 500 + 'b' * 500)</python>").observation)
    assert shown == f"{'a' * 50}\n[... 900 characters omitted ...]\n{'b' * 50}"


def test_instructions_can_be_left_out_or_replaced() -> None:
    plain = str(palestra.make(GAME).reset(seed=1)[0])
    assert env_with(add, instructions=False).reset(seed=1)[0] == plain
    assert env_with(add, instructions="Use add.").reset(seed=1)[0] == f"{plain}\n\nUse add."


def test_images_in_results() -> None:
    env = env_with(Picture(), add)
    env.reset(seed=1)
    shown: Observation = env.step("\n".join([call("picture"), call("add", a=1, b=1)])).observation
    assert [part["type"] for part in shown if isinstance(part, dict)] == ["text", "image", "text", "text"]


def test_every_episode_has_its_own_tool_session() -> None:
    Counter.opened = Counter.closed = 0
    env = env_with(Counter())
    env.reset(seed=1)
    assert Counter.opened == 0  # the first call opens the tool
    assert [env.step(call("counter")).observation for _ in range(2)] == ["1", "2"]
    fork = env.fork()
    assert (fork.step(call("counter")).observation, env.step(call("counter")).observation) == ("3", "3")
    fork.step(call("counter"))
    assert env.step(call("counter")).observation == "4"
    env.reset(seed=1)
    assert env.step(call("counter")).observation == "1"
    asyncio.run(env.areset(seed=2))
    assert asyncio.run(env.astep(call("counter"))).observation == "1"
    opened = Counter.opened
    env.close()
    env.close()
    assert Counter.closed >= opened
    moved = Env.restore(env_with("python:stateful").snapshot())
    moved.reset(seed=1)
    moved.step("<python>x = 7</python>")
    again = Env.restore(moved.snapshot())
    assert again.step("<python>x</python>").observation == "7"
    moved.close()
    again.close()


def test_a_failing_tool_raises_instead_of_returning_a_step() -> None:
    env = env_with(Broken())
    env.reset(seed=1)
    with pytest.raises(ToolFailed, match="the server is gone"):
        env.step(call("broken"))
    with pytest.raises(ToolFailed):
        asyncio.run(env.astep(call("broken")))


def test_duplicate_names_are_rejected() -> None:
    with pytest.raises(BadValue, match="two tools have the name 'add'"):
        env_with(add, add).reset(seed=1)
    with pytest.raises(BadValue, match="`tools` must be a list"):
        Tools(palestra.make(GAME), "python")


def test_tools_inside_other_wrappers() -> None:
    env = History(Horizon(env_with(add), 2), "messages")
    env.reset(seed=1)
    shown: Any = env.step(f"{call('add', a=1, b=1)} trailing").observation
    assert [message["role"] for message in shown] == ["user", "assistant", "tool"]
    assert shown[1]["content"] == call("add", a=1, b=1)
    assert env.step(call("add", a=1, b=1)).truncated


def test_an_env_with_tools_passes_check_env() -> None:
    python = PythonTool(limits=Limits(wall=1.0))  # short, because two of the hostile actions are endless programs
    check_env(GAME, kwargs={"tools": [python], "max_tool_calls": 1}, episodes=3, seconds=2.0)


# In rollouts


def play(engine: Any, **options: Any) -> Any:
    tools = {"tools": [add, "python"]}
    return asyncio.run(collect(ChatAgent(engine, **options), GAME, episodes=1, seed=5, kwargs=tools)).trajectories[0]


SCRIPT = ["<python>print(6*7)</python> hm", f"Now\n{call('add', a=1, b=2)}", "```python\n1/0\n```", "I give up."]


@pytest.mark.parametrize("style", ["plain", "tools"])
def test_samples_with_tool_calls_have_the_exact_tokens(style: str) -> None:
    tokenizer = ByteTokenizer()
    trajectory = play(ScriptedEngine(SCRIPT, tokenizer=tokenizer), style=style, max_tokens=400)
    assert trajectory.failure is None
    assert [turn.info["use_tool"] for turn in trajectory.turns] == [True, True, True, False]
    assert [turn.action.text for turn in trajectory.turns] == SCRIPT
    assert trajectory.splits == {}
    (sample,) = to_samples(trajectory)  # one sample, because every prompt extends the previous one
    sampled = [[i for i, turn in zip(sample.ids, sample.turn_index, strict=True) if turn == n] for n in range(4)]
    assert [tokenizer.decode(ids).startswith(text) for ids, text in zip(sampled, SCRIPT, strict=True)] == [True] * 4
    shown = tokenizer.decode(sample.ids)
    assert "tool\n42" in shown
    assert "ZeroDivisionError" in shown


def test_samples_of_a_real_model_have_the_exact_tokens() -> None:
    model, tokenizer = default_model("0.1M")
    engine = palestra.engines.LocalEngine(model, tokenizer=tokenizer, device="cpu", threads=1)
    agent = ChatAgent(engine, max_tokens=12)
    result = asyncio.run(collect(agent, GAME, episodes=2, seed=5, wrappers=[ForcedCalls], retries=0))
    assert len(result.trajectories) == 2
    for trajectory in result.trajectories:
        assert trajectory.failure is None
        assert any(turn.info["use_tool"] for turn in trajectory.turns)
        samples = to_samples(trajectory)
        ids = [i for sample in samples for i, m in zip(sample.ids, sample.mask, strict=True) if m]
        assert ids == [i for turn in trajectory.turns for one in turn.action.calls for i in one.ids]
        assert trajectory.splits == {}
        assert len(samples) == 1


class ForcedCalls(Tools):
    """Replace the first three replies with tool calls, because an untrained model does not call tools."""

    def __init__(self, env: Env) -> None:
        super().__init__(env, [add])

    async def astep(self, action: str) -> Any:
        return await super().astep(call("add", a=1, b=self._used) if self._used < 3 else action)


def test_native_tool_calls_of_a_server_are_executed() -> None:
    native = {"id": "x1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1, "b": 2}'}}
    broken = {"id": "x2", "type": "function", "function": {"name": "add", "arguments": '{"a": 1'}}
    conversations: list[Any] = []

    def reply(messages: list[Any]) -> Any:
        conversations.append(messages)
        replies = [
            Reply(text="", tool_calls=(native, native)),
            Reply(text="Let me see.", tool_calls=(broken,)),
            Reply(text="I give up."),
        ]
        return replies[len(conversations) - 1]

    trajectory = play(ScriptedEngine(reply), style="tools")
    assert trajectory.failure is None
    first, second, third = trajectory.turns
    assert [one["ok"] for one in first.info["tool_calls"]] == [True, True]
    assert conversations[1][-2] == {"role": "tool", "content": "[1] add:\n3\n[2] add:\n3\n", "tool_call_id": "x1"}
    assert not second.info["tool_calls"][0]["ok"]
    assert "arguments" in str(conversations[2][-1]["content"])
    assert not third.info["use_tool"]


def test_a_failing_tool_is_recorded_as_a_tool_failure() -> None:
    engine = ScriptedEngine(call("broken"), tokenizer=ByteTokenizer())
    options: dict[str, Any] = {"tools": [Broken()]}
    result = asyncio.run(collect(ChatAgent(engine), GAME, episodes=1, seed=1, kwargs=options, retries=0))
    (trajectory,) = result.failures
    assert trajectory.failure is not None
    assert (trajectory.failure.boundary, trajectory.failure.kind) == ("tool", "ToolFailed")


def test_a_toolset() -> None:
    class Pair(Toolset):
        @property
        def tools(self) -> tuple[Tool, ...]:
            return (Counter(), Picture())

    env = env_with(Pair())
    _, info = env.reset(seed=1)
    assert [schema["function"]["name"] for schema in info["tools"]] == ["counter", "picture"]
    assert env.step(call("counter")).observation == "1"
