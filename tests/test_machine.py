"""Test the number of cores and the memory that a process may use, also in containers with limits."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from palestra import machine
from palestra.machine import main_memory, usable_cores

CORES = len(os.sched_getaffinity(0))
MEMORY = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
HALF = f"{CORES * 500} 1000"  # quota and period for half of the cores
GIB = str(2**30)
V2 = "0::/user/app\n"
V1 = "12:memory:/docker/1f\n9:cpu,cpuacct:/docker/1f\n0::/\n"


@pytest.mark.parametrize(
    ("groups", "files", "limited"),
    [
        (V2, {}, False),
        (V2, {"user/app/cpu.max": "max 100000", "user/app/memory.max": "max"}, False),
        (V2, {"user/app/cpu.max": HALF, "user/app/memory.max": GIB}, True),
        (V2, {"user/cpu.max": HALF, "user/memory.max": GIB, "user/app/memory.max": "max"}, True),
        ("0::/\n", {"cpu.max": HALF, "memory.max": GIB}, True),  # a container with its own namespace
        ("0::/../other\n", {"cpu.max": HALF, "memory.max": GIB}, True),
        (V1, {"memory/docker/1f/memory.limit_in_bytes": "9223372036854771712"}, False),
        (V1, {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, False),
        (
            V1,  # a container without a namespace of its own, in which only the root exists
            {
                "cpu/cpu.cfs_quota_us": HALF.split()[0],
                "cpu/cpu.cfs_period_us": "1000",
                "memory/memory.limit_in_bytes": GIB,
            },
            True,
        ),
    ],
)
def test_limits_of_a_container(
    groups: str, files: Mapping[str, str], limited: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "groups").write_text(groups)
    for name, text in files.items():
        path = tmp_path / "cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")
    monkeypatch.setattr(machine, "OWN_GROUPS", tmp_path / "groups")
    monkeypatch.setattr(machine, "CGROUPS", tmp_path / "cgroup")
    assert usable_cores() == (max(1, (CORES + 1) // 2) if limited else CORES)
    assert main_memory() == (2**30 if limited else MEMORY)


def test_a_system_without_control_groups(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(machine, "OWN_GROUPS", tmp_path / "missing")
    assert (usable_cores(), main_memory()) == (CORES, MEMORY)
