"""Token view of an episode: prompt tokens and sampled tokens in order, with log-probabilities."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from palestra.errors import MissingExtra, ParsingFailed
from palestra.optional import require
from palestra.viewer.folder import Folder, NotFound, RunLocation

FILE = "tokenizer.json"
PLACES = ("last", "best", "start", ".")  # subfolders of a run that may contain a model
_CUT = "\ufffd"  # replacement character for an incomplete UTF-8 sequence
_LONGEST = 8  # maximum number of tokens per character


class Decoder(Protocol):
    def decode(self, ids: Sequence[int], skip_special_tokens: bool = ...) -> str: ...


class Tokenizers:
    """Loads tokenizers from run folders and caches them until the files change."""

    def __init__(self, folder: Folder) -> None:
        self.folder = folder
        self._cache: dict[Path, tuple[int, Decoder]] = {}
        self._lock = threading.Lock()

    def of(self, place: RunLocation, settings: Mapping[str, Any]) -> tuple[Decoder | None, str]:
        """Return a run's tokenizer and its path, or None and the reason why there is none."""
        for path in self._candidates(place, settings):
            try:
                real = self.folder.inside(path)
                return self._load(real), real.relative_to(self.folder.path).as_posix()
            except NotFound:
                continue
            except MissingExtra as err:
                return None, str(err)
            except ParsingFailed as err:
                return None, str(err)
        return None, "the run folder has no tokenizer, so token ids are shown"

    def _candidates(self, place: RunLocation, settings: Mapping[str, Any]) -> list[Path]:
        home = place.path.parent if place.is_file else place.path
        candidates = [home / name / FILE for name in PLACES]
        checkpoints = home / "checkpoints"
        if checkpoints.is_dir():
            candidates += sorted(checkpoints.glob(f"step-*/{FILE}"))[-1:]
        for named in _models(settings):
            # The model may be elsewhere in the served folder; models outside this folder are not read.
            for start in (self.folder.path, self.folder.path.parent):
                candidates += [start / named / sub / FILE for sub in (".", "best", "last")]
        return candidates

    def _load(self, path: Path) -> Decoder:
        changed = path.stat().st_mtime_ns
        with self._lock:
            cached = self._cache.get(path)
            if cached is None or cached[0] != changed:
                library = require("tokenizers", extra="viewer")
                try:
                    cached = changed, library.Tokenizer.from_str(self.folder.read(path).decode())
                except Exception as err:  # the library raises the base class Exception
                    raise ParsingFailed(f"cannot read {path.name}: {err}") from err
                self._cache[path] = cached
                while len(self._cache) > 4:
                    self._cache.pop(next(iter(self._cache)))
            return cached[1]


def _models(settings: Mapping[str, Any]) -> list[str]:
    """Return the model folders named in the settings of a training run or an evaluation."""
    plan = settings.get("plan")
    agent = plan.get("agent") if isinstance(plan, dict) else None
    config = settings.get("config")
    sources = (config.get("model") if isinstance(config, dict) else None, agent)
    named = [source.get(key) for source in sources if isinstance(source, dict) for key in ("folder", "name", "model")]
    return [name for name in named if isinstance(name, str) and name and "://" not in name and "\0" not in name]


def token_view(data: Mapping[str, Any], decoder: Decoder | None) -> list[dict[str, Any]]:
    """Return the episode as a list of token sequences.

    A new sequence starts if a prompt does not extend the previous tokens. A sequence consists of spans of prompt tokens
    or sampled tokens, each from one turn, with ids, text pieces and log-probabilities.
    """
    sequences: list[dict[str, Any]] = []
    try:
        previous: list[int] = []
        for i, turn in enumerate(data["turns"]):
            for call in turn.get("calls", ()):
                prompt = previous[: call["prefix_tokens"]] + list(call["prompt_ids"])
                continues = bool(sequences) and prompt[: len(previous)] == previous
                if not continues:
                    sequences.append({"split": call["split"], "spans": []})
                new_tokens = prompt[len(previous) :] if continues else prompt
                spans = sequences[-1]["spans"]
                if new_tokens:
                    spans.append(_span(i, call["kind"], new_tokens, None, decoder))
                if call["ids"]:
                    spans.append(_span(i, call["kind"], call["ids"], call["logprobs"], decoder))
                previous = prompt + list(call["ids"])
    except (KeyError, TypeError, ValueError) as err:
        raise ParsingFailed(f"cannot display the tokens in this episode: {type(err).__name__}: {err}") from err
    return sequences


def _span(
    turn: int, kind: str, ids: Sequence[int], logprobs: Sequence[float] | None, decoder: Decoder | None
) -> dict[str, Any]:
    return {
        "turn": turn,
        "kind": kind,
        "is_prompt": logprobs is None,
        "ids": list(ids),
        "pieces": None if decoder is None else pieces(ids, decoder),
        "logprobs": None if logprobs is None else list(logprobs),
    }


def pieces(ids: Sequence[int], decoder: Decoder) -> list[str]:
    """Return the text of each id; a character that spans several ids is assigned to the first id."""
    texts: list[str] = []
    i = 0
    while i < len(ids):
        for count in range(1, min(_LONGEST, len(ids) - i) + 1):
            text = _text(ids, i, count, decoder)
            if _CUT not in text:
                break
        else:
            count, text = 1, _text(ids, i, 1, decoder)
        texts += [text] + [""] * (count - 1)
        i += count
    return texts


def _text(ids: Sequence[int], start: int, count: int, decoder: Decoder) -> str:
    """Decode `count` ids together with the previous id, because some decoders drop a leading space."""
    now = list(ids[start : start + count])
    try:
        alone = decoder.decode(now, skip_special_tokens=False)
        if start == 0:
            return alone
        before = decoder.decode([ids[start - 1]], skip_special_tokens=False)
        both = decoder.decode([ids[start - 1], *now], skip_special_tokens=False)
    except OverflowError as err:
        raise ParsingFailed(f"invalid token id: {json.dumps(now)}") from err
    return both[len(before) :] if both.startswith(before) and _CUT not in before else alone
