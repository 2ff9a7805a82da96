"""Test that Palestra's public names are sorted, complete and importable."""

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
    "palestra.integrations.gymnasium",
    "palestra.integrations.mcp",
    "palestra.plugins",
    "palestra.registry",
    "palestra.remote",
    "palestra.rollout",
    "palestra.server",
    "palestra.tools",
    "palestra.tools.mcp",
    "palestra.tools.sandbox",
    "palestra.tools.search",
    "palestra.training",
    "palestra.vector",
    "palestra.viewer",
    "palestra.wrappers",
]


@pytest.mark.parametrize("name", PACKAGES)
def test_all_is_sorted_and_every_name_exists(name: str) -> None:
    module = importlib.import_module(name)
    assert list(module.__all__) == sorted(module.__all__)
    assert len(set(module.__all__)) == len(module.__all__)
    for public in module.__all__:
        assert getattr(module, public) is not None


def test_every_public_name_has_a_module() -> None:
    assert set(palestra._MODULES) | palestra._PACKAGES == set(palestra.__all__)
    assert set(palestra.__all__) <= set(dir(palestra))


def test_no_function_shares_its_name_with_a_package() -> None:
    folders = {path.name.removesuffix(".py") for path in Path(palestra.__file__).parent.iterdir()}
    assert set(palestra._MODULES) & folders == set()


def test_type_checkers_see_the_same_names() -> None:
    tree = ast.parse(Path(palestra.__file__).read_text())
    block = next(node for node in tree.body if isinstance(node, ast.If))
    names = {alias.name for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert names == set(palestra.__all__)


def test_an_unknown_name_raises_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'mkae'"):
        palestra.mkae  # noqa: B018


def test_the_docstring_of_errors_shows_every_exception() -> None:
    words = (errors.__doc__ or "").split()
    classes = [c for _, c in inspect.getmembers(errors, inspect.isclass) if issubclass(c, Exception)]
    for cls in classes:
        assert cls.__name__ in words
        assert cls is errors.PalestraError or issubclass(cls, errors.PalestraError)
