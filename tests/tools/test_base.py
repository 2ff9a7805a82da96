"""Tools from classes and functions: schemas from hints, arguments checked, failures sorted."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Sequence
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palestra.errors import BadValue, EngineFailed, ToolFailed
from palestra.tools import BadCall, Tool, ToolResult, Toolset, tool, toolset
from palestra.tools.instructions import instructions
from palestra.tools.schema import fitted


class Dice(Tool):
    """Roll a die.

    sides: how many it has
    """

    def call(self, sides: int = 6) -> str:
        if sides < 2:
            raise BadCall("a die has at least 2 sides")
        return f"{sides // 2}"


def weather(city: str, days: int = 1, unit: Literal["C", "F"] = "C") -> dict[str, Any]:
    """Tell the weather.

    Args:
        city: where
        days: how far ahead
    """
    return {"city": city, "days": days, "unit": unit}


async def slow(seconds: float) -> str:
    """Wait."""
    await asyncio.sleep(seconds)
    return threading.current_thread().name


def test_a_class_tells_all() -> None:
    die = Dice()
    assert (die.name, die.description) == ("dice", "Roll a die.")
    assert die.schema["function"]["parameters"] == {
        "type": "object",
        "properties": {"sides": {"type": "integer", "description": "how many it has", "default": 6}},
        "required": [],
        "additionalProperties": False,
    }
    assert die.run({}) == ToolResult(text="3")
    assert die.run({"sides": "20"}).text == "10"  # a number as models write it
    assert asyncio.run(die.arun({"sides": 20.0})).text == "10"


def test_a_function_tells_all() -> None:
    made = tool(weather)
    assert (made.name, made.description) == ("weather", "Tell the weather.")
    properties = made.parameters["properties"]
    assert properties["city"] == {"type": "string", "description": "where"}
    assert properties["unit"] == {"enum": ["C", "F"], "default": "C"}
    assert made.parameters["required"] == ["city"]
    assert json.loads(str(made.run({"city": "Rome"}).text)) == {"city": "Rome", "days": 1, "unit": "C"}


def test_hints_of_all_kinds() -> None:
    def f(
        a: list[int],
        b: dict[str, float] | None = None,
        c: Annotated[str, "what to say"] = "",
        d: Sequence[str] = (),
        e: Any = None,
    ) -> None:
        """Do."""

    properties = tool(f).parameters["properties"]
    assert properties["a"] == {"type": "array", "items": {"type": "integer"}}
    assert properties["b"]["anyOf"][0] == {"type": "object", "additionalProperties": {"type": "number"}}
    assert properties["c"] == {"type": "string", "description": "what to say", "default": ""}
    assert properties["d"] == {"type": "array", "items": {"type": "string"}}
    assert properties["e"] == {}


@pytest.mark.parametrize(
    ("function", "wrong"),
    [
        (lambda x: x, "no name"),
        (print, "named arguments"),
    ],
)
def test_what_cannot_be_a_tool(function: Any, wrong: str) -> None:
    with pytest.raises(BadValue, match=wrong):
        tool(function)


def test_a_function_without_words_or_hints() -> None:
    def silent(x: int) -> int:
        return x

    def untyped(x):  # type: ignore[no-untyped-def]
        """Do."""

    def odd(x: threading.Thread) -> None:
        """Do."""

    with pytest.raises(BadValue, match="docstring"):
        tool(silent)
    with pytest.raises(BadValue, match="give x a type hint"):
        tool(untyped)
    with pytest.raises(BadValue, match="what JSON can hold"):
        tool(odd)
    with pytest.raises(BadValue, match="no tool 'pyton'. Did you mean python"):
        toolset("pyton")
    with pytest.raises(BadValue, match="a tool is a name"):
        toolset(5)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({}, "missing argument 'city'"),
        ({"city": "x", "town": 1}, "unknown argument 'town'"),
        ({"city": 5}, "city must be a string"),
        ({"city": "x", "days": "many"}, "days must be a whole number"),
        ({"city": "x", "days": True}, "days must be a whole number"),
        ({"city": "x", "unit": "K"}, "unit must be one of"),
    ],
)
def test_wrong_arguments_get_an_answer_the_model_can_act_on(arguments: dict[str, Any], says: str) -> None:
    result = tool(weather).run(arguments)
    assert not result.ok
    assert says in str(result.text)
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
    values, wrong = fitted(arguments, tool(weather).parameters)
    assert result.ok == (wrong is None)
    if wrong is None:
        assert isinstance(values["city"], str)
        assert type(values.get("days", 1)) is int


def test_failures_are_sorted() -> None:
    def fail(how: str) -> None:
        """Fail."""
        raise {"mine": ZeroDivisionError, "net": ConnectionError, "time": TimeoutError, "engine": EngineFailed}[how](
            "x"
        )

    made = tool(fail)
    assert made.run({"how": "mine"}) == ToolResult(
        text="Error: ZeroDivisionError: x", ok=False, info={"error": "ZeroDivisionError"}
    )
    for how in ("net", "time"):
        with pytest.raises(ToolFailed):
            made.run({"how": how})
        with pytest.raises(ToolFailed):
            asyncio.run(made.arun({"how": how}))
    with pytest.raises(EngineFailed):
        made.run({"how": "engine"})
    assert Dice().run({"sides": 1}).text == "Error: a die has at least 2 sides"


def test_async_tools_share_a_loop_that_outlives_the_caller() -> None:
    made = tool(slow)
    assert made.run({"seconds": 0}).text == "palestra-tools"
    assert asyncio.run(made.arun({"seconds": 0})).text == "palestra-tools"

    async def inside() -> str:  # a sync call from within a running loop
        return str(await asyncio.to_thread(lambda: made.run({"seconds": 0}).text))

    assert asyncio.run(inside()) == "palestra-tools"


def test_a_tool_is_a_set_of_one() -> None:
    die = Dice()
    assert die.tools == (die,)
    assert die.open(seed=1) is die
    assert asyncio.run(die.aopen(seed=1)) is die
    assert toolset(die) is die
    assert isinstance(toolset(Dice), Dice)
    assert isinstance(toolset(weather), Toolset)


def test_instructions_name_everything() -> None:
    text = instructions([Dice(), tool(weather)], max_calls=1)
    assert 'weather(city: string, days?: integer, unit?: "C" or "F"): Tell the weather.' in text
    assert "    city: where" in text
    assert '<tool_call>{"name": "dice", "arguments": {}}</tool_call>' in text
    assert "You have 1 tool call in all." in text
    assert instructions([]) == ""
