"""Test the engine registry: built-in engines, registrations in Python, and entry points."""

from __future__ import annotations

from importlib.metadata import EntryPoint

import pytest

from palestra import plugins
from palestra.engines import ScriptedEngine, engine_names, get_engine, make_engine, register_engine, registry
from palestra.errors import BadValue


@pytest.fixture(autouse=True)
def _empty_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry.ENGINES, "registered", {})


def test_built_in_engines_have_names() -> None:
    assert engine_names() == ["local", "openai", "scripted", "sglang", "vllm"]
    assert get_engine("scripted") is ScriptedEngine
    assert isinstance(make_engine("scripted", ["yes"]), ScriptedEngine)


def test_registered_factory_is_used() -> None:
    def parrot(word: str = "squawk") -> ScriptedEngine:
        return ScriptedEngine([word])

    register_engine("parrot", parrot)
    register_engine("parrot", parrot)  # importing a plug-in twice is harmless
    assert isinstance(make_engine("parrot", word="hello"), ScriptedEngine)
    assert "parrot" in engine_names()


def test_names_are_unique_unless_overwritten() -> None:
    with pytest.raises(BadValue, match="'local' already exists"):
        register_engine("local", ScriptedEngine)
    register_engine("local", ScriptedEngine, overwrite=True)
    assert get_engine("local") is ScriptedEngine


def test_a_factory_must_be_callable() -> None:
    with pytest.raises(BadValue, match="must be callable, got str"):
        register_engine("parrot", "ScriptedEngine")  # type: ignore[arg-type]


def test_entry_points_are_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    entry_point = EntryPoint("installed", "palestra.engines.scripted:ScriptedEngine", "palestra.engines")
    monkeypatch.setattr(plugins, "_entry_points", {"engines": {"installed": entry_point}})
    monkeypatch.setattr(plugins, "_objects", {})
    assert get_engine("installed") is ScriptedEngine
    assert "installed" in engine_names()


def test_unknown_name_lists_the_available_ones() -> None:
    with pytest.raises(BadValue, match=r"no engine named 'lokal'. Did you mean local\? Available: local, openai"):
        get_engine("lokal")
