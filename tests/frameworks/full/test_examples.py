"""Test the integrations by running the example of each framework with the package from PyPI."""

from __future__ import annotations

import re

import pytest

from tests.frameworks.frameworks import FRAMEWORKS, Framework, record, run_example


@pytest.mark.parametrize("framework", FRAMEWORKS, ids=lambda framework: framework.name)
def test_example(framework: Framework) -> None:
    record(framework, False)
    output = run_example(framework)
    if framework.changes_weights:
        rewards = [float(value) for value in re.findall(r"^step \d+: reward ([-\d.]+)", output, re.MULTILINE)]
        assert len(rewards) == 2, output
        assert all(0.0 < reward < 1.0 for reward in rewards)  # the environment's rewards, which differ by reply
        change = re.search(r"largest change of a weight: ([\d.]+)", output)
        assert change is not None
        assert float(change[1]) > 1e-4, output
    else:
        assert "passed" in output, output
    record(framework, True)
