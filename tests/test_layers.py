"""Check that packages import only from lower layers, by parsing the source and by blocking upper layers."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import palestra
from tests import warm_process

ROOT = Path(palestra.__file__).parent

# Lowest layer first. A package may import itself and packages in lower rows, but none in the same or a higher row.
ROWS = [
    {"errors", "progress", "machine"},
    {"types", "suggestions", "interrupt"},
    {"spec", "threads", "plain_data"},
    {"seeding", "optional", "cache", "sockets", "concurrency", "plugins", "keywords", "folders", "options"},
    {"core"},
    {"parsing"},
    {"browser"},
    {"tools"},
    {"grading"},
    {"wrappers", "envs", "workers"},
    {"remote"},
    {"registry"},
    {"conformance"},
    {"engines", "vector"},
    {"agents"},
    {"rollout"},
    {"algorithms", "reports"},
    {"training", "evals", "server", "integrations", "compat"},
    {"viewer"},
    {"cli"},
]
RANK = {package: rank for rank, row in enumerate(ROWS) for package in row}
TORCH_PACKAGES = {"engines", "algorithms", "training", "integrations"}
MODULE_NAME = re.compile(r"palestra(\.[a-z_][a-z0-9_]*)+(:\w[\w.]*)?")


def package_of(module: str) -> str:
    return module.split(".")[1] if "." in module else ""


def modules() -> Iterator[tuple[Path, str]]:
    for path in sorted(ROOT.rglob("*.py")):
        name = ".".join(path.relative_to(ROOT.parent).with_suffix("").parts).removesuffix(".__init__")
        if name not in ("palestra", "palestra.__main__") and "data" not in path.parts:
            yield path, name


def imports(tree: ast.AST, path: Path) -> Iterator[tuple[int, str]]:
    """Yield (line, module) for every import in a file, at any depth, including strings that name a module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: write absolute imports"
            yield node.lineno, node.module or ""
            for alias in node.names:
                yield node.lineno, f"{node.module}.{alias.name}"
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and MODULE_NAME.fullmatch(node.value):
            # The string may be an argument of import_module, or an entry point.
            yield node.lineno, node.value.partition(":")[0]


@cache
def imports_of(path: Path) -> list[tuple[int, str]]:
    return list(imports(ast.parse(path.read_text()), path))


def violations(path: Path, module: str) -> list[str]:
    package = package_of(module)
    problems = []
    for line, name in imports_of(path):
        top = name.split(".")[0]
        if top == "torch" and package not in TORCH_PACKAGES:
            problems.append(f"{path.name}:{line}: {package} must not import torch")
        target = package_of(name) if top == "palestra" else ""
        if target in RANK and target != package and RANK[target] >= RANK[package]:
            problems.append(f"{path.name}:{line}: {package} must not import {target}")
    return sorted(set(problems))


def test_every_module_belongs_to_a_row() -> None:
    assert sorted({package_of(name) for _, name in modules()} - RANK.keys()) == []


def test_source_imports_downward_only() -> None:
    assert [problem for path, name in modules() for problem in violations(path, name)] == []


def test_upward_imports_are_detected(tmp_path: Path) -> None:
    bad = tmp_path / "bad.py"
    bad.write_text(
        "from importlib import import_module\n"
        "def f():\n    from palestra.registry import make\n    import torch\n"
        "    import_module('palestra.remote.client')\n"
    )
    assert len(violations(bad, "palestra.envs.games.bad")) == 3
    good = tmp_path / "good.py"
    good.write_text("from palestra import errors\nfrom palestra.core import Env\n")
    assert violations(good, "palestra.envs.games.good") == []


# This program loads the rows in order and imports each package in a fork, where the other packages in its row and all
# higher rows are blocked. It detects dynamic imports whose target is not a string constant.
BLOCKED_IMPORTS = """
import importlib, json, os, pkgutil, sys, traceback, warnings
warnings.simplefilter("ignore")
rows = json.loads(sys.argv[1])
sys.path += sys.argv[2:]
for name in [name for name in sys.modules if name.split(".")[0] == "palestra"]:
    del sys.modules[name]  # the process has imported some packages already
blocked = set()

class Block:
    @staticmethod
    def find_spec(name, path=None, target=None):
        parts = name.split(".")
        if parts[0] == "palestra" and len(parts) > 1 and parts[1] in blocked:
            raise ImportError(f"{name} is not below the package that imports it")

def load(package):
    module = importlib.import_module(f"palestra.{package}")
    for info in pkgutil.walk_packages(getattr(module, "__path__", []), f"palestra.{package}."):
        if ".inside" not in info.name and not info.name.endswith("__main__"):
            try:
                importlib.import_module(info.name)
            except ImportError as err:
                if type(err).__name__ != "MissingExtra":  # `make test-frameworks` tests adapters of large frameworks
                    raise

def check(package):
    load(package)
    if package in ("registry", "vector", "rollout", "evals"):
        import palestra
        env = palestra.make("game:GuessTheNumber-v0-easy", tools=["python"])
        env.reset(seed=1)
        env.step(env.sample_random_action())
        env.close()

sys.meta_path.insert(0, Block)
failed = []
for rank, row in enumerate(rows):
    higher = {package for upper in rows[rank:] for package in upper}
    for package in row:
        child = os.fork()
        if not child:
            blocked |= higher - {package}
            try:
                check(package)
            except BaseException:
                sys.stderr.write(f"{package}: {traceback.format_exc()[-2000:]}")
                os._exit(1)
            os._exit(0)
        if os.waitpid(child, 0)[1]:
            failed.append(package)
    for package in row if rank < len(rows) - 1 and not failed else ():
        load(package)
print(json.dumps(failed))
"""


def test_packages_import_with_the_layers_above_blocked() -> None:
    rows = json.dumps([sorted(row) for row in ROWS])
    frameworks = map(str, (ROOT.parent / ".cache" / "frameworks").glob("*"))  # for the integrations
    done = warm_process.run([sys.executable, "-c", BLOCKED_IMPORTS, rows, *frameworks], capture_output=True)
    assert done.stdout == "[]\n", done.stderr


def dependencies(path: Path, module: str, names: set[str]) -> set[str]:
    """Return the modules in `names` that a file imports, except imports under TYPE_CHECKING."""
    text = path.read_text()
    if "TYPE_CHECKING" in text:
        tree = ast.parse(text)
        for node in ast.walk(tree):
            if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
                node.body = []
        targets = {name for _, name in imports(tree, path)}
    else:
        targets = {name for _, name in imports_of(path)}
    packages = {name.rpartition(".")[0] for name in targets if name in names}
    return {name for name in targets if name in names and name != module and name not in packages}


def reachable(graph: dict[str, set[str]], start: str) -> set[str]:
    seen: set[str] = set()
    todo = [start]
    while todo:
        for target in graph[todo.pop()] - seen:
            seen.add(target)
            todo.append(target)
    return seen


def cycles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Return the groups of modules that import each other."""
    closure = {name: reachable(graph, name) for name in graph}
    groups = {tuple(sorted(o for o in closure[n] if n in closure[o])) for n in graph if n in closure[n]}
    return [list(group) for group in sorted(groups)]


def test_no_import_cycles() -> None:
    files = {name: path for path, name in modules()}
    assert cycles({name: dependencies(path, name, set(files)) for name, path in files.items()}) == []


def test_cycles_are_detected() -> None:
    assert cycles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": set()}) == [["b", "c"]]
    assert cycles({"a": {"b"}, "b": {"c"}, "c": set()}) == []


def run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


def test_import_loads_only_the_standard_library() -> None:
    code = (
        "import sys; before = set(sys.modules); import palestra; palestra.list_envs(); palestra.make; "
        "print(*{m.split('.')[0] for m in set(sys.modules) - before})"
    )
    loaded = set(run(code).split())
    assert loaded - set(sys.stdlib_module_names) == {"palestra"}


def test_import_is_lazy() -> None:
    loaded = run("import sys, palestra; print(*[m for m in sys.modules if m.startswith('palestra')])").split()
    assert loaded == ["palestra"]


def test_listing_environments_imports_catalogs_only() -> None:
    loaded = run("import sys, palestra; palestra.list_envs(); print(*sys.modules)").split()
    assert "palestra.envs.games.catalog" in loaded
    assert "palestra.envs.games.sudoku" not in loaded
