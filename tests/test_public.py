"""The public names: complete, sorted, and all there."""

from __future__ import annotations

import ast
import importlib
import inspect
from pathlib import Path

import pytest

import palestra
from palestra import errors

PACKAGES = [
    "palestra",
    "palestra.agents",
    "palestra.algorithms",
    "palestra.conformance",
    "palestra.engines",
    "palestra.evals",
    "palestra.grading",
    "palestra.integrations.mcp",
    "palestra.rollout",
    "palestra.vector",
    "palestra.tools",
    "palestra.tools.sandbox",
    "palestra.tools.mcp",
    "palestra.tools.search",
    "palestra.viewer",
    "palestra.wrappers",
]


@pytest.mark.parametrize("name", PACKAGES)
def test_all_is_sorted_and_resolves(name: str) -> None:
    module = importlib.import_module(name)
    assert module.__all__ == sorted(module.__all__)
    for public in module.__all__:
        assert getattr(module, public) is not None


def test_lazy_names_are_the_declared_ones() -> None:
    assert set(palestra._HOME) | palestra._PACKAGES == set(palestra.__all__)
    assert set(palestra.__all__) <= set(dir(palestra))


def test_the_type_checker_sees_the_same_names() -> None:
    tree = ast.parse(Path(palestra.__file__).read_text())
    block = next(n for n in tree.body if isinstance(n, ast.If))
    seen = {alias.name for n in block.body if isinstance(n, ast.ImportFrom) for alias in n.names}
    assert seen == set(palestra.__all__)


def test_a_wrong_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'mkae'"):
        palestra.mkae  # noqa: B018


def test_the_exception_tree_is_drawn_in_full() -> None:
    drawn = (errors.__doc__ or "").split()
    classes = [c for _, c in inspect.getmembers(errors, inspect.isclass) if issubclass(c, Exception)]
    for cls in classes:
        assert cls.__name__ in drawn
        assert cls is errors.PalestraError or issubclass(cls, errors.PalestraError)
