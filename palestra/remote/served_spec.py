"""Request the spec of an environment from the server that provides it."""

from __future__ import annotations

import os
from dataclasses import fields
from functools import lru_cache
from time import monotonic, sleep
from typing import Any
from urllib.parse import quote

from palestra.errors import EnvFailed, UnknownEnv
from palestra.remote.address import parse, resolve_token
from palestra.remote.json_http import ErrorResponse, JsonHttpClient
from palestra.spec import EnvSpec

TIMEOUT = 10.0  # seconds per request
PATIENCE = 30.0  # seconds for which to retry while the server does not respond
_RETRIED = (502, 503, 504)  # statuses of a server that is starting or restarting


def served_spec(url: str, *, token: str | None = None, patience: float = PATIENCE) -> EnvSpec:
    """Return the spec that the server at `url` has registered; the reply is cached for the life of the process.

    Raises UnknownEnv if the server does not provide the environment, and EnvFailed if it does not respond.
    """
    return _request(os.getpid(), url, resolve_token(token), patience)


@lru_cache(maxsize=256)
def _request(process: int, url: str, token: str | None, patience: float) -> EnvSpec:  # noqa: ARG001  # part of the key
    address = parse(url)
    client = JsonHttpClient(address.base, token, TIMEOUT)
    end = monotonic() + patience
    pause = 0.05
    while True:
        try:
            data: dict[str, Any] = client.request("GET", f"v1/envs/{quote(address.env, safe=':')}")
            break
        except ErrorResponse as err:
            if err.status == 404:
                raise UnknownEnv(f"{address.base} does not serve {address.env!r}, or is not a Palestra server") from err
            if err.status not in _RETRIED or monotonic() + pause > end:
                raise
        except EnvFailed:
            if monotonic() + pause > end:
                raise
        finally:
            client.close()
        sleep(pause)
        pause = min(2 * pause, 1.0)
    return spec_from_json(data)


def spec_from_json(data: dict[str, Any]) -> EnvSpec:
    """Return the spec that `EnvSpec.to_json` describes; fields from a newer version are ignored."""
    low, high = data["reward_range"]
    known = {item.name for item in fields(EnvSpec)}
    return EnvSpec(
        **{
            **{name: value for name, value in data.items() if name in known},
            "reward_range": (float("-inf") if low is None else low, float("inf") if high is None else high),
            "splits": tuple(data.get("splits", ())),
        }
    )
