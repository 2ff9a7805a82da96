"""A data set's id -> its rows, through the package `datasets`: from its cache, or from the hub if it can be reached.

Without a network `datasets` retries for half a minute or, behind a firewall that drops packets, for several. So whether
the hub answers at all is asked first, in seconds; where it does not, the cache alone is looked into.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from palestra.envs.tasks.files import chosen_split, undecoded
from palestra.envs.tasks.rows import MIRROR, Source, Table
from palestra.errors import BadValue, DataMissing
from palestra.optional import require

PATIENCE = 6.0  # seconds for the hub to accept a connection, names included


def download(source: Source, *, searched: Path | None = None) -> Table:
    """The rows of `source.dataset`. DataMissing says where they were looked for and what else can be done."""
    datasets = require("datasets", extra="data")
    check_dataset_id(str(source.dataset))
    offline = bool(datasets.config.HF_HUB_OFFLINE)
    reason = "HF_HUB_OFFLINE is set" if offline else ""
    if not offline:
        reason = unreachable(str(datasets.config.HF_ENDPOINT)) or ""
    try:
        with _offline(datasets, bool(reason)):
            found = datasets.load_dataset(source.dataset, name=source.config, revision=source.revision)
    except (OSError, ValueError, RuntimeError) as err:  # httpx's errors, and those of `datasets`, are among these
        raise DataMissing(_message(source, reason or f"{type(err).__name__}: {err}", searched, datasets)) from err
    if isinstance(found, datasets.Dataset):
        return undecoded(found)
    return undecoded(found[chosen_split(list(found), source.split, str(source.dataset))])


def unreachable(endpoint: str, patience: float | None = None) -> str | None:
    """Why nothing listens at `endpoint`, or at the proxy that leads there; None where something does."""
    patience = PATIENCE if patience is None else patience
    place = urlsplit(endpoint)
    host = place.hostname or ""
    proxy = getproxies().get(place.scheme)
    if proxy and not proxy_bypass(host):
        place = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
        host = place.hostname or ""
    port = place.port or (80 if place.scheme == "http" else 443)
    failed: list[str] = [f"no answer within {patience:g} s"]

    def knock() -> None:
        try:
            socket.create_connection((host, port), timeout=patience).close()
            failed.clear()
        except (OSError, UnicodeError) as err:
            failed[:] = [str(err)]

    # In a thread, as a resolver without a network may take its time and knows no limit.
    thread = threading.Thread(target=knock, name="palestra hub", daemon=True)
    thread.start()
    thread.join(patience)
    return f"{host} cannot be reached ({failed[0]})" if failed else None


@contextmanager
def _offline(datasets: Any, wanted: bool) -> Iterator[None]:
    """`datasets` looks into its cache alone, as with HF_HUB_OFFLINE, which it reads only once: when imported."""
    before = datasets.config.HF_HUB_OFFLINE
    datasets.config.HF_HUB_OFFLINE = wanted or before
    try:
        yield
    finally:
        datasets.config.HF_HUB_OFFLINE = before


def _message(source: Source, reason: str, searched: Path | None, datasets: Any) -> str:
    mirrors = "no mirror is set" if searched is None else f"the mirror {searched} does not hold it"
    cache = os.fspath(datasets.config.HF_DATASETS_CACHE)
    return (
        f"the data set {source.dataset} cannot be had: {reason}.\n"
        f"  It is not in the cache, {cache} (HF_HOME moves that), and {mirrors}.\n"
        f"  Where there is a network, datasets.load_dataset({source.dataset!r}) fills the cache, which can be copied.\n"
        f"  A mirror: mirror=FOLDER, or {MIRROR}=FOLDER, with the data set's files in FOLDER/{source.dataset}.\n"
        "  Rows of your own: math:File-v0, qa:File-v0, code:File-v0 or logic:File-v0 with path=FILE, "
        'such as palestra.make("math:File-v0", path="my.jsonl", question="q", answer="a").'
    )


def check_dataset_id(dataset: str) -> None:
    """BadValue where `dataset` cannot be an id of the hub."""
    parts = dataset.split("/")
    if len(parts) > 2 or not all(
        part and part.replace("-", "").replace("_", "").replace(".", "").isalnum() for part in parts
    ):
        raise BadValue(f"a data set's id reads owner/name, got {dataset!r}; a file or folder goes by path=")
