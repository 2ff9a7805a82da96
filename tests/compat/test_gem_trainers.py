"""Make the calls of GEM's training examples, with the same keyword arguments.

The calls are those in `examples/train_*` in GEM's repository.
"""

from __future__ import annotations

import random
import time
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from palestra.compat.gem.wrappers.wrapper_factory import get_wrapper_fns

import palestra.compat.gem as gem
from palestra.errors import BadValue

GAME = "game:GuessTheNumber-v0"  # the id in GEM's examples, which its newest version no longer registers


class ChatTokenizer:
    """Tokenizer with a chat template."""

    def apply_chat_template(self, messages: list[dict[str, str]], **_: Any) -> str:
        return "".join(f"[{message['role']}]{message['content']}" for message in messages)


@pytest.mark.parametrize(("wrappers", "async_mode"), [("concat", True), ("concat_chat", False), ("", True)])
def test_experience_of_a_vector(wrappers: str, async_mode: bool) -> None:
    """`collect_experience` in train_oat.py, train_oat_mt.py and train_verl.py; RL2's vec_multi_turn.py."""
    env = gem.make_vec(
        [GAME] * 3,
        vec_kwargs=[{"seed": time.time_ns() + j} for j in range(3)],
        wrappers=get_wrapper_fns(wrappers, tokenizer=ChatTokenizer()),
        async_mode=async_mode,
    )
    obs, _ = env.reset()
    episodes = 0
    for turn in range(12):
        next_obs, reward, terminated, truncated, info = env.step([f"\\boxed{{{turn + 1}}}"] * env.num_envs)
        done = terminated | truncated
        assert isinstance(reward, np.ndarray)
        for i in range(env.num_envs):
            episodes += bool(done[i])
            assert isinstance(info[i].get("prev_ep_tool_use_counter", 0), int)
        if not done[0]:  # the reply could not be sampled
            next_obs[0] = env.envs[0].reset()[0]
            assert str(next_obs[0]).count("You are playing") == 1
        assert all(isinstance(text, str) for text in next_obs)
        obs = next_obs
    assert len(obs) == 3
    assert episodes >= 2
    env.close()


@pytest.mark.parametrize("wrappers", ["concat", "python_tool,concat_with_action,episode_tracking"])
def test_groups_restart_from_a_stored_state(wrappers: str) -> None:
    """`collect_experience_multiple` in train_oat_grpo.py."""
    env = gem.make_vec([GAME], vec_kwargs=[{"seed": 5}], wrappers=get_wrapper_fns(wrappers, tokenizer=None))
    env.reset()
    sub_env: Any = env.envs[0]
    first, _ = sub_env.reset(seed=9)
    sub_env.step(r"\boxed{20}")  # the history is a part of the state
    state = deepcopy(sub_env.get_state())
    plays = []
    for _ in range(2):
        sub_env.set_state(deepcopy(state))
        play = []
        for guess in range(1, 20):
            obs, reward, terminated, truncated, info = env.step([f"\\boxed{{{guess}}}"])
            if terminated[0] | truncated[0]:
                play.append((reward[0], info[0].get("prev_ep_step_counter")))
                break
            play.append((obs[0], info[0].get("step_counter")))
        plays.append(play)
    assert plays[0] == plays[1]
    assert len(plays[0]) > 1
    assert str(plays[0][0][0]).startswith(first.rstrip("\n"))


def test_evaluation_of_some_environments(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """`run_eval_episode` in GEM's three scripts for Oat."""
    folder = tmp_path / "axon-rl" / "math-eval"
    folder.mkdir(parents=True)
    rows = [f'{{"problem": "What is {i} + {i}?", "answer": "{2 * i}"}}\n' for i in range(3)]
    (folder / "math.jsonl").write_text("".join(rows))
    monkeypatch.setenv("PALESTRA_MIRROR", str(tmp_path))
    env = gem.make_vec(["eval:MATH500"] * 2, wrappers=get_wrapper_fns("", tokenizer=None), async_mode=True)
    sub_env: Any = env.envs[0]
    assert hasattr(sub_env, "dataset")
    assert len(sub_env.dataset) == 3
    obs, _ = env.reset(env0_kwargs={"idx": 0}, env1_kwargs={"idx": 1})
    assert obs == ["What is 0 + 0?", "What is 1 + 1?"]
    obs, _ = env.reset(env0_kwargs={"idx": 2})  # the last batch of an evaluation is smaller
    assert obs[0] == "What is 2 + 2?"
    obs, reward, terminated, truncated, info = env.step({0: r"\boxed{4}"})
    assert (len(obs), reward.tolist(), len(info)) == (1, [1.0], 1)
    assert (terminated | truncated | np.array([False])).all()
    env.close()


def test_agents_of_openrlhf() -> None:
    """agent_func_multi_turn_template.py, agent_func_multi_turn_notemplate.py and agent_func_single_turn.py."""
    game: Any = gem.make(GAME, seed=time.time_ns())
    assert game.max_turns == 10
    game.reset(random.randint(1, 10000000))
    _, reward, terminated, truncated, _ = game.step(r"\boxed{21}")
    assert isinstance(reward, float)
    assert isinstance(terminated or truncated, bool)
    question: Any = gem.make(env_id="rg:letter_counting", size=10000000, seed=time.time_ns())
    assert question.reset(random.randint(1, 10000000))[0].startswith("How many times")
    # GEM passes the missing answer to the scorer, which gives 0.
    assert question.step("no box")[1:4] == (0.0, True, False)


def test_pools_of_rl2() -> None:
    """async_multi_turn.py and async_single_turn.py."""
    env: Any = gem.make(env_id=GAME, seed=233)
    for wrapper in get_wrapper_fns("concat", tokenizer=None):
        env = wrapper(env)
    first, _ = env.reset()
    following, reward, _, _, info = env.step(r"\boxed{1}")
    assert following.startswith(first)
    assert isinstance(float(reward), float)
    assert isinstance(info, dict)
    assert gem.make(env_id=GAME, seed=233).reset()[0] in first  # the seed selects the first episode


def test_environments_that_share_a_dataset() -> None:
    """tinker_train.py."""
    envs: list[Any] = [gem.make(GAME, seed=int(time.time_ns()), use_mp=False)]
    dataset = envs[0].dataset if hasattr(envs[0], "dataset") else None
    envs += [gem.make(GAME, seed=int(time.time_ns()) * i, dataset=dataset, use_mp=False) for i in (0, 20)]
    for env in envs:
        env.reset()
        assert isinstance(env.step(r"\boxed{1}")[1], float)


def test_id_that_gem_cannot_build() -> None:
    with pytest.raises(BadValue, match="needs a list of datasets"):
        gem.make("rg:composite")
