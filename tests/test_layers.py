"""Imports go downward only, and the heavy ones stay in their rooms."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import palestra

ROOT = Path(palestra.__file__).parent

# From the bottom up; a module may import from its own row's module and from any row below, never from beside or above.
ROWS = [
    {"errors"},
    {"types"},
    {"spec"},
    {"seeding", "optional", "cache", "sockets"},
    {"core"},
    {"parsing"},
    {"tools"},
    {"grading"},
    {"wrappers", "envs", "workers"},
    {"remote"},
    {"registry", "plugins"},
    {"conformance"},
    {"engines", "vector"},
    {"agents"},
    {"rollout"},
    {"algorithms", "reports"},
    {"training", "evals", "server", "viewer", "integrations", "compat"},
    {"cli"},
]
RANK = {room: rank for rank, row in enumerate(ROWS) for room in row}
TORCH_ROOMS = {"engines", "algorithms", "training"}


def room_of(module: str) -> str:
    return module.split(".")[1] if "." in module else ""


def imports(path: Path) -> Iterator[tuple[int, str]]:
    """Every module a file imports, at any depth of it, with its line."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: write imports in full"
            yield node.lineno, node.module or ""
            for alias in node.names:
                yield node.lineno, f"{node.module}.{alias.name}"


def violations(path: Path, module: str) -> list[str]:
    room = room_of(module)
    found = []
    for line, name in imports(path):
        top = name.split(".")[0]
        if top == "torch" and room not in TORCH_ROOMS:
            found.append(f"{path.name}:{line}: torch does not belong in {room}")
        target = room_of(name) if top == "palestra" else ""
        if target in RANK and target != room and RANK[target] >= RANK[room]:
            found.append(f"{path.name}:{line}: {room} must not import {target}")
    return sorted(set(found))


def modules() -> Iterator[tuple[Path, str]]:
    for path in sorted(ROOT.rglob("*.py")):
        dotted = ".".join(path.relative_to(ROOT.parent).with_suffix("").parts).removesuffix(".__init__")
        if dotted not in ("palestra", "palestra.__main__") and "data" not in path.parts:
            yield path, dotted


@pytest.mark.parametrize(("path", "module"), list(modules()), ids=lambda value: value if isinstance(value, str) else "")
def test_imports_go_downward(path: Path, module: str) -> None:
    assert room_of(module) in RANK, f"{module} is in no row: give its room a place"
    assert violations(path, module) == []


def test_the_test_itself_sees_an_upward_import(tmp_path: Path) -> None:
    bad = tmp_path / "bad.py"
    bad.write_text("def f():\n    from palestra.registry import make\n    import torch\n")
    assert len(violations(bad, "palestra.envs.games.bad")) == 2
    good = tmp_path / "good.py"
    good.write_text("from palestra import errors\nfrom palestra.core import Env\n")
    assert violations(good, "palestra.envs.games.good") == []


def run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


def test_import_loads_nothing_outside_the_standard_library() -> None:
    code = (
        "import sys; before = set(sys.modules); import palestra; palestra.list_envs(); palestra.make; "
        "print(*{m.split('.')[0] for m in set(sys.modules) - before})"
    )
    loaded = set(run(code).split())
    assert loaded - set(sys.stdlib_module_names) == {"palestra"}


def test_import_is_lazy() -> None:
    loaded = run("import sys, palestra; print(*[m for m in sys.modules if m.startswith('palestra')])").split()
    assert loaded == ["palestra"]


def test_listing_loads_no_environment() -> None:
    loaded = run("import sys, palestra; palestra.list_envs(); print(*sys.modules)").split()
    assert "palestra.envs.games.catalog" in loaded
    assert "palestra.envs.games.sudoku" not in loaded
