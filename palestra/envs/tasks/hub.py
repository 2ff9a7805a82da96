"""Load a dataset from the Hugging Face Hub, or from the local cache of the `datasets` package.

Without a network connection, `datasets` retries for half a minute, or for several minutes behind a firewall that drops
packets. This module therefore first checks whether the Hub is reachable, which takes a few seconds at most, and uses
only the cache if it is not.
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

from palestra.envs.tasks.files import choose_split, without_decoding
from palestra.envs.tasks.source import MIRROR, Source, Table
from palestra.errors import BadValue, DataMissing
from palestra.optional import require

CONNECT_TIMEOUT = 6.0  # maximum number of seconds to connect to the Hub, including name resolution


def load_from_hub(source: Source, *, mirror: Path | None = None) -> Table:
    """Load `source.dataset`; if this fails, raise DataMissing, which lists the locations searched and alternatives."""
    datasets = require("datasets", extra="data")
    check_dataset_id(str(source.dataset))
    offline = bool(datasets.config.HF_HUB_OFFLINE)
    reason = "HF_HUB_OFFLINE is set" if offline else ""
    if not offline:
        reason = unreachable_reason(str(datasets.config.HF_ENDPOINT)) or ""
    try:
        with _offline(datasets, bool(reason)):
            dataset = datasets.load_dataset(source.dataset, name=source.config, revision=source.revision)
    except (OSError, ValueError, RuntimeError) as err:  # exceptions from httpx and `datasets` are subclasses of these
        raise DataMissing(_message(source, reason or f"{type(err).__name__}: {err}", mirror, datasets)) from err
    if isinstance(dataset, datasets.Dataset):
        return without_decoding(dataset)
    return without_decoding(dataset[choose_split(list(dataset), source.split, str(source.dataset))])


def unreachable_reason(endpoint: str, timeout: float | None = None) -> str | None:
    """Return the reason why `endpoint` or its proxy is not reachable, or None if it is reachable."""
    timeout = CONNECT_TIMEOUT if timeout is None else timeout
    url = urlsplit(endpoint)
    host = url.hostname or ""
    proxy = getproxies().get(url.scheme)
    if proxy and not proxy_bypass(host):
        url = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
        host = url.hostname or ""
    port = url.port or (80 if url.scheme == "http" else 443)
    failure: list[str] = [f"no connection within {timeout:g} s"]

    def connect() -> None:
        try:
            socket.create_connection((host, port), timeout=timeout).close()
            failure.clear()
        except (OSError, UnicodeError) as err:
            failure[:] = [str(err)]

    # Connect in a thread because name resolution has no timeout parameter and can block without a network.
    thread = threading.Thread(target=connect, name="palestra hub", daemon=True)
    thread.start()
    thread.join(timeout)
    return f"{host} is not reachable ({failure[0]})" if failure else None


@contextmanager
def _offline(datasets: Any, enabled: bool) -> Iterator[None]:
    """Restrict `datasets` to its cache; it reads the environment variable HF_HUB_OFFLINE only when it is imported."""
    previous = datasets.config.HF_HUB_OFFLINE
    datasets.config.HF_HUB_OFFLINE = enabled or previous
    try:
        yield
    finally:
        datasets.config.HF_HUB_OFFLINE = previous


def _message(source: Source, reason: str, mirror: Path | None, datasets: Any) -> str:
    mirror_state = "no mirror is set" if mirror is None else f"it is not in the mirror {mirror}"
    cache = os.fspath(datasets.config.HF_DATASETS_CACHE)
    return (
        f"the dataset {source.dataset} cannot be loaded: {reason}.\n"
        f"  It is not in the cache {cache} (set by HF_HOME), and {mirror_state}.\n"
        f"  To fill the cache, run datasets.load_dataset({source.dataset!r}) on a machine with internet access and "
        "copy its cache folder.\n"
        f"  To use a mirror, pass mirror=FOLDER or set {MIRROR}=FOLDER, with the files in FOLDER/{source.dataset}.\n"
        "  To use your own rows, pass path=FILE to math:File-v0, qa:File-v0, code:File-v0 or logic:File-v0, for "
        "example "
        'palestra.make("math:File-v0", path="my.jsonl", question="q", answer="a").'
    )


def check_dataset_id(dataset: str) -> None:
    """Raise BadValue if `dataset` is not a valid id on the Hub."""
    parts = dataset.split("/")
    if len(parts) > 2 or not all(
        part and part.replace("-", "").replace("_", "").replace(".", "").isalnum() for part in parts
    ):
        raise BadValue(f"dataset must be owner/name, got {dataset!r}; pass a file or folder with path=")
