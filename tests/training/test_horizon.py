from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palestra.errors import BadValue
from palestra.training.horizon import HorizonSchedule

stages = st.lists(st.integers(1, 99), min_size=1, max_size=5).map(tuple)


@given(stages=stages, steps=st.integers(1, 50), step=st.integers(0, 500))
def test_the_horizon_depends_on_the_step_only(stages: tuple[int, ...], steps: int, step: int) -> None:
    schedule = HorizonSchedule(stages, steps)
    expanded = [turns for turns in stages for _ in range(steps)]
    assert schedule.at(step) == (expanded[step] if step < len(expanded) else stages[-1])


@given(stages=stages, steps=st.integers(1, 50))
def test_schedules_survive_formatting_and_parsing(stages: tuple[int, ...], steps: int) -> None:
    schedule = HorizonSchedule(stages, steps if len(stages) > 1 else 1)
    assert HorizonSchedule.parse(str(schedule)) == schedule


def test_accepted_formats() -> None:
    assert HorizonSchedule.parse("5,10,15@100").at(99) == 5
    assert HorizonSchedule.parse("5,10,15@100").at(100) == 10
    assert HorizonSchedule.parse("5,10,15@100").at(10_000) == 15
    assert HorizonSchedule.parse(20).at(0) == 20
    assert HorizonSchedule.parse(None).at(3) is None
    assert HorizonSchedule.parse("none").at(3) is None


@pytest.mark.parametrize("text", ["5,10", "x", "5@", "0", "5,-1@3", "5@0", "1.5"])
def test_invalid_schedules_are_rejected(text: str) -> None:
    with pytest.raises(BadValue):
        HorizonSchedule.parse(text)
