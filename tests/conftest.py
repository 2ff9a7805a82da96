"""Environment variables, Hypothesis profiles and pytest hooks for the whole test suite."""

from __future__ import annotations

import fcntl
import gc
import os
import shlex
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

from tests.warm_process import TEST_RUN

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # tests must not download anything
os.environ.setdefault("OMP_NUM_THREADS", "1")  # the test models are tiny, and tests run in parallel
os.environ.setdefault("PALESTRA_OSCAR", str(Path(__file__).parents[1] / ".cache" / "frameworks" / "oscar"))
os.environ.setdefault("PALESTRA_CACHE", str(Path(__file__).parents[1] / ".cache" / "palestra"))

# On x86, importing pyarrow starts a thread of an allocator that it does not use by default; with it, the warm process
# could not be forked safely, and every program would be a new process.
os.environ.setdefault("JE_ARROW_MALLOC_CONF", "background_thread:false")

# With the fast compiler alone, ScienceWorld's Java process needs a third less CPU time, because the tests are short.
os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1")

# The tests start hundreds of Python processes, each of which would compile the modules again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # `make test &` ignores SIGINT, but the Ctrl-C tests need it
    signal.signal(signal.SIGINT, signal.default_int_handler)

# No deadlines, because speed is measured in benchmarks/. CI uses fixed examples. Local runs use fewer, random examples,
# because every run generates new ones.
CI = "CI" in os.environ
slow = [HealthCheck.too_slow]
settings.register_profile(
    "palestra", deadline=None, derandomize=CI, max_examples=100 if CI else 50, suppress_health_check=slow
)
settings.load_profile("palestra")

# Hypothesis would parse all imported modules, including frameworks in .cache, to use their constants as likely values,
# which takes 30 s of CPU time per worker in a new clone.
providers.is_local_module_file = lambda _: False  # type: ignore[assignment, attr-defined]

HERE = Path(__file__).parent
# Files, and functions as FILE::FUNCTION, that take more than about 0.5 s or start servers, browsers or training runs
SLOW = frozenset((HERE / "slow_tests.txt").read_text().split())
# Files with the longest tests, which start first, so that the other workers need not wait for them at the end
FIRST = {
    "cli/test_train.py",
    "engines/test_default_model.py",
    "test_docs.py",
    "tools/test_sandbox.py",
    "training/test_distributed.py",
}
# Files that run after those of a folder, in the same worker, because both use the same Java, browser or other process
AFTER = {
    "conformance/test_miniwob.py": "envs/miniwob/",
    "conformance/test_reasoning_gym.py": "envs/rg/",
    "conformance/test_sciworld.py": "envs/sciworld/",
}
TAUGHT = {
    "env": "game:GuessTheNumber-v0-easy",
    "model": "default:0.1M",
    "steps": 1,
    "episodes": 4,
    "group_size": 4,
    "warm_start": 128,
    "warm_epochs": 3,
    "warm_batch": 8,
    "warm_lr": 1e-2,
    "lr": 1e-9,
    "eval_episodes": 1,
    "max_tokens": 8,
    "threads": 1,
}


@pytest.fixture(scope="session")
def taught(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return a run whose model was trained on the random player's games, so that its own returns vary.

    The first worker that needs it trains it, and the others read it from the folder that all workers share.
    """
    root = tmp_path_factory.getbasetemp()
    folder = (root.parent if "PYTEST_XDIST_WORKER" in os.environ else root) / "taught"
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "done").exists():
            from palestra.training import train
            from palestra.training.recipe import from_mapping

            train(from_mapping({**TAUGHT, "out": str(folder / "run")}))
            (folder / "done").touch()
    return str(folder / "run")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark slow tests, and move files with long or slow tests to the front."""
    names = {path: path.relative_to(HERE).as_posix() for path in {item.path for item in items}}
    files = {item: names[item.path] for item in items}
    for item, file in files.items():
        if file in SLOW or f"{file}::{getattr(item, 'originalname', item.name)}" in SLOW:
            item.add_marker(pytest.mark.slow)
    slow = {files[item] for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: (files[item] not in FIRST, files[item] not in slow))
    for file, folder in AFTER.items():
        last = max((i for i, item in enumerate(items) if files[item].startswith(folder)), default=None)
        if last is not None:
            before, after = items[: last + 1], items[last + 1 :]
            moved = [item for item in items if files[item] == file]
            items[:] = [*(i for i in before if files[i] != file), *moved, *(i for i in after if files[i] != file)]


@pytest.fixture(scope="module", autouse=True)
def _freeze() -> None:
    """Exclude objects that exist before a module's tests from garbage collection, which would traverse them each time.

    A collection takes 0.3 s once all libraries are imported, and many tests and `check_env` start one.
    """
    gc.collect()
    gc.freeze()


def pytest_runtest_teardown() -> None:
    """Undo changes to process-wide state that would affect other tests in this process.

    torch disables oneDNN at the first bfloat16 product on a CPU without bfloat16 instructions, but runs in this process
    are compared with runs in new processes, where it is enabled. Worker processes import the modules of `--import`,
    which exist only during the test that wrote them.
    """
    torch = sys.modules.get("torch")
    if torch is not None and not torch._C._get_mkldnn_enabled():
        torch._C._set_mkldnn_enabled(True)
    plugins = sys.modules.get("palestra.plugins")
    if plugins is not None:
        plugins._imported.clear()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes(specs: list[Any]) -> None:
    """Start the workers as forks of the warm process, which has already imported the large packages."""
    os.environ[TEST_RUN] = str(os.getpid())
    for spec in specs:
        spec.python = shlex.join([sys.executable, str(HERE / "warm_worker.py")])


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object:
    """Assign consecutive tests to each worker, so that it builds module fixtures once; idle workers steal tests."""
    from xdist.scheduler import WorkStealingScheduling  # type: ignore[import-untyped]  # no type hints

    return WorkStealingScheduling(config, log) if config.getoption("dist") == "load" else None
