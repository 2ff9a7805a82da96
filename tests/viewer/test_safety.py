"""Test access control and path restrictions."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

import palestra
from palestra.errors import BadValue
from palestra.sockets import is_loopback
from palestra.viewer import create_app
from palestra.viewer.folder import Folder, NotFound
from tests.viewer.sample_runs import played, store, training_run
from tests.viewer.server import OWN, Server

SECRET = "content of a private file"


def test_without_a_token_only_loopback_host_names_are_accepted(server: Server) -> None:
    for host in (f"localhost:{server.port}", "127.0.0.1", "[::1]:9", "LOCALHOST"):
        assert server.request("/api/runs", host=host).status == 200
    for host in (
        "evil.example",
        f"evil.example:{server.port}",
        "127.0.0.1.evil.example",
        "localhost.",
        "",
        "a@localhost:x",
    ):
        response = server.request("/api/runs", host=host or " ")
        assert response.status in (400, 421), host
        assert b"trained" not in response.body


def test_another_address_needs_a_token(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "palestra", "view", str(tmp_path), "--port", "0", "--host", "0.0.0.0"]
    environment = {k: v for k, v in os.environ.items() if k != "PALESTRA_VIEW_TOKEN"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=environment)
    assert done.returncode == 2
    assert "--token" in done.stderr
    with pytest.raises(BadValue, match="token"):
        create_app(tmp_path, any_host=True)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost", "127.8.8.8"])
def test_loopback_hosts(host: str) -> None:
    assert is_loopback(host) is True


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "localhost.example", ""])
def test_other_hosts_are_not_loopback(host: str) -> None:
    assert not is_loopback(host)


@pytest.fixture(scope="module")
def protected(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("protected")
    training_run(folder / "t", steps=1)
    server = Server(folder, tmp_path_factory.mktemp("cache"), "--host", "0.0.0.0", "--token", "sesame öffne")
    yield server
    assert server.close() == ""


def test_a_token_is_accepted_in_header_and_cookie(protected: Server) -> None:
    for path in ("/api/runs", "/main.js", "/api/envs", "/nothing"):
        assert protected.request(path).status == 401
        assert protected.request(path, headers={"authorization": "Bearer wrong"}).status == 401
        assert protected.request(path, headers={"cookie": "palestra_view=wrong"}).status == 401
        assert protected.request(f"{path}?token=sesame").status == 401
    assert protected.request("/api/runs", headers={"authorization": "Bearer sesame \xc3\xb6ffne"}).status == 200
    page = protected.request("/")
    assert page.status == 401
    assert b"<form" in page.body
    assert protected.request("/style.css").status == 200  # the login form needs its style sheet
    opened = protected.request(f"/?token={quote('sesame öffne')}", host="somewhere.example")
    assert (opened.status, opened.headers["location"]) == (303, "/")
    cookie = opened.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    assert "sesame" not in cookie
    saved = {"cookie": cookie.partition(";")[0]}
    assert protected.request("/api/runs", headers=saved).status == 200
    assert protected.post("play", {"env": "game:GuessTheNumber-v0-easy"}).status == 401


@pytest.mark.parametrize(
    "headers",
    [
        {"content-type": "application/json"},  # the viewer's own header is missing
        {"content-type": "text/plain"},
        {**OWN, "origin": "http://evil.example"},
        {**OWN, "origin": "null"},
        {**OWN, "sec-fetch-site": "cross-site"},
        {**OWN, "sec-fetch-site": "same-site"},
    ],
)
def test_requests_from_other_pages_are_refused(server: Server, headers: dict[str, str]) -> None:
    body = {"env": "game:GuessTheNumber-v0-easy"}
    for path in ("/api/play", "/api/play/move?game=a", "/api/play/save?game=a"):
        assert server.request(path, method="POST", body=body, headers=headers).status == 403
    preflight = {"origin": "http://evil.example", "access-control-request-method": "POST"}
    response = server.request("/api/play", method="OPTIONS", headers=preflight)
    assert response.status == 403
    assert "access-control-allow-origin" not in response.headers


def test_large_requests_are_refused(server: Server) -> None:
    assert server.request("/api/play", method="POST", headers={**OWN, "content-length": "99999999"}).status == 413
    chunked = {**OWN, "transfer-encoding": "chunked", "content-length": "x"}
    assert server.request("/api/play", method="POST", headers=chunked).status in (400, 411)


def test_every_response_has_security_headers(server: Server) -> None:
    for path in ("/", "/main.js", "/style.css", "/api/runs", "/nothing", "/api/run?run=none"):
        headers = server.request(path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert "server" not in headers
    page = server.request("/").body.decode()
    assert "http://" not in page
    assert "https://" not in page
    assert "<script>" not in page


def test_scripts_never_create_markup_from_text() -> None:
    static = Path(palestra.__file__).parent / "viewer" / "static"
    for script in static.glob("*.js"):
        code = script.read_text()
        for word in (
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
            "new Function",
            "srcdoc",
        ):
            assert word not in code, f"{script.name}: {word}"
        assert "https://" not in code  # no external resources


@pytest.fixture(scope="module")
def confined(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Path]]:
    """Serve runs that contain symbolic links to private files outside the folder."""
    base = tmp_path_factory.mktemp("confined")
    outside = base / "outside"
    training_run(outside / "hidden", steps=1)
    (outside / "secret.jsonl").write_text(SECRET)
    (outside / "tokenizer.json").write_text(SECRET)
    folder = base / "runs"
    store(folder / "fine" / "episodes.jsonl", played(palestra.agents.RandomAgent(), "game:GuessTheNumber-v0-easy", 1))
    (folder / "linked").symlink_to(outside / "hidden")
    (folder / "loose.jsonl").symlink_to(outside / "secret.jsonl")
    partly = folder / "partly"
    (partly / "trajectories").mkdir(parents=True)
    (partly / "run.json").symlink_to(outside / "hidden" / "run.json")
    (partly / "metrics.jsonl").symlink_to(outside / "hidden" / "metrics.jsonl")
    (partly / "summary.json").symlink_to(outside / "hidden" / "run.json")
    (partly / "trajectories" / "a.jsonl").symlink_to(outside / "secret.jsonl")
    (partly / "trajectories" / "deep").symlink_to(outside / "hidden" / "trajectories")
    (partly / "last").symlink_to(outside / "hidden" / "last")
    (folder / "loop").symlink_to(folder)
    (folder / ".hidden").mkdir()
    (folder / ".hidden" / "run.json").write_text("{}")
    server = Server(folder, tmp_path_factory.mktemp("cache"))
    yield server, outside
    assert server.close() == ""


def test_symbolic_links_to_outside_are_not_followed(confined: tuple[Server, Path]) -> None:
    server, _ = confined
    server.until_read("fine", 1)
    assert {card["name"] for card in server.get("runs")["runs"]} >= {"fine", "partly"}
    assert not {"linked", "loose.jsonl", ".hidden"} & {card["name"] for card in server.get("runs")["runs"]}
    partly = server.get("run", run="partly")
    assert partly["config"] is None
    assert partly["summary"] is None
    assert partly["index"]["files"] == 0
    for name in ("linked", "loose.jsonl", "linked/last", ".hidden"):
        assert server.request(f"/api/run?run={name}").status == 404
    for at in ("trajectories/a.jsonl:0", "trajectories/deep/step-000000.jsonl.gz:0"):
        assert server.request(f"/api/episode?run=partly&at={at}").status == 404


@pytest.mark.parametrize(
    "name",
    [
        "../outside/hidden",
        "..",
        "fine/../../outside/hidden",
        "/etc",
        "//etc",
        "fine/..",
        "./../outside/hidden",
        "%2e%2e/outside/hidden",
        "..%2foutside%2fhidden",
        "fine\x00",
        "",
        "~",
        "fine/",
        "a" * 5000,
    ],
)
def test_names_cannot_leave_the_folder(confined: tuple[Server, Path], name: str) -> None:
    server, outside = confined
    for coded in {name, quote(name, safe=""), quote(quote(name, safe=""), safe="")}:
        if not all(32 < ord(letter) < 127 for letter in coded):
            continue
        responses = [
            server.request(f"/api/{view}?run={coded}&at=episodes.jsonl:0") for view in ("run", "curves", "episodes")
        ]
        responses += [server.request(f"/api/episode?run=fine&at={coded}:0"), server.request(f"/{coded}")]
        for response in responses:
            assert SECRET.encode() not in response.body
            assert str(outside).encode() not in response.body
            assert b"default:0.1M" not in response.body  # a setting from the hidden run
    try:
        path = Folder(outside.parent / "runs").run(name).path.resolve()
    except NotFound:
        return
    assert path == outside.parent / "runs" / "fine"


def test_only_registered_environments_without_keywords_can_be_played(server: Server) -> None:
    for env in ("no:Such-v0", "os:system", "../x", "palestra.envs.games.sudoku:Sudoku"):
        response = server.post("play", {"env": env})
        assert (response.status, "problem" in response.json) == (400, True)
    assert server.post("play", {"env": "game:Sudoku-v0-easy", "kwargs": {"size": 3}}).status == 422
    assert server.post("play", {"env": "game:Sudoku-v0-easy", "seed": -1}).status == 422
