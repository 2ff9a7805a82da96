"""Test that training and test programs differ in more than names and constants."""

from __future__ import annotations

import ast
import builtins
from typing import Any

import pytest

import palestra
from palestra.envs.code.programs import program_structure

IDS = [env_id for env_id in palestra.list_envs("code") if not palestra.get_spec(env_id).needs_data]


class _Renamer(ast.NodeTransformer):
    """Rename variables in order of appearance, and replace numbers and strings with their type."""

    def __init__(self) -> None:
        self.names: dict[str, str] = {}

    def rename(self, name: str) -> str:
        return name if hasattr(builtins, name) else self.names.setdefault(name, f"v{len(self.names)}")

    def visit_arg(self, node: ast.arg) -> ast.arg:
        node.arg = self.rename(node.arg)
        return node

    def visit_Name(self, node: ast.Name) -> ast.Name:
        node.id = self.rename(node.id)
        return node

    def visit_Constant(self, node: ast.Constant) -> ast.Constant:
        if isinstance(node.value, str) or type(node.value) is int:
            node.value = type(node.value).__name__
        return node


def shape(source: str) -> str:
    return ast.dump(_Renamer().visit(ast.parse(source)))


@pytest.mark.parametrize("env_id", IDS)
def test_programs_of_the_two_splits_have_different_structures(env_id: str) -> None:
    shapes: dict[str, set[str]] = {}
    for split in ("train", "test"):
        env: Any = palestra.make(env_id, split=split)
        shapes[split] = set()
        for seed in range(20):
            env.reset(seed=seed)
            shapes[split].add(shape(env.unwrapped.item.answer))
    assert not shapes["train"] & shapes["test"]
    assert min(map(len, shapes.values())) > 5


def test_structure_ignores_names_and_constants() -> None:
    first = 'def solve(xs):\n    total = 0\n    for x in xs:\n        total += x * 3\n    return "a" + str(total)'
    renamed = 'def solve(ys):\n    n = -7\n    for y in ys:\n        n += y * 12\n    return "b" + str(n)'
    assert program_structure(first) == program_structure(renamed)
    assert program_structure(first) != program_structure(first.replace("*", "-"))
    assert program_structure(first) != program_structure(first.replace("str(", "abs("))
    assert program_structure("def solve(a, b):\n    return a - b") != program_structure(
        "def solve(a, b):\n    return b - a"
    )
