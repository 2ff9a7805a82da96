"""reasoning-gym behind its shields."""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import palestra
from palestra.envs.rg.dataset import ReasoningGym
from palestra.envs.rg.levels import RATES
from palestra.envs.rg.pool import Pool, shared_pool
from palestra.errors import BadValue, EnvFailed, InfrastructureError
from palestra.parsing import boxed


def python(code: str, **variables: str) -> Any:
    """What `code` prints as JSON, in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, env={**os.environ, **variables}
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_the_catalog_is_the_packages() -> None:
    """Every data set and level; those without an id are refused by the package itself, or never come to an end."""
    found = python(
        "import json, reasoning_gym\n"
        "from reasoning_gym.factory import CURRICULA, DATASETS, create_curriculum\n"
        "levels = {}\n"
        "for name in DATASETS:\n"
        "    levels[name] = []\n"
        "    curriculum = create_curriculum(name) if name in CURRICULA else None\n"
        "    count = max((len(a.levels) for a in curriculum.attributes.values()), default=0) if curriculum else 0\n"
        "    for level in range(count):\n"
        "        curriculum.set_global_level(level)\n"
        "        try:\n"
        "            chosen = curriculum.generate_configuration({'seed': 1, 'size': 1})\n"
        "            getattr(chosen, 'validate', lambda: None)()\n"
        "            levels[name].append(True)\n"
        "        except AssertionError:\n"
        "            levels[name].append(False)\n"
        "print(json.dumps(levels))"
    )
    del found["composite"]  # a mixture of others; `make_vec` and training recipes mix ids
    found["jugs"][3] = False  # no item within minutes
    ours = {name: [rates is not None for rates in levels[1:]] for name, levels in RATES.items()}
    assert ours == found
    assert len(palestra.list_envs("rg")) == sum(1 + sum(levels) for levels in found.values())
    assert "rg:ab" in palestra.list_envs("rg")
    assert palestra.get_spec("rg:chain_sum-l3").kwargs == {"name": "chain_sum", "level": 3}


def test_listing_does_not_import_it() -> None:
    loaded = python(
        "import json, sys, palestra; palestra.list_envs(); env = palestra.make('rg:ab'); "
        "print(json.dumps([m for m in sys.modules if 'reasoning_gym' in m or m == 'numpy']))"
    )
    assert loaded == []


def test_data_sets_that_are_given_a_new_seed_draw_what_new_ones_would() -> None:
    different = python(
        "import json\n"
        "from palestra.envs.rg.worker import RESEEDED, Gym\n"
        "gym, found = Gym(), []\n"
        "for name in sorted(RESEEDED):\n"
        "    fresh = [gym._made(name, None, {}, seed)[0] for seed in (5, 77)]\n"
        "    used = [gym._entry(name, None, {}, seed) for seed in (9, 77, 5)]\n"
        "    if [e['question'] for e in fresh] != [used[2]['question'], used[1]['question']]: found.append(name)\n"
        "    if [e['answer'] for e in fresh] != [used[2]['answer'], used[1]['answer']]: found.append(name)\n"
        "print(json.dumps(found))"
    )
    assert different == []


# A scorer's fault is no reward


HARD_TO_PARSE = "+".join(f"(x+{k})**{k % 190}" for k in range(900))  # keeps sympy busy for seconds


def test_a_scorer_that_hangs_is_an_infrastructure_error() -> None:
    env = ReasoningGym(name="polynomial_multiplication", score_limit=0.2)
    env.reset(seed=1)
    with pytest.raises(EnvFailed, match=r"the scorer of polynomial_multiplication took longer than 0\.2 s") as caught:
        env.step(boxed(HARD_TO_PARSE))
    assert isinstance(caught.value, InfrastructureError)
    assert env.turn == 0, "the attempt is not used up"
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


def test_a_process_that_dies_is_replaced() -> None:
    pool = Pool(1)
    request: dict[str, Any] = {"do": "item", "name": "lcm", "level": None, "config": {}, "seed": 3}
    first = pool.ask("drawing", 60.0, **request)
    worker = pool._idle[0]
    worker.process.kill()
    worker.process.wait()
    with pytest.raises(EnvFailed, match="brought its process down"):
        pool.ask("drawing", 60.0, **request)
    assert pool.ask("drawing", 60.0, **request) == first
    left = pool._idle[0].process
    pool.close()
    assert left.poll() is not None


def test_a_slow_request_does_not_hold_up_the_others() -> None:
    pool = Pool(2)
    which: dict[str, Any] = {"name": "polynomial_multiplication", "level": None, "config": {}}
    item = pool.ask("drawing", 60.0, do="item", seed=1, **which)

    def slow() -> None:
        with suppress(EnvFailed):  # it is ended below, unless it was faster
            pool.ask("scoring", 300.0, do="score", answer=HARD_TO_PARSE, entry=item["entry"], **which)

    thread = threading.Thread(target=slow)
    thread.start()
    while pool._idle:
        pass
    others = [pool.ask("drawing", 60.0, do="item", seed=seed, **which) for seed in range(5)]
    assert len(others) == 5
    assert len(pool._all) == 2
    pool.close()
    thread.join()


# Agents' text is not evaluated


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


def drawn(name: str, **kwargs: Any) -> Any:
    env = ReasoningGym(name=name, **kwargs)
    env.reset(seed=1)
    return env


def accepts(env: Any, answer: str) -> bool:
    return bool(env.fork().step(boxed(answer)).info["success"])


def test_scorers_that_accept_anything_are_replaced() -> None:
    four = drawn("puzzle24")
    assert accepts(four, four.item.answer)
    assert not accepts(four, "1*1*3*8"), "the package takes any four numbers"
    halting = drawn("game_of_life_halting")
    assert accepts(halting, halting.item.answer)
    assert not accepts(halting, "True" if halting.item.answer == "False" else "False")
    coins = drawn("coin_flip")
    assert accepts(coins, coins.item.answer)
    assert not accepts(coins, "0")
    assert not accepts(drawn("complex_arithmetic"), "nan")
    assert not accepts(drawn("intermediate_integration"), "Integral(x, x)")
    boxes = drawn("boxnet")
    assert accepts(boxes, boxes.item.answer)
    for nonsense in ("1", "{}", "[1]", '[{"Agent": 3}]', '[{"Agent[0.5, 0.5]": "move(box_red, square[9.5, 9.5])"}]'):
        assert not accepts(boxes, nonsense)


def test_blanks_around_an_answer_do_not_count() -> None:
    env = drawn("gcd")
    assert accepts(env, f" {env.item.answer}\n")


# Where they run


def test_items_depend_on_the_seed_alone_in_every_process() -> None:
    code = (
        "import json, palestra\n"
        "from palestra.envs.rg.dataset import ReasoningGym\n"
        "found = []\n"
        "for name in ('time_intervals', 'pool_matrix', 'list_functions', 'survo', 'acre', 'propositional_logic'):\n"
        "    env = ReasoningGym(name=name)\n"
        "    found += [env.reset(seed=seed)[0] for seed in (1, 2)]\n"
        "print(json.dumps(found))"
    )
    assert python(code, PYTHONHASHSEED="3", TZ="UTC") == python(code, PYTHONHASHSEED="4", TZ="Asia/Tokyo")


def _in_a_fork(queue: Any) -> None:
    env = palestra.make("rg:gcd")
    queue.put(env.reset(seed=5)[0])


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # threads and forks: this is about just that
def test_a_forked_process_starts_its_own() -> None:
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
        ({"name": "chain_som"}, "no data set 'chain_som'. Did you mean chain_sum"),
        ({"name": "chain_sum", "level": 99}, "chain_sum has levels 0 to 10"),
        ({"name": "acre", "level": 0}, "acre has no levels"),
        ({"name": "knight_swap", "level": 1}, "knight_swap has no level 1 that can be drawn"),
        ({"name": "chain_sum", "config": {"min_trems": 3}}, "min_trems"),
        ({"name": "chain_sum", "config": {"min_terms": 0}}, "min_terms"),
        ({"name": "chain_sum", "config": {"seed": 3}}, "config does not take seed"),
        ({"name": "chain_sum", "config": {"x": {1, 2}}}, "config is a dictionary"),
        ({"name": "chain_sum", "score_limit": 0}, "limits are seconds above 0"),
    ],
)
def test_what_does_not_exist_is_said_at_once(kwargs: dict[str, Any], message: str) -> None:
    with pytest.raises(BadValue, match=message):
        ReasoningGym(**kwargs)


def test_without_the_package_the_pip_line_is_told(tmp_path: Path) -> None:
    (tmp_path / "reasoning_gym").mkdir()
    (tmp_path / "reasoning_gym" / "__init__.py").write_text(
        "raise ModuleNotFoundError(\"No module named 'reasoning_gym'\", name='reasoning_gym')"
    )
    told = python(
        "import json, palestra\n"
        "from palestra.errors import MissingExtra\n"
        "try: palestra.make('rg:ab').reset()\n"
        "except MissingExtra as err: print(json.dumps(str(err)))",
        PYTHONPATH=os.pathsep.join([str(tmp_path), *sys.path]),
    )
    assert "pip install 'palestra[rg]'" in told


def test_programs_that_write_files_write_them_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """codeio runs its programs to draw their inputs; these two fill a folder and a table."""
    monkeypatch.chdir(tmp_path)
    shared_pool().close()  # workers begin where they are started
    env = palestra.make("rg:codeio")
    for seed in (976, 1664):
        env.reset(seed=seed)
    env.close()
    assert list(tmp_path.iterdir()) == []
