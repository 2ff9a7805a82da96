"""WebArena's sites: their addresses, their logins, and a record of the requests to them."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from palestra.browser.sites import PortSite, Request, Response
from palestra.errors import BadValue

NAMES = ("shopping", "shopping_admin", "reddit", "gitlab", "map", "wikipedia", "homepage")
PORTS = {"http": 80, "https": 443}


def site_urls(given: Mapping[str, str] | None) -> dict[str, str]:
    """Return the addresses of the sites by name, from the argument or from WebArena's environment variables."""
    addresses = {name: os.environ.get(name.upper(), "") for name in NAMES} if given is None else dict(given)
    urls = {name: url.rstrip("/") for name, url in addresses.items() if url}
    for name, url in urls.items():
        parts = urlsplit(url)
        if parts.scheme not in PORTS or not parts.hostname:
            raise BadValue(f"the address of the site {name!r} must start with http:// or https://, got {url!r}")
    if not urls:
        raise BadValue(
            "WebArena's tasks need its sites, which you have to run: pass urls={'shopping': 'http://HOST:7770', ...} "
            f"or set the environment variables {', '.join(name.upper() for name in NAMES)}"
        )
    return urls


def fill_in(text: str, urls: Mapping[str, str]) -> str:
    """Replace placeholders such as __SHOPPING_ADMIN__ with the addresses of the sites."""
    for name, url in urls.items():
        text = text.replace(f"__{name.upper()}__", url)
    return text


class LiveSite(PortSite):
    """A site that the user runs. The list `requests` receives the requests to it and their responses, in order."""

    def __init__(self, url: str, requests: list[tuple[Request, Response]]) -> None:
        parts = urlsplit(url)
        port = parts.port or PORTS[parts.scheme]
        super().__init__(port, host=str(parts.hostname), secure=parts.scheme == "https")
        self.requests = requests

    def respond(self, request: Request) -> Response:
        response = super().respond(request)
        self.requests.append((request, response))
        return response


def live_sites(urls: Iterable[str]) -> dict[str, LiveSite]:
    """Return the sites by host, with one list of requests for all of them."""
    requests: list[tuple[Request, Response]] = []
    return {urlsplit(url).netloc.lower(): LiveSite(url, requests) for url in urls}


def login_cookies(folder: str, names: tuple[str, ...]) -> list[dict[str, Any]]:
    """Return the cookies that WebArena's `auto_login.py` has stored for these sites."""
    cookies: list[dict[str, Any]] = []
    combined = Path(folder) / f"{'.'.join(sorted(names))}_state.json"
    paths = [combined] if combined.exists() else [Path(folder) / f"{name}_state.json" for name in names]
    for path in paths:
        try:
            stored = json.loads(path.read_text(encoding="utf-8"))["cookies"]
        except (OSError, ValueError, KeyError) as err:
            raise BadValue(f"{path} must be a file that WebArena's auto_login.py has written: {err!r}") from err
        cookies += [{key: value for key, value in cookie.items() if key != "sameSite"} for cookie in stored]
    return cookies
