"""Play environments of the verifiers library (0.1 interface): `palestra.make("verifiers:wordle")`.

The name is the id of an installed verifiers environment, which provides `load_environment`. The environment must reply
by text; environments whose rollouts need their own model client or sandboxes are not supported.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Mapping
from typing import TYPE_CHECKING, Any, Self, TypeVar

from palestra.core import Env, Reset
from palestra.errors import BadValue, EnvFailed, MissingExtra, UnknownEnv, not_running
from palestra.optional import require
from palestra.types import Step

if TYPE_CHECKING:
    import verifiers as vf
    from verifiers.clients import OpenAIChatCompletionsClient
    from verifiers.types import Response, ResponseMessage
else:
    vf = require("verifiers", extra="verifiers")
    if not hasattr(vf, "MultiTurnEnv"):
        raise MissingExtra("environments of verifiers need its 0.1 interface: pip install 'verifiers<0.2'")
    from verifiers.clients import OpenAIChatCompletionsClient
    from verifiers.types import Response, ResponseMessage

T = TypeVar("T")

DEFAULT_TURNS = 100  # turn limit if neither the caller nor the environment sets one


class FromVerifiers(Env):
    """One row of a verifiers environment's dataset per episode; the agent's replies are the model's responses.

    The seed selects the row. `split="train"` uses the training data and `split="test"` the evaluation data. The reward
    of the last step is the score of the environment's rubric; all others are 0. An episode is successful if the score
    is at least the environment's pass threshold. A fork replays the actions.

    Args:
        env: id of an installed verifiers environment, or an instance.
        max_turns: maximum number of turns; by default the environment's limit, or 100 if it has none.
        load_kwargs: arguments for the environment's `load_environment`.
    """

    shared = Env.shared | {"env", "_rows"}
    filters_tasks = False

    def __init__(
        self,
        env: str | vf.Environment,
        *,
        split: str | None = None,
        max_turns: int | None = None,
        load_kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        if split not in (None, "train", "test"):
            raise BadValue(f"`split` must be 'train' or 'test', got {split!r}")
        try:
            self.env = vf.load_environment(env, **dict(load_kwargs or {})) if isinstance(env, str) else env
        except (ImportError, ValueError, RuntimeError) as err:
            raise UnknownEnv(f"verifiers cannot load {env!r}: {err}") from err
        if not isinstance(self.env, vf.MultiTurnEnv):
            raise BadValue(f"{env!r} is not a MultiTurnEnv or SingleTurnEnv, which this adapter needs")
        self.split = split
        self._rows = self.env.get_dataset() if split == "train" else self.env.get_eval_dataset()
        self.num_tasks: int = len(self._rows)
        limit = int(getattr(self.env, "max_turns", -1))
        self.max_turns: int = max_turns or (limit if limit > 0 else DEFAULT_TURNS)
        self.turn = 0
        self._ending: str | None = "reset"  # None during an episode

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        del options
        seed = self.start_episode(seed)
        row = dict(self._rows[seed % self.num_tasks])
        try:
            self._state, text = _run(self._start(row))
        except Exception as err:
            raise EnvFailed(f"{self!r} failed in reset: {err!r}") from err
        self.turn = 0
        self._actions: list[str] = []
        self._ending = None
        return text, {"seed": seed, "max_turns": self.max_turns}

    def step(self, action: str) -> Step:
        if self._ending is not None:
            raise not_running(self._ending)
        if not isinstance(action, str):
            raise BadValue(f"an action must be a string, got {type(action).__name__}")
        self.turn += 1
        self._actions.append(action)
        try:
            text, done = _run(self._respond(action))
        except Exception as err:
            self._ending = "failed"
            raise EnvFailed(f"{self!r} failed in step: {err!r}") from err
        info: dict[str, Any] = {"turn": self.turn}
        reward = 0.0
        if done:
            reward = float(self._state["reward"] or 0.0)
            self._ending = "truncated" if self._state.get("is_truncated") else "terminated"
            info["success"] = reward >= getattr(self.env, "pass_threshold", 0.5)
            info["verifiers"] = dict(self._state.get("metrics") or {})
        return Step(text, reward, self._ending == "terminated", self._ending == "truncated", info)

    def _copy(self, memo: dict[int, Any]) -> Self:
        """Replay the actions in a new episode, because the state of a rollout cannot be copied."""
        fork = type(self)(self.env, split=self.split, max_turns=self.max_turns)
        memo[id(self)] = fork
        fork.spec = self.spec
        if self._ending != "reset":
            fork.reset(seed=self.seed)
            for action in self._actions:
                fork.step(action)
        return fork

    def __repr__(self) -> str:
        return f"<FromVerifiers {self.env.env_id or type(self.env).__name__}>"

    async def _start(self, row: dict[str, Any]) -> tuple[Any, str]:
        client = OpenAIChatCompletionsClient(None)  # a state needs a client, which is not used
        state = await self.env.init_state(row, client=client, model="palestra", sampling_args=None)
        await self.env.setup_state(state)
        self._prompt = await self.env.get_prompt_messages(state)
        return state, "\n\n".join(_text(message) for message in self._prompt)

    async def _respond(self, action: str) -> tuple[str, bool]:
        """Add the reply to the rollout and return the environment's text and whether the rollout is over."""
        state = self._state
        response = Response(
            id="palestra",
            created=0,
            model="palestra",
            usage=None,
            message=ResponseMessage(content=action, finish_reason="stop", is_truncated=False),
        )
        await self.env.add_model_response(state, self._prompt, response)
        done = await self.env.is_completed(state)
        text = ""
        if not done:
            before = len(self._prompt) + 1
            self._prompt = await self.env.get_prompt_messages(state)
            text = "\n\n".join(_text(message) for message in self._prompt[before:])
            done = await self.env.is_completed(state)
        if not done and self.turn >= self.max_turns:
            state["is_truncated"] = done = True
        if done:
            await self.env.render_completion(state)
            await self.env.rubric.score_rollout(state)
            await self.env.cleanup(state)
        return text, bool(done)


from_verifiers = FromVerifiers


def _run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine of the verifiers environment; its objects belong to one event loop, which runs in a thread."""
    return asyncio.run_coroutine_threadsafe(coroutine, _loop()).result()


_loops: list[asyncio.AbstractEventLoop] = []
_lock = threading.Lock()


def _loop() -> asyncio.AbstractEventLoop:
    with _lock:
        if not _loops:
            loop = asyncio.new_event_loop()
            threading.Thread(target=loop.run_forever, name="palestra-verifiers", daemon=True).start()
            _loops.append(loop)
        return _loops[0]


def _text(message: Any) -> str:
    content = message.get("content") if isinstance(message, Mapping) else message.content
    if isinstance(content, list):
        return "".join(
            part["text"] if isinstance(part, Mapping) else getattr(part, "text", "[image]") for part in content
        )
    return content or ""
