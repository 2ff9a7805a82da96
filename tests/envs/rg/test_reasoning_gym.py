"""Test the reasoning-gym environments and their process pool."""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import palestra
from palestra.envs.rg.dataset import ReasoningGym
from palestra.envs.rg.levels import RATES
from palestra.envs.rg.process_pool import GymProcessPool, shared_pool
from palestra.errors import BadValue, EnvFailed, InfrastructureError
from palestra.parsing import boxed
from tests.suspending import suspend


def python(code: str, **variables: str) -> Any:
    """Run `code` in a separate process and return the JSON that it prints."""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, env={**os.environ, **variables}
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


FACTS = """
import json
import sys
from random import Random

from palestra.envs.rg import overrides
from palestra.envs.rg.worker import RESEEDED, DatasetService

install, overrides.install = overrides.install, lambda: None
service = DatasetService()  # imports the package
plotting = "matplotlib" in sys.modules
import reasoning_gym
from reasoning_gym.cognition.number_sequences import PatternRule
from reasoning_gym.factory import CURRICULA, DATASETS, create_curriculum
from reasoning_gym.games.knight_swap import KnightSwapLogic
plain = PatternRule.apply

swaps = []
for seed in range(12):
    rng = Random(seed)
    board = KnightSwapLogic.generate_board(rng.randint(6, 9), rng)
    pieces = dict(zip(rng.sample(list(board), 4), "wwBB", strict=True))
    for turn in "wB":
        moves = overrides._solve_swap(board, pieces, turn)
        swaps.append((moves == KnightSwapLogic.solve_swap(board, pieces, turn), moves is not None))

package_set = [reasoning_gym.create_dataset("letter_counting", size=5, seed=7)[i]["question"] for i in range(5)]

levels = {}
for name in DATASETS:
    levels[name] = []
    curriculum = create_curriculum(name) if name in CURRICULA else None
    count = max((len(a.levels) for a in curriculum.attributes.values()), default=0) if curriculum else 0
    for level in range(count):
        curriculum.set_global_level(level)
        try:
            chosen = curriculum.generate_configuration({"seed": 1, "size": 1})
            getattr(chosen, "validate", lambda: None)()
            levels[name].append(True)
        except AssertionError:
            levels[name].append(False)

install()
different = []
for name in sorted(RESEEDED):
    fresh = service._create(name, None, {}, 5)[0]
    used = [service._entry(name, None, {}, seed) for seed in (9, 5)][1]
    if (fresh["question"], fresh["answer"]) != (used["question"], used["answer"]):
        different.append(name)

def sequences():
    config = dict(max_terms=5, max_complexity=1)
    return [service._create("number_sequence", None, config, seed)[0] for seed in range(60)]

bounded, terms = PatternRule.apply, []
ours = sequences()
PatternRule.apply = plain
same = ours == sequences()
PatternRule.apply = lambda *args: terms.append(max(map(abs, args[1]))) or bounded(*args)
for seed in range(60):
    service._create("number_sequence", 3, {}, seed)[0]
print(json.dumps({
    "levels": levels,
    "different": different,
    "same": same,
    "largest": max(terms),
    "swaps": swaps,
    "package_set": package_set,
    "plotting": plotting,
}))
"""


@pytest.fixture(scope="module")
def facts() -> Any:
    """Facts about the package and our overrides, from one process, because importing the package takes seconds."""
    return python(FACTS)


def test_the_catalog_covers_the_package(facts: Any) -> None:
    """Verify that every level has an id, unless the package rejects it or takes too long to generate an item."""
    available = facts["levels"]
    del available["composite"]  # this dataset only mixes others, as `make_vec` and recipes do
    available["jugs"][3] = False  # takes minutes to generate an item
    ours = {name: [rates is not None for rates in levels[1:]] for name, levels in RATES.items()}
    assert ours == available
    assert len(palestra.list_envs("rg")) == sum(1 + sum(levels) for levels in available.values())
    assert "rg:ab" in palestra.list_envs("rg")
    assert palestra.get_spec("rg:chain_sum-l3").kwargs == {"name": "chain_sum", "level": 3}


def test_listing_does_not_import_it() -> None:
    loaded = python(
        "import json, sys, palestra; palestra.list_envs(); env = palestra.make('rg:ab'); "
        "print(json.dumps([m for m in sys.modules if 'reasoning_gym' in m or m == 'numpy']))"
    )
    assert loaded == []


def test_reseeded_data_sets_draw_the_same_items_as_new_ones(facts: Any) -> None:
    assert facts["different"] == []


def test_number_sequences_are_those_of_the_package_without_huge_terms(facts: Any) -> None:
    """Compare items at a simple setting, and check a level where terms would otherwise have millions of digits."""
    assert facts["same"]
    assert facts["largest"] < 10**400  # the largest term after one rule is applied to a term of at most 1,000


def test_swapped_knights_move_as_in_the_package(facts: Any) -> None:
    assert len(facts["swaps"]) == 24
    assert all(same for same, _ in facts["swaps"])
    assert any(solved for _, solved in facts["swaps"])


# Failing scorers


HARD_TO_PARSE = "+".join(f"(x+{k})**{k % 190}" for k in range(900))  # keeps sympy busy for seconds


def test_a_scorer_that_hangs_is_an_infrastructure_error() -> None:
    env = ReasoningGym(name="polynomial_multiplication", score_timeout=0.2)
    env.reset(seed=1)
    with pytest.raises(EnvFailed, match=r"the scorer of polynomial_multiplication took longer than 0\.2 s") as caught:
        env.step(boxed(HARD_TO_PARSE))
    assert isinstance(caught.value, InfrastructureError)
    assert env.turn == 0, "the failure used an attempt"
    after = palestra.make("rg:gcd")
    after.reset(seed=1)
    assert after.step(after.expert_action() or "").reward == 1.0


def test_a_scorer_that_raises_is_an_infrastructure_error() -> None:
    env = ReasoningGym(name="gcd")
    env.reset(seed=1)
    broken: Any = env.fork()
    broken.item = type(env.item)(question="?", answer="1", gold="gANYLg==")
    with pytest.raises(EnvFailed, match="the scorer of gcd raised"):
        broken.step(boxed(1))
    assert env.step(env.expert_action() or "").info["success"]


def test_a_process_starts_without_matplotlib(facts: Any) -> None:
    assert facts["plotting"] is False


def test_a_process_that_dies_is_replaced_and_a_slow_one_does_not_block_others() -> None:
    pool = GymProcessPool(1)
    request: dict[str, Any] = {"method": "item", "name": "lcm", "level": None, "config": {}, "seed": 3}
    first = pool.request("drawing", 60.0, **request)
    process = pool._idle[0].popen
    process.kill()
    process.wait()
    with pytest.raises(EnvFailed, match="crashed its process"):
        pool.request("drawing", 60.0, **request)
    assert pool.request("drawing", 60.0, **request) == first
    check_that_a_slow_request_does_not_block_others(pool)
    left = pool._idle[0].popen
    pool.close()
    assert left.poll() is not None


def check_that_a_slow_request_does_not_block_others(pool: GymProcessPool) -> None:
    pool.max_processes = 2
    request: dict[str, Any] = {"method": "item", "name": "lcm", "level": None, "config": {}}
    stopped = pool._idle[0].popen
    suspend(stopped.pid)  # it receives a request and does not reply until it is killed
    failures: list[EnvFailed] = []

    def request_slowly() -> None:
        try:
            pool.request("drawing", 300.0, seed=1, **request)
        except EnvFailed as err:
            failures.append(err)

    thread = threading.Thread(target=request_slowly)
    thread.start()
    while pool._idle:
        time.sleep(0.01)
    others = [pool.request("drawing", 60.0, seed=seed, **request) for seed in range(5)]
    assert len(others) == 5
    assert len(pool._all) == 2
    stopped.kill()
    thread.join()
    assert len(failures) == 1
    assert len(pool._all) == 1


# Agent replies are never evaluated as code


@pytest.mark.parametrize(
    "name",
    [
        "binary_matrix",
        "countdown",
        "intermediate_integration",
        "n_queens",
        "polynomial_multiplication",
        "puzzle24",
        "simple_integration",
        "spiral_matrix",
        "string_insertion",
    ],
)
def test_no_scorer_runs_what_an_agent_wrote(name: str, tmp_path: Path) -> None:
    env = palestra.make(f"rg:{name}", max_attempts=4)
    env.reset(seed=2)
    mark = tmp_path / "mark"
    for attack in (
        f"__import__('pathlib').Path('{mark}').touch()",
        f"[open('{mark}', 'w')]",
        f"().__class__.__base__.__subclasses__() or open('{mark}', 'w')",
        "9**9**9**9",
    ):
        step = env.step(boxed(attack))
        assert not step.info.get("success")
    assert step.done
    assert not mark.exists()


def started(name: str, **kwargs: Any) -> Any:
    env = ReasoningGym(name=name, **kwargs)
    env.reset(seed=1)
    return env


def accepts(env: Any, answer: str) -> bool:
    return bool(env.fork().step(boxed(answer)).info["success"])


def test_scorers_that_accept_anything_are_replaced() -> None:
    four = started("puzzle24")
    assert accepts(four, four.item.answer)
    assert not accepts(four, "1*1*3*8"), "an expression with other numbers was accepted"
    halting = started("game_of_life_halting")
    assert accepts(halting, halting.item.answer)
    assert not accepts(halting, "True" if halting.item.answer == "False" else "False")
    coins = started("coin_flip")
    assert accepts(coins, coins.item.answer)
    assert not accepts(coins, "0")
    assert not accepts(started("complex_arithmetic"), "nan")
    assert not accepts(started("intermediate_integration"), "Integral(x, x)")
    numbers = started("number_format", level=2)  # the candidates differ by 0.001
    assert accepts(numbers, numbers.item.answer)
    assert not accepts(numbers, str(float(numbers.item.answer) + 0.002))
    boxes = started("boxnet")
    assert accepts(boxes, boxes.item.answer)
    for nonsense in ("1", "{}", "[1]", '[{"Agent": 3}]', '[{"Agent[0.5, 0.5]": "move(box_red, square[9.5, 9.5])"}]'):
        assert not accepts(boxes, nonsense)


@pytest.mark.parametrize("level", [1, 2, 3])
def test_boards_of_the_game_of_life_do_not_die_out(level: int) -> None:
    env = ReasoningGym(name="game_of_life", level=level)
    answers = set()
    for seed in range(3):
        env.reset(seed=seed)
        answers.add(env.item.answer)
        assert "1" in env.item.answer
    assert len(answers) == 3


def test_surrounding_whitespace_is_ignored() -> None:
    env = started("gcd")
    assert accepts(env, f" {env.item.answer}\n")


# Processes


def _in_a_fork(queue: Any) -> None:
    env = palestra.make("rg:gcd")
    queue.put(env.reset(seed=5)[0])


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # the test forks a multi-threaded process
def test_a_forked_process_starts_its_own_pool() -> None:
    env = palestra.make("rg:gcd")
    prompt, _ = env.reset(seed=5)
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=_in_a_fork, args=(queue,))
    child.start()
    assert queue.get(timeout=60) == prompt
    child.join()
    assert child.exitcode == 0
    assert env.reset(seed=5)[0] == prompt
    assert shared_pool()._all


def test_settings_beyond_the_level() -> None:
    env = ReasoningGym(name="chain_sum", config={"min_terms": 7, "max_terms": 7, "allow_negation": False})
    prompt, _ = env.reset(seed=1)
    assert str(prompt).partition("Write your final")[0].count(" + ") + str(prompt).count(" - ") >= 6
    deeper = ReasoningGym(name="chain_sum", level=2, config={"min_terms": 9, "max_terms": 9})
    assert str(deeper.reset(seed=1)[0]) != str(ReasoningGym(name="chain_sum", level=2).reset(seed=1)[0])


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"name": "chain_som"}, "no dataset 'chain_som'. Did you mean chain_sum"),
        ({"name": "chain_sum", "level": 99}, "chain_sum has levels 0 to 10"),
        ({"name": "acre", "level": 0}, "acre has no levels"),
        ({"name": "knight_swap", "level": 1}, "level 1 of knight_swap is not available"),
        ({"name": "chain_sum", "config": {"min_trems": 3}}, "min_trems"),
        ({"name": "chain_sum", "config": {"min_terms": 0}}, "min_terms"),
        ({"name": "chain_sum", "config": {"seed": 3}}, "config must not contain seed"),
        ({"name": "chain_sum", "config": {"x": {1, 2}}}, "config must be a JSON-serializable dictionary"),
        ({"name": "chain_sum", "score_timeout": 0}, "score_timeout must be positive"),
    ],
)
def test_invalid_arguments_are_rejected(kwargs: dict[str, Any], message: str) -> None:
    with pytest.raises(BadValue, match=message):
        ReasoningGym(**kwargs)


def test_a_missing_package_raises_with_the_pip_command(tmp_path: Path) -> None:
    (tmp_path / "reasoning_gym").mkdir()
    (tmp_path / "reasoning_gym" / "__init__.py").write_text(
        "raise ModuleNotFoundError(\"No module named 'reasoning_gym'\", name='reasoning_gym')"
    )
    message = python(
        "import json, palestra\n"
        "from palestra.errors import MissingExtra\n"
        "try: palestra.make('rg:ab').reset()\n"
        "except MissingExtra as err: print(json.dumps(str(err)))",
        PYTHONPATH=os.pathsep.join([str(tmp_path), *sys.path]),
    )
    assert "[rg]'" in message


def test_programs_write_their_files_to_a_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Verify that codeio programs, which run when an item is generated, do not write to the working directory.

    The programs for these two seeds write files.
    """
    monkeypatch.chdir(tmp_path)
    shared_pool().close()  # new processes start in the current working directory
    env = palestra.make("rg:codeio")
    for seed in (976, 1664):
        env.reset(seed=seed)
    env.close()
    assert list(tmp_path.iterdir()) == []


def test_a_data_set_of_fixed_size_is_that_of_the_package(facts: Any) -> None:
    env: Any = palestra.make("rg:letter_counting", size=5, dataset_seed=7, split="test")
    assert env.num_tasks == 5
    for seed in (0, 3, 8):
        env.reset(seed=seed)
        assert env.unwrapped.item.question == facts["package_set"][seed % 5]
        assert env.step(env.expert_action()).info["success"]
    with pytest.raises(BadValue, match="size must be an integer of at least 1"):
        palestra.make("rg:letter_counting", size=0)
