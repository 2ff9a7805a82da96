from __future__ import annotations

from typing import Any

import pytest

import palestra
from palestra.errors import BadValue
from palestra.wrappers import History, get_wrapper_fns

ONE, TWO = r"I try \boxed{1}", r"\boxed{2}"


class Tokenizer:
    """Tokenizer with Hugging Face's chat template method and a readable template."""

    def apply_chat_template(
        self, conversation: Any, /, *, tokenize: bool = True, add_generation_prompt: bool = False
    ) -> str:
        assert not tokenize
        text = "".join(f"<{message['role']}>{message['content']}</>" for message in conversation)
        return text + ("<assistant>" if add_generation_prompt else "")


def hanoi(mode: Any, **options: Any) -> History:
    return History(palestra.make("game:TowerofHanoi-v0-easy"), mode, **options)


def guess(mode: Any, **options: Any) -> tuple[str, list[Any]]:
    """Return the task and all observations in an episode with two wrong guesses."""
    plain = palestra.make("game:GuessTheNumber-v0-hard")
    task = str(plain.reset(seed=3)[0])
    env = History(palestra.make("game:GuessTheNumber-v0-hard"), mode, **options)
    first, _ = env.reset(seed=3)
    return task, [first, env.step(ONE).observation, env.step(TWO).observation]


def test_observations_mode() -> None:
    task, observations = guess("observations")
    assert observations[0] == task
    assert observations[2] == (
        f"{task}\nTurn 1 of 7: the number is higher than 1.\nTurn 2 of 7: the number is higher than 2."
    )


def test_actions_mode() -> None:
    task, observations = guess("actions")
    assert observations[1] == f"{task}\n{ONE}\nTurn 1 of 7: the number is higher than 1."


def test_messages_mode() -> None:
    task, observations = guess("messages")
    assert observations[1] == [
        {"role": "user", "content": task},
        {"role": "assistant", "content": ONE},
        {"role": "user", "content": "Turn 1 of 7: the number is higher than 1."},
    ]
    assert [message["role"] for message in observations[2]] == ["user", "assistant"] * 2 + ["user"]
    assert len(observations[0]) == 1, "earlier observations are not changed"


def test_template_mode() -> None:
    task, observations = guess("template", tokenizer=Tokenizer())
    assert observations[0] == f"<user>{task}</><assistant>"
    assert observations[1].startswith(f"<user>{task}</><assistant>{ONE}</><user>Turn 1")
    assert observations[1].endswith("<assistant>")


def test_template_of_the_task_only() -> None:
    task, observations = guess("actions", tokenizer=Tokenizer())
    assert observations[1] == f"<user>{task}</><assistant>\n{ONE}\nTurn 1 of 7: the number is higher than 1."


def test_keep_drops_old_turns_but_never_the_task() -> None:
    task, observations = guess("actions", keep=1)
    assert observations[2] == f"{task}\n{TWO}\nTurn 2 of 7: the number is higher than 2."


def test_latest_state_shows_the_board_once_at_the_end() -> None:
    for latest, boards in ((True, 1), (False, 3)):
        env = hanoi("actions", latest_state=latest)
        _, info = env.reset()
        env.step(r"\boxed{A C}")
        step = env.step(r"\boxed{A B}")
        text = str(step.observation)
        assert text.endswith(step.info["suffix"])
        heading = info["suffix"].splitlines()[0].partition(":")[0] + ":"
        assert sum(line.startswith(heading) for line in text.splitlines()) == boards


def test_latest_state_in_messages() -> None:
    env = hanoi("messages", latest_state=True)
    env.reset()
    step = env.step(r"\boxed{A C}")
    messages: Any = step.observation
    assert messages[-1]["content"].endswith(step.info["suffix"])
    assert step.info["suffix"] not in messages[0]["content"]


def test_a_second_episode_starts_empty() -> None:
    env = History(palestra.make("game:GuessTheNumber-v0-hard"), "actions")
    first, _ = env.reset(seed=3)
    env.step(ONE)
    assert env.reset(seed=3)[0] == first


def test_forks_have_independent_histories() -> None:
    tokenizer = Tokenizer()
    env = History(palestra.make("game:GuessTheNumber-v0-hard"), "template", tokenizer=tokenizer)
    env.reset(seed=3)
    fork = env.fork()
    assert ONE in str(fork.step(ONE).observation)
    assert ONE not in str(env.step(TWO).observation)
    assert fork.tokenizer is tokenizer


def test_invalid_arguments_raise() -> None:
    env = palestra.make("game:GuessTheNumber-v0-hard")
    with pytest.raises(BadValue, match="must be one of observations, actions.*got 'chat'"):
        History(env, "chat")  # type: ignore[arg-type]
    with pytest.raises(BadValue, match="tokenizer="):
        History(env, "template")
    with pytest.raises(BadValue, match="at least 1"):
        History(env, "actions", keep=0)


def test_wrapper_names_of_gem() -> None:
    for names in ("concat", "concat_with_action,episode_tracking", "concat_chat", "concat_chat_on_reset", ""):
        env = palestra.make("game:GuessTheNumber-v0-hard", wrappers=get_wrapper_fns(names, tokenizer=Tokenizer()))
        env.reset(seed=1)
        step = env.step(ONE)
        assert ("step_counter" in step.info) == ("episode_tracking" in names)
    with pytest.raises(BadValue, match="no wrapper 'conct'. The wrappers are .*concat"):
        get_wrapper_fns("conct")
    with pytest.raises(BadValue, match="needs a tokenizer"):
        get_wrapper_fns("concat_chat")
