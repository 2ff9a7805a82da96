"""Test the conversion of trajectories to training samples: the mask covers exactly the sampled tokens."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palestra.agents import ChatAgent, ExpertAgent, Reflection, TokenBudget
from palestra.engines import ByteTokenizer, ScriptedEngine
from palestra.errors import BadValue
from palestra.registry import make
from palestra.rollout.episode import run_episode
from palestra.rollout.samples import TrainingSample, to_samples
from palestra.rollout.types import Failure, Task, Trajectory, Turn
from palestra.types import Action, Call


def call(prompt: list[int], ids: list[int], kind: str = "act") -> Call:
    return Call(
        prompt_ids=prompt, ids=ids, logprobs=[-0.5 - i for i in ids], finish="stop", version=1, kind=kind, split=None
    )


def turn(reward: float, *calls: Call) -> Turn:
    return Turn(
        observation="o",
        action=Action(text="a", calls=calls),
        reward=reward,
        terminated=False,
        truncated=False,
        info={},
        agent_seconds=0.0,
        env_seconds=0.0,
    )


def trajectory(*turns: Turn) -> Trajectory:
    return Trajectory(
        env_id="game:X-v0", kwargs={}, seed=3, group=0, member=1, turns=turns, final_observation="", success=True
    )


def test_turns_share_a_sample_while_prompts_extend_each_other() -> None:
    samples = to_samples(
        trajectory(
            turn(0.25, call([1, 2], [3, 4])),
            turn(0.5, call([1, 2, 3, 4, 5], [6], "reflect"), call([1, 2, 3, 4, 5, 6, 7], [8, 9])),
            turn(1.0, call([1, 5, 9], [10])),
        )
    )
    assert samples == [
        TrainingSample(
            ids=[1, 2, 3, 4, 5, 6, 7, 8, 9],
            mask=[0, 0, 1, 1, 0, 1, 0, 1, 1],
            logprobs=[0, 0, -3.5, -4.5, 0, -6.5, 0, -8.5, -9.5],
            turn_index=[-1, -1, 0, 0, -1, 1, -1, 1, 1],
            episode_tokens=6,
        ),
        TrainingSample(
            ids=[1, 5, 9, 10],
            mask=[0, 0, 0, 1],
            logprobs=[0, 0, 0, -10.5],
            turn_index=[-1, -1, -1, 2],
            episode_tokens=6,
            offset=5,
        ),
    ]


def test_prompt_shorter_than_the_previous_tokens_starts_a_new_sample() -> None:
    samples = to_samples(trajectory(turn(0, call([1, 2], [3, 4])), turn(1, call([1, 2, 3], [4]))))
    assert [sample.ids for sample in samples] == [[1, 2, 3, 4], [1, 2, 3, 4]]


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (trajectory(turn(1.0)), "turn 0 has no model call"),
        (trajectory(turn(1.0, call([], []))), "no token ids"),
        (trajectory(turn(0.0, call([1], [2])), turn(1.0, call([1, 2], []))), "turn 1.*no token ids"),
        (trajectory(turn(1.0, replace(call([1], [2, 3]), logprobs=[0.0]))), "2 tokens but 1 log-prob"),
        (
            replace(
                trajectory(turn(1.0, call([1], [2]))),
                failure=Failure(boundary="env", kind="EnvFailed", message="broke"),
            ),
            "failed .EnvFailed.; exclude failed episodes",
        ),
    ],
)
def test_trajectories_without_training_data_raise(bad: Trajectory, message: str) -> None:
    with pytest.raises(BadValue, match=message):
        to_samples(bad)


small = st.lists(st.integers(0, 3), max_size=4)


@st.composite
def trajectories(draw: st.DrawFn) -> Trajectory:
    """Generate calls whose prompts extend the previous tokens, start over, or extend all but the last token."""
    turns = []
    context: list[int] = []
    for _ in range(draw(st.integers(1, 5))):
        calls = []
        kinds = draw(st.lists(st.sampled_from(["reflect", "summary"]), max_size=2))
        for kind in [*kinds, "act"]:
            kind_of_prompt = draw(st.sampled_from(["extend", "extend", "restart", "shorten"]))
            prompt = {"extend": context, "restart": [], "shorten": context[:-1]}[kind_of_prompt] + draw(small)
            prompt = prompt or [0]
            ids = draw(small) or [1]
            calls.append(call(prompt, ids, kind))
            context = prompt + ids
        turns.append(turn(draw(st.integers(-4, 4)) / 4, *calls))
    return trajectory(*turns)


@given(trajectories())
def test_invariants_of_samples(played: Trajectory) -> None:
    samples = to_samples(played)
    calls = [call for turn in played.turns for call in turn.action.calls]
    cells = [
        cell
        for sample in samples
        for cell in zip(sample.ids, sample.mask, sample.logprobs, sample.turn_index, strict=True)
    ]
    sampled = [cell for cell in cells if cell[1]]
    assert [cell[0] for cell in sampled] == [token for call in calls for token in call.ids]
    assert [cell[2] for cell in sampled] == [logprob for call in calls for logprob in call.logprobs]
    assert [cell[3] for cell in sampled] == [
        index for index, turn in enumerate(played.turns) for call in turn.action.calls for _ in call.ids
    ]
    assert all(cell[2:] == (0.0, -1) for cell in cells if not cell[1])
    assert [sample.offset for sample in samples] == [
        sum(earlier.sampled for earlier in samples[:i]) for i in range(len(samples))
    ]
    # The ids of each call are in one sample, directly after its prompt.
    positions = [(n, i) for n, sample in enumerate(samples) for i in range(len(sample)) if sample.mask[i]]
    done = 0
    for each in calls:
        n, start = positions[done]
        done += len(each.ids)
        assert samples[n].ids[:start] == each.prompt_ids
        assert samples[n].ids[start : start + len(each.ids)] == each.ids


async def _play(agent: ChatAgent | ExpertAgent) -> Trajectory:
    env = make("game:GuessTheNumber-v0-easy")
    task = Task(env_id="game:GuessTheNumber-v0-easy", kwargs={}, seed=5, group=0, member=0)
    return await run_episode(env, agent, task)


def _guesses() -> list[str]:
    return [f"I will try \\boxed{{{number}}}." for number in range(1, 40)]


def test_episode_without_splits_is_one_sample() -> None:
    tokenizer = ByteTokenizer()
    agent = ChatAgent(ScriptedEngine(_guesses(), tokenizer=tokenizer), system="Play.")
    played = asyncio.run(_play(agent))
    assert played.failure is None
    (sample,) = to_samples(played)
    sampled = bytes(token for token, on in zip(sample.ids, sample.mask, strict=True) if on and token < 256).decode()
    assert sampled == "".join(turn.action.text for turn in played.turns)
    assert tokenizer.decode(sample.ids).startswith("<|im_start|>system\nPlay.<|im_end|>\n<|im_start|>user\n")


def test_samples_include_context_cuts_and_reflections() -> None:
    agent = ChatAgent(
        ScriptedEngine(_guesses(), tokenizer=ByteTokenizer()),
        context=TokenBudget(800),
        reflect=Reflection(when=None, every=2),
    )
    played = asyncio.run(_play(agent))
    assert played.failure is None
    samples = to_samples(played)
    assert len(samples) == 1 + sum(played.splits.values()) > 1
    assert sum(map(sum, (sample.mask for sample in samples))) == played.sampled_tokens


def test_trajectories_of_agents_without_a_model_raise() -> None:
    with pytest.raises(BadValue, match="has no model call"):
        to_samples(asyncio.run(_play(ExpertAgent())))
