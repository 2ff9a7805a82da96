"""Test that training with two processes on a CPU has the same results as with one."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from palestra.agents import ExpertAgent, RandomAgent
from palestra.errors import BadValue
from palestra.rollout import read
from palestra.training import async_trainer, train
from palestra.training.distributed import DistributedContext, connect, without_tokens
from palestra.training.recipe import from_mapping
from tests import warm_process
from tests.training.helpers import batch
from tests.training.test_offline import played, write
from tests.training.test_offline import tiny as offline

torch.set_num_threads(1)

COMMON: dict[str, Any] = {
    "env": "game:GuessTheNumber-v0-easy",
    "device": "cpu",
    "episodes": 12,
    "group_size": 4,
    "concurrency": 12,
    "eval_every": 2,
    "eval_episodes": 4,
    "save_every": 2,
    "max_tokens": 8,
    "steps": 2,
    "warm_start": 0,
    "epochs": 1,
    "minibatches": 1,
    "threads": 1,
}
KINDS: dict[str, dict[str, Any]] = {
    "ppo": {"algorithm": "ppo", "optimizer": "muon", "minibatches": 2, "kl": 0.01, "horizon": "3", "temperature": 0.9},
    "grpo": {"algorithm": "grpo", "optimizer": "adamw", "lora_rank": 4, "packing": True, "aggregate": "sequence"},
}
KINDS["ppo"] |= {"kl_backtrack": 1e-7, "lr": 1e-2}  # every step is scaled back
KINDS["grpo"] |= {"warm_start": 6, "warm_epochs": 1, "warm_player": "expert", "warm_rounds": 4}
ASYNC: dict[str, Any] = {**COMMON, "algorithm": "grpo", "asynchronous": True, "staleness": 1, "steps": 3}
SCRIPT = """
import json, os, signal, sys
import torch.distributed.fsdp as fsdp
from palestra.training.trainer import Trainer

fully_shard, units = fsdp.fully_shard, []

def shard_and_note(module, **options):
    offload, precision = options["offload_policy"], options["mp_policy"]
    units.append([isinstance(offload, fsdp.CPUOffloadPolicy), str(precision.reduce_dtype)])
    return fully_shard(module, **options)

fsdp.fully_shard = shard_and_note

record, copies = Trainer.record, set()

def record_and_die(self, row):
    record(self, row)
    policy = self.learner.policy
    copies.add(policy.sampler is not policy.model)
    if row["step"] == int(os.environ.get("DIES_AT", "-2")):
        os.kill(os.getpid(), signal.SIGKILL)

Trainer.record = record_and_die
from palestra.training.recipe import from_mapping
from palestra.training import train
for values in json.loads(sys.argv[1]):
    config = from_mapping(values)
    train(config)
    (config.folder / f"units-{os.environ['RANK']}.json").write_text(json.dumps(units))
    (config.folder / f"copies-{os.environ['RANK']}.json").write_text(json.dumps(sorted(copies)))
    units.clear()
    copies.clear()
"""


def train_in_two_processes(configs: list[dict[str, Any]], script: Path, **last: str) -> tuple[list[int], list[str]]:
    """Train in two processes with the variables that torchrun sets; torchrun itself would import torch a third time.

    `last` contains additional variables for the second process. Returns the exit codes and outputs.
    """
    script.write_text(SCRIPT)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    shared = {**os.environ, "OMP_NUM_THREADS": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": "2"}
    processes = []
    for rank in ("0", "1"):
        variables = {**shared, "RANK": rank, "LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": "2"}
        variables |= last if rank == "1" else {}
        with (script.parent / f"errors-{rank}").open("w") as errors:
            command = [sys.executable, str(script), json.dumps(configs)]
            processes.append(warm_process.Popen(command, stdout=errors, stderr=errors, env=variables))
    codes = [process.wait() for process in processes]
    return codes, [(script.parent / f"errors-{rank}").read_text()[-3000:] for rank in "01"]


def has_copies(folder: Path) -> bool:
    """Return whether the two processes of a run had a full copy of the sharded model for sampling."""
    ranks = [json.loads((folder / f"copies-{rank}.json").read_text()) for rank in "01"]
    assert ranks in ([[True], [True]], [[False], [False]])
    return ranks == [[True], [True]]


def rows_of(folder: Path) -> list[dict[str, Any]]:
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in row.items() if "second" not in k and v is not None} for row in rows]


@pytest.fixture(scope="module")
def two(taught: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """Train all configs in the same two processes, because starting processes is slow, and return the configs."""
    folder = tmp_path_factory.mktemp("two")
    for player in (ExpertAgent(), RandomAgent()):
        write(folder / "stores" / f"{type(player).__name__}.jsonl", played(player))
    configs = {name: {**COMMON, **kind, "model": taught, "out": str(folder / name)} for name, kind in KINDS.items()}
    configs["ppo"]["offload_optimizer"] = True  # FSDP's CPU offload; a single process on a CPU ignores it
    preferring = offline(folder / "dpo", algorithm="dpo", data=str(folder / "stores"), steps=2, threads=1)
    configs["dpo"] = preferring.to_dict()
    configs["async"] = {**ASYNC, "model": taught, "out": str(folder / "async")}
    codes, output = train_in_two_processes(list(configs.values()), folder / "run.py")
    assert codes == [0, 0], output
    return configs


@pytest.mark.slow
def test_two_processes_train_the_same_weights_as_one(two: dict[str, dict[str, Any]], tmp_path: Path) -> None:
    for name in KINDS:
        folder = Path(two[name]["out"])
        one = train(from_mapping({**two[name], "out": str(tmp_path / name)}))
        alone, together = rows_of(one.folder), rows_of(folder)
        assert len(alone) == len(together) == 3
        assert any(row.get("signal") for row in alone), "at least one step must have a learning signal"
        assert any(row.get("backtracked") for row in alone) is (name == "ppo")
        for row, other in zip(alone, together, strict=True):
            assert row == pytest.approx(other, rel=2e-3, abs=1e-4), name
        mine, theirs = (AutoModelForCausalLM.from_pretrained(f / "last").state_dict() for f in (one.folder, folder))
        assert all(torch.allclose(mine[key], theirs[key], atol=1e-3) for key in mine)
        parts = sorted((folder / "trajectories").glob("step-000001*"))
        assert [len(list(read(part))) for part in parts] == [6, 6]

    # A run with two processes can resume with one, because checkpoints do not depend on the number of processes.
    longer = {**two["ppo"], "steps": 3}
    gone_on = train(from_mapping(longer))
    never_left = train(from_mapping({**longer, "out": str(tmp_path / "ppo")}))
    assert rows_of(gone_on.folder)[-1] == pytest.approx(rows_of(never_left.folder)[-1], rel=2e-2, abs=5e-3)


@pytest.mark.slow
def test_sharded_weights_are_offloaded_only_on_request(two: dict[str, dict[str, Any]]) -> None:
    """Check what FSDP is told: on a CPU, offloaded weights and gradients are stored in the same place as others."""
    for name in KINDS:
        for rank in "01":
            units = json.loads((Path(two[name]["out"]) / f"units-{rank}.json").read_text())
            assert len(units) > 1
            assert all(unit == [name == "ppo", "torch.float32"] for unit in units), units
        assert has_copies(Path(two[name]["out"]))  # the local engine samples from it


@pytest.mark.slow
def test_dpo_with_two_processes_equals_dpo_with_one(two: dict[str, dict[str, Any]], tmp_path: Path) -> None:
    alone = train(from_mapping({**two["dpo"], "out": str(tmp_path / "alone")})).rows
    together = rows_of(Path(two["dpo"]["run"]["out"]))
    assert [row["step"] for row in together] == [-1, 0, 1]
    for row, same in zip(together[1:], alone[1:], strict=True):
        assert row["loss"] == pytest.approx(same["loss"], rel=1e-5)
        assert row["grad_norm"] == pytest.approx(same["grad_norm"], rel=1e-4)


def check_asynchronous_run(folder: Path) -> None:
    """Check that every step trains on complete groups of both processes, each once, and none of them too old."""
    rows = [row for row in rows_of(folder) if row["step"] >= 0]
    assert [row["step"] for row in rows] == list(range(ASYNC["steps"]))
    assert all(row["staleness_max"] <= ASYNC["staleness"] for row in rows)
    seen: set[tuple[int, int, int]] = set()
    for step in range(ASYNC["steps"]):
        for rank, groups in (("", {0}), (".rank1", {1, 2})):
            episodes = list(read(folder / "trajectories" / f"step-{step:06d}{rank}.jsonl.gz"))
            assert len(episodes) == 4 * len(groups)
            assert {t.group for t in episodes} <= groups
            keys = {(t.meta["step"], t.group, t.member) for t in episodes}
            assert not keys & seen
            seen |= keys
    assert len(seen) == ASYNC["steps"] * ASYNC["episodes"]


@pytest.mark.slow
def test_two_processes_train_asynchronously(two: dict[str, dict[str, Any]]) -> None:
    folder = Path(two["async"]["out"])
    check_asynchronous_run(folder)
    rows = rows_of(folder)
    assert any(row["staleness_max"] for row in rows[1:])
    assert any(row.get("updates") for row in rows)
    assert {"eval_success", "final_success"} <= rows[-1].keys()


@pytest.mark.slow
def test_a_run_ends_with_a_process_that_is_killed_and_resumes(taught: str, tmp_path: Path) -> None:
    settings = {**ASYNC, "model": taught, "out": str(tmp_path / "run"), "save_every": 1}
    codes, output = train_in_two_processes([settings], tmp_path / "run.py", DIES_AT="1")
    assert codes == [1, -signal.SIGKILL], output
    assert "InfrastructureError: another process of this run has stopped, so this one stops, too." in output[0]
    assert rows_of(tmp_path / "run")[-1]["step"] in (0, 1)
    codes, output = train_in_two_processes([settings], tmp_path / "run.py")
    assert codes == [0, 0], output
    check_asynchronous_run(tmp_path / "run")


def test_asynchronous_training_needs_a_group_per_process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(async_trainer, "connect", lambda _: DistributedContext(rank=0, size=4))
    with pytest.raises(BadValue, match=r"4 processes needs .* this run has 3[.] Raise --episodes to at least 16"):
        train(from_mapping({**ASYNC, "out": str(tmp_path)}))


def test_a_single_process_works_as_context_manager() -> None:
    context = connect()
    assert (context.rank, context.size, context.is_main) == (0, 1, True)
    assert context.gather(3) == [3]
    assert context.sum([1.0, 2.0]) == [1.0, 2.0]
    assert context.on_main(lambda: 7) == 7
    with pytest.raises(BadValue, match="no"):
        context.on_main(_refuse)


def _refuse() -> None:
    raise BadValue("no")


def test_shares_partition_the_items_in_order() -> None:
    for count in range(9):
        shares = [DistributedContext(rank=rank, size=3).shard(range(count)) for rank in range(3)]
        assert [item for share in shares for item in share] == list(range(count))
        assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_gathered_samples_contain_numbers_only() -> None:
    for t in batch(1, truncated=True):
        bare = without_tokens(t)
        assert (bare.rewards, bare.sampled_tokens, bare.truncated) == (t.rewards, t.sampled_tokens, t.truncated)
        assert not bare.final_prompt
        assert not any(turn.observation or turn.action.text or turn.action.prompt_ids for turn in bare.turns)
