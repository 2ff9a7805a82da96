"""Test that LocalEngine loads from a folder or a model object, and raises an error for any other input."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from palestra.engines import Completion, LocalEngine, Sampling
from palestra.errors import BadValue, MissingExtra
from tests.engines.tiny import error, make, qwen3, words


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "tiny"
    qwen3(tie_word_embeddings=True).save_pretrained(path)
    words().save_pretrained(path)
    return path


def one_reply(model: Any, **options: Any) -> tuple[Completion, Any]:
    async def run() -> tuple[Completion, Any]:
        async with LocalEngine(model, threads=1, **options) as engine:
            return await engine.generate([1, 2, 3], Sampling(max_tokens=5, seed=1)), engine

    return asyncio.run(run())


def test_model_folder_includes_the_tokenizer(folder: Path) -> None:
    for path in (folder, str(folder)):
        done, engine = one_reply(path, device="cpu")
        assert engine.model.dtype == torch.float32
        assert not engine.model.training
        assert done.text.split() == [f"w{token}" for token in done.ids]
        assert error(engine.model, done) < 1e-4
        assert engine.max_context == 512


def test_tokenizer_from_a_folder(folder: Path) -> None:
    done, engine = one_reply(qwen3(), tokenizer=folder)
    assert isinstance(engine.tokenizer, transformers.PreTrainedTokenizerBase)
    assert done.text


def test_loaded_model_is_not_copied() -> None:
    model = qwen3().train()
    _, engine = one_reply(model)
    assert engine.model is model
    assert model.training
    _, engine = one_reply(model.eval(), dtype="bfloat16", device="cpu")
    assert engine.model is model
    assert model.dtype == torch.bfloat16


def test_cpu_without_bfloat16_instructions_causes_no_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    linear = torch.nn.functional.linear
    warned = 0

    def warning_linear(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        nonlocal warned
        if x.dtype == torch.bfloat16:
            warned += 1
            warnings.warn(
                "mkldnn_matmul failed, switching to BLAS gemm:"
                "mkldnn_matmul: mkldnn_matmul bf16 path needs a cpu with bf16 support",
                stacklevel=1,
            )
        return linear(x, weight, bias)

    monkeypatch.setattr(torch.nn.functional, "linear", warning_linear)
    model = make("Llama").to(torch.bfloat16)
    done, _ = one_reply(model, eos_ids=())
    assert warned > 0
    assert error(model, done) < 0.5


def test_unsupported_fused_attention_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulate a torch build whose fused attention requires CPU instructions that it was not compiled for."""
    attention, failures = torch.nn.functional.scaled_dot_product_attention, []

    def failing_attention(q: torch.Tensor, *args: Any, **options: Any) -> torch.Tensor:
        enabled = torch.backends.cuda.flash_sdp_enabled()  # type: ignore[no-untyped-call]  # it has no type hints
        if q.dtype == torch.bfloat16 and enabled:
            failures.append(q.shape)
            raise RuntimeError("pack_vnni2 is only supported when avx512 is supported")
        return attention(q, *args, **options)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", failing_attention)
    model = make("Llama").to(torch.bfloat16)
    try:
        done, _ = one_reply(model, eos_ids=())
        assert len(failures) == 1
        assert error(model, done) < 0.5
    finally:
        torch.backends.cuda.enable_flash_sdp(True)


def test_invalid_models_raise(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(BadValue, match="there is no folder .*init-model"):
        LocalEngine(tmp_path / "missing")
    with pytest.raises(BadValue, match="no folder"):
        LocalEngine("./missing")
    with pytest.raises(BadValue, match="no folder"):
        LocalEngine("models/org/name")
    with pytest.raises(BadValue, match="config.json is missing"):
        LocalEngine(tmp_path)
    with pytest.raises(BadValue, match="got int"):
        LocalEngine(3)
    with pytest.raises(BadValue, match="no folder"):
        LocalEngine(folder / "config.json")
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(BadValue, match=f"cannot read a model from {tmp_path}"):
        LocalEngine(tmp_path)
    (tmp_path / "config.json").write_text((folder / "config.json").read_text())
    with pytest.raises(BadValue, match=f"cannot read a model from {tmp_path}"):
        LocalEngine(tmp_path)


def test_folder_without_tokenizer_raises(tmp_path: Path) -> None:
    qwen3().save_pretrained(tmp_path)
    with pytest.raises(BadValue, match="contains no tokenizer"):
        LocalEngine(tmp_path)
    done, _ = one_reply(tmp_path, tokenizer=words())
    assert done.text


def test_unavailable_hub_model_raises_and_suggests_a_folder() -> None:
    with pytest.raises(BadValue, match=r"'example/no-such-model'.*folder"):
        LocalEngine("example/no-such-model")


def test_models_that_are_not_causal_raise() -> None:
    config = transformers.T5Config(vocab_size=50, d_model=16, d_kv=8, d_ff=16, num_layers=1, num_heads=2)
    with pytest.raises(BadValue, match="decoder-only"):
        LocalEngine(transformers.T5ForConditionalGeneration(config))
    with pytest.raises(BadValue, match="causal"):
        LocalEngine(qwen3().model)


def test_length_dependent_rope_limits_the_context() -> None:
    model = make(
        "Phi3",
        sliding_window=None,
        rope_parameters={
            "rope_type": "longrope",
            "rope_theta": 1e4,
            "short_factor": [1.0] * 4,
            "long_factor": [2.0] * 4,
            "original_max_position_embeddings": 48,
        },
        original_max_position_embeddings=48,
    )
    done, engine = one_reply(model, eos_ids=())
    assert engine.max_context == 48
    assert error(model, done) < 1e-4
    with pytest.raises(BadValue, match="at most 48"):
        LocalEngine(model, max_context=100)


def test_missing_gpu_raises() -> None:
    if not torch.cuda.is_available():
        with pytest.raises(BadValue, match="no GPU"):
            LocalEngine(qwen3(), device="cuda")


def run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


def test_import_does_not_load_heavy_packages() -> None:
    output = run("import sys, palestra.engines, palestra.engines.local.engine; print(*sys.modules)").split()
    assert not {"torch", "transformers", "numpy"} & set(output)


@pytest.mark.parametrize("package", ["torch", "transformers"])
def test_missing_package_raises_with_the_pip_command(package: str) -> None:
    code = f"""
import sys
import warnings
class Hide:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name.partition('.')[0] == {package!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Hide)
from palestra.engines import LocalEngine
try:
    LocalEngine("anything")
except ImportError as err:
    print(type(err).__name__, err)
"""
    output = run(code)
    assert output.startswith(MissingExtra.__name__)
    assert f"{package} is not installed" in output
    assert "[hf]'" in output
