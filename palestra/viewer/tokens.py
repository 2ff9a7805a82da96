"""The calls of an episode -> its tokens in order: what was given, what was sampled and how probable it was."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from palestra.errors import MissingExtra, ParsingFailed
from palestra.optional import require
from palestra.viewer.folder import Folder, NotThere, Place

FILE = "tokenizer.json"
PLACES = ("last", "best", "start", ".")  # of a run that holds a model
_CUT = "\ufffd"  # what a decoder shows for half a character
_LONGEST = 8  # tokens a character may be cut into


class Decoder(Protocol):
    def decode(self, ids: Sequence[int], skip_special_tokens: bool = ...) -> str: ...


class Tokenizers:
    """The tokenizers of runs, found in their folders, kept while they are unchanged."""

    def __init__(self, folder: Folder) -> None:
        self.folder = folder
        self._kept: dict[Path, tuple[int, Decoder]] = {}
        self._lock = threading.Lock()

    def of(self, place: Place, settings: Mapping[str, Any]) -> tuple[Decoder | None, str]:
        """A run's tokenizer and where it is from; without one, why."""
        for path in self._candidates(place, settings):
            try:
                real = self.folder.inside(path)
                return self._load(real), real.relative_to(self.folder.path).as_posix()
            except NotThere:
                continue
            except MissingExtra as err:
                return None, str(err)
            except ParsingFailed as err:
                return None, str(err)
        return None, "no tokenizer lies in the folder of the run, so ids are shown"

    def _candidates(self, place: Place, settings: Mapping[str, Any]) -> list[Path]:
        home = place.path.parent if place.is_file else place.path
        found = [home / name / FILE for name in PLACES]
        checkpoints = home / "checkpoints"
        if checkpoints.is_dir():
            found += sorted(checkpoints.glob(f"step-*/{FILE}"))[-1:]
        for named in _models(settings):
            # A model elsewhere in the folder that is shown; one outside of it is not read.
            for start in (self.folder.path, self.folder.path.parent):
                found += [start / named / sub / FILE for sub in (".", "best", "last")]
        return found

    def _load(self, path: Path) -> Decoder:
        changed = path.stat().st_mtime_ns
        with self._lock:
            known = self._kept.get(path)
            if known is None or known[0] != changed:
                library = require("tokenizers", extra="viewer")
                try:
                    known = changed, library.Tokenizer.from_str(self.folder.read(path).decode())
                except Exception as err:  # the library raises plain Exceptions
                    raise ParsingFailed(f"{path.name} cannot be read: {err}") from err
                self._kept[path] = known
                while len(self._kept) > 4:
                    self._kept.pop(next(iter(self._kept)))
            return known[1]


def _models(settings: Mapping[str, Any]) -> list[str]:
    """The folders that settings name as a model's, of training or of an evaluation."""
    plan = settings.get("plan")
    agent = plan.get("agent") if isinstance(plan, dict) else None
    sources = (settings.get("config"), agent)
    named = [source.get(key) for source in sources if isinstance(source, dict) for key in ("folder", "name", "model")]
    return [name for name in named if isinstance(name, str) and name and "://" not in name and "\0" not in name]


def token_view(data: Mapping[str, Any], decoder: Decoder | None) -> list[dict[str, Any]]:
    """The episode as the model read and wrote it.

    A list of stretches; another one begins where a prompt did not go on from the tokens before it. Each holds spans:
    given or sampled, of a turn, with ids, pieces of text and log-probabilities.
    """
    stretches: list[dict[str, Any]] = []
    try:
        read: list[int] = []
        for i, turn in enumerate(data["turns"]):
            for call in turn.get("calls", ()):
                prompt = read[: call["kept"]] + list(call["prompt_ids"])
                goes_on = bool(stretches) and prompt[: len(read)] == read
                if not goes_on:
                    stretches.append({"split": call["split"], "spans": []})
                given = prompt[len(read) :] if goes_on else prompt
                spans = stretches[-1]["spans"]
                if given:
                    spans.append(_span(i, call["kind"], given, None, decoder))
                if call["ids"]:
                    spans.append(_span(i, call["kind"], call["ids"], call["logprobs"], decoder))
                read = prompt + list(call["ids"])
    except (KeyError, TypeError, ValueError) as err:
        raise ParsingFailed(f"the tokens of this episode cannot be shown: {type(err).__name__} {err}") from err
    return stretches


def _span(
    turn: int, kind: str, ids: Sequence[int], logprobs: Sequence[float] | None, decoder: Decoder | None
) -> dict[str, Any]:
    return {
        "turn": turn,
        "kind": kind,
        "given": logprobs is None,
        "ids": list(ids),
        "pieces": None if decoder is None else pieces(ids, decoder),
        "logprobs": None if logprobs is None else list(logprobs),
    }


def pieces(ids: Sequence[int], decoder: Decoder) -> list[str]:
    """The text of each id; where a character is cut into several, the first has it and the others are empty."""
    found: list[str] = []
    i = 0
    while i < len(ids):
        for count in range(1, min(_LONGEST, len(ids) - i) + 1):
            text = _text(ids, i, count, decoder)
            if _CUT not in text:
                break
        else:
            count, text = 1, _text(ids, i, 1, decoder)
        found += [text] + [""] * (count - 1)
        i += count
    return found


def _text(ids: Sequence[int], start: int, count: int, decoder: Decoder) -> str:
    """What `count` ids add to the one before: some decoders drop the space of whatever comes first."""
    now = list(ids[start : start + count])
    try:
        alone = decoder.decode(now, skip_special_tokens=False)
        if start == 0:
            return alone
        before = decoder.decode([ids[start - 1]], skip_special_tokens=False)
        both = decoder.decode([ids[start - 1], *now], skip_special_tokens=False)
    except OverflowError as err:
        raise ParsingFailed(f"an id is none: {json.dumps(now)}") from err
    return both[len(before) :] if both.startswith(before) and _CUT not in before else alone
