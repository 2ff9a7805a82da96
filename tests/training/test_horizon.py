from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palestra.errors import BadValue
from palestra.training.horizon import HorizonSchedule

schedules = st.lists(st.tuples(st.integers(1, 99), st.integers(1, 50)), min_size=1, max_size=5).map(
    lambda parts: (tuple(sorted(turns for turns, _ in parts)), tuple(steps for _, steps in parts[1:]))
)


@given(schedule=schedules, step=st.integers(0, 500))
def test_the_horizon_depends_on_the_step_only(schedule: tuple[tuple[int, ...], tuple[int, ...]], step: int) -> None:
    stages, steps = schedule
    expanded = [turns for turns, length in zip(stages, steps, strict=False) for _ in range(length)]
    assert HorizonSchedule(stages, steps).at(step) == (expanded[step] if step < len(expanded) else stages[-1])


@given(schedule=schedules)
def test_schedules_survive_formatting_and_parsing(schedule: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    assert HorizonSchedule.parse(str(HorizonSchedule(*schedule))) == HorizonSchedule(*schedule)


def test_accepted_formats() -> None:
    assert HorizonSchedule.parse("5,10,15@100").at(99) == 5
    assert HorizonSchedule.parse("5,10,15@100").at(100) == 10
    assert HorizonSchedule.parse("5,10,15@100").at(10_000) == 15
    assert [HorizonSchedule.parse("5@2,10@3,15").at(step) for step in range(7)] == [5, 5, 10, 10, 10, 15, 15]
    assert HorizonSchedule.parse(20).at(0) == 20
    assert HorizonSchedule.parse(None).at(3) is None
    assert HorizonSchedule.parse("none").at(3) is None


def test_a_decreasing_horizon_is_rejected() -> None:
    with pytest.raises(BadValue, match="must not decrease"):
        HorizonSchedule.parse("10,5,15@100")
    assert HorizonSchedule.parse("5,5,10@3").at(4) == 5


@pytest.mark.parametrize("text", ["5,10", "x", "5@", "0", "5,-1@3", "5@0", "1.5", "5@3", "5@3,10,15", "5@3,10@4"])
def test_invalid_schedules_are_rejected(text: str) -> None:
    with pytest.raises(BadValue):
        HorizonSchedule.parse(text)
