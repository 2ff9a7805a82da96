"""Test tools defined as classes and functions: schemas, argument checks, failures and registration."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Sequence
from importlib.metadata import EntryPoint
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

import palestra
from palestra import plugins
from palestra.errors import BadValue, EngineFailed, ToolFailed
from palestra.tools import (
    BadCall,
    Tool,
    ToolResult,
    Toolset,
    get_tool,
    make_toolset,
    register_tool,
    registry,
    tool,
    tool_names,
)
from palestra.tools.instructions import instructions
from palestra.tools.schema import check_arguments


class Dice(Tool):
    """Roll a die.

    sides: number of sides
    """

    def call(self, sides: int = 6) -> str:
        if sides < 2:
            raise BadCall("a die has at least 2 sides")
        return f"{sides // 2}"


def weather(city: str, days: int = 1, unit: Literal["C", "F"] = "C") -> dict[str, Any]:
    """Report the weather.

    Args:
        city: name of the city
        days: number of days to forecast
    """
    return {"city": city, "days": days, "unit": unit}


async def slow(seconds: float) -> str:
    """Wait."""
    await asyncio.sleep(seconds)
    return threading.current_thread().name


def test_schema_of_a_class() -> None:
    die = Dice()
    assert (die.name, die.description) == ("dice", "Roll a die.")
    assert die.schema["function"]["parameters"] == {
        "type": "object",
        "properties": {"sides": {"type": "integer", "description": "number of sides", "default": 6}},
        "required": [],
        "additionalProperties": False,
    }
    assert die.run({}) == ToolResult(text="3")
    assert die.run({"sides": "20"}).text == "10"  # models write numbers as strings
    assert asyncio.run(die.arun({"sides": 20.0})).text == "10"


def test_schema_of_a_function() -> None:
    function_tool = tool(weather)
    assert (function_tool.name, function_tool.description) == ("weather", "Report the weather.")
    properties = function_tool.parameters["properties"]
    assert properties["city"] == {"type": "string", "description": "name of the city"}
    assert properties["unit"] == {"enum": ["C", "F"], "default": "C"}
    assert function_tool.parameters["required"] == ["city"]
    assert json.loads(str(function_tool.run({"city": "Rome"}).text)) == {"city": "Rome", "days": 1, "unit": "C"}


def test_type_hints() -> None:
    def f(
        a: list[int],
        b: dict[str, float] | None = None,
        c: Annotated[str, "text to print"] = "",
        d: Sequence[str] = (),
        e: Any = None,
    ) -> None:
        """Do nothing."""

    properties = tool(f).parameters["properties"]
    assert properties["a"] == {"type": "array", "items": {"type": "integer"}}
    assert properties["b"]["anyOf"][0] == {"type": "object", "additionalProperties": {"type": "number"}}
    assert properties["c"] == {"type": "string", "description": "text to print", "default": ""}
    assert properties["d"] == {"type": "array", "items": {"type": "string"}}
    assert properties["e"] == {}


@pytest.mark.parametrize(
    ("function", "error"),
    [
        (lambda x: x, "no valid tool name"),
        (print, "named arguments"),
    ],
)
def test_functions_that_cannot_be_tools(function: Any, error: str) -> None:
    with pytest.raises(BadValue, match=error):
        tool(function)


def test_missing_docstrings_hints_and_names() -> None:
    def silent(x: int) -> int:
        return x

    def untyped(x):  # type: ignore[no-untyped-def]
        """Do nothing."""

    def odd(x: threading.Thread) -> None:
        """Do nothing."""

    with pytest.raises(BadValue, match="docstring"):
        tool(silent)
    with pytest.raises(BadValue, match="argument x needs a type hint"):
        tool(untyped)
    with pytest.raises(BadValue, match="must be JSON values"):
        tool(odd)
    with pytest.raises(BadValue, match="no tool named 'pyton'. Did you mean python"):
        make_toolset("pyton")
    with pytest.raises(BadValue, match="must be a name, a Tool or a function"):
        make_toolset(5)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "missing argument 'city'"),
        ({"city": "x", "town": 1}, "unknown argument 'town'"),
        ({"city": 5}, "city must be a string"),
        ({"city": "x", "days": "many"}, "days must be an integer"),
        ({"city": "x", "days": True}, "days must be an integer"),
        ({"city": "x", "unit": "K"}, "unit must be one of"),
    ],
)
def test_wrong_arguments_get_a_helpful_error(arguments: dict[str, Any], message: str) -> None:
    result = tool(weather).run(arguments)
    assert not result.ok
    assert message in str(result.text)
    assert "It takes: city, days (optional), unit (optional)." in str(result.text) or "It takes" in str(result.text)
    assert asyncio.run(tool(weather).arun(arguments)) == result


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@given(st.dictionaries(st.sampled_from(["city", "days", "unit", "x"]), json_values))
def test_any_arguments_get_a_result(arguments: dict[str, Any]) -> None:
    result = tool(weather).run(arguments)
    values, error = check_arguments(arguments, tool(weather).parameters)
    assert result.ok == (error is None)
    if error is None:
        assert isinstance(values["city"], str)
        assert type(values.get("days", 1)) is int


def test_failures_of_the_call_and_of_the_tool() -> None:
    def fail(how: str) -> None:
        """Fail."""
        raise {"bug": ZeroDivisionError, "net": ConnectionError, "time": TimeoutError, "engine": EngineFailed}[how]("x")

    function_tool = tool(fail)
    assert function_tool.run({"how": "bug"}) == ToolResult(
        text="Error: ZeroDivisionError: x", ok=False, info={"error": "ZeroDivisionError"}
    )
    for how in ("net", "time"):
        with pytest.raises(ToolFailed):
            function_tool.run({"how": how})
        with pytest.raises(ToolFailed):
            asyncio.run(function_tool.arun({"how": how}))
    with pytest.raises(EngineFailed):
        function_tool.run({"how": "engine"})
    assert Dice().run({"sides": 1}).text == "Error: a die has at least 2 sides"


def test_async_tools_share_a_loop_that_outlives_the_caller() -> None:
    function_tool = tool(slow)
    assert function_tool.run({"seconds": 0}).text == "palestra-tools"
    assert asyncio.run(function_tool.arun({"seconds": 0})).text == "palestra-tools"

    async def within_loop() -> str:  # a sync call while an event loop is running
        return str(await asyncio.to_thread(lambda: function_tool.run({"seconds": 0}).text))

    assert asyncio.run(within_loop()) == "palestra-tools"


def test_a_tool_is_a_toolset_of_one() -> None:
    die = Dice()
    assert die.tools == (die,)
    assert die.open(seed=1) is die
    assert asyncio.run(die.aopen(seed=1)) is die
    assert make_toolset(die) is die
    assert isinstance(make_toolset(Dice), Dice)
    assert isinstance(make_toolset(weather), Toolset)


def test_instructions() -> None:
    text = instructions([Dice(), tool(weather)], max_calls=1)
    assert 'weather(city: string, days?: integer, unit?: "C" or "F"): Report the weather.' in text
    assert "    city: name of the city" in text
    assert '<tool_call>{"name": "dice", "arguments": {}}</tool_call>' in text
    assert "You have 1 tool call in total." in text
    assert instructions([]) == ""


def test_registered_tools_are_found_by_name() -> None:
    try:
        register_tool("test-dice", Dice)
        assert "test-dice" in tool_names()
        assert get_tool("test-dice") is Dice
        assert isinstance(make_toolset("test-dice"), Dice)
        register_tool("test-echo", lambda text="nothing": tool(lambda: text, name="echo"), overwrite=True)
        with pytest.raises(BadValue, match="needs a docstring"):
            make_toolset("test-echo:hello")
        with palestra.make("game:GuessTheNumber-v0-easy", tools=["test-dice"]) as env:
            env.reset(seed=1)
            step = env.step('<tool_call>{"name": "dice", "arguments": {"sides": 8}}</tool_call>')
            assert step.observation == "4"
    finally:
        registry.TOOLS.registered.clear()


def test_registration_errors() -> None:
    with pytest.raises(BadValue, match="already exists"):
        register_tool("python", Dice)
    with pytest.raises(BadValue, match="must be callable"):
        register_tool("test-dice", "dice")  # type: ignore[arg-type]
    with pytest.raises(BadValue, match="colon"):
        register_tool("a:b", Dice)
    try:
        register_tool("test-number", lambda: 5)  # type: ignore[arg-type,return-value]
        with pytest.raises(BadValue, match="must return a Tool"):
            make_toolset("test-number")
    finally:
        registry.TOOLS.registered.clear()


def test_tools_from_entry_points(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = EntryPoint(name="plugin-dice", value="tests.tools.test_base:Dice", group="palestra.tools")
    monkeypatch.setattr(plugins, "_entry_points", {"tools": {entry.name: entry}})
    assert isinstance(make_toolset("plugin-dice"), Dice)
    assert "plugin-dice" in tool_names()
