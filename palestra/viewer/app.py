"""HTTP routes for the viewer: a JSON API for the runs in a folder, and static files."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from math import isfinite
from pathlib import Path
from time import monotonic, sleep
from typing import Annotated, Any

import orjson
from fastapi import Depends, FastAPI, Query, Request
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict, Field

from palestra import __version__
from palestra.errors import BadValue, InfrastructureError, PalestraError, ParsingFailed, UsageError
from palestra.viewer import advantages, lines
from palestra.viewer.access import AccessControl
from palestra.viewer.comparison import comparison
from palestra.viewer.episode_json import episode, picture
from palestra.viewer.facts import parse
from palestra.viewer.folder import Folder, NotFound, RunLocation
from palestra.viewer.index import Filter, Index
from palestra.viewer.indexer import Indexer
from palestra.viewer.play import GameStore
from palestra.viewer.records import RunReader, RunSummary
from palestra.viewer.rendering import Renderer, can_draw
from palestra.viewer.sharing import file_name, shared_page
from palestra.viewer.tokens import Tokenizers, token_view

STATIC = Path(__file__).with_name("static")
KINDS = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
PATIENCE = 1.5  # seconds to wait for an episode that is not indexed yet
_AT = re.compile(r"(?P<file>.+):(?P<n>[0-9]{1,12})", re.S)

Name = Annotated[str, Query(max_length=1000)]
Number = Annotated[int | None, Query(ge=0, lt=1 << 53)]


def _filter(
    env: Name = "",
    outcome: Name = "",
    error: Name = "",
    ending: Name = "",
    seed: Name = "",
    step: Number = None,
    min_turns: Number = None,
    max_turns: Number = None,
) -> Filter:
    return Filter(
        env=env,
        outcome=outcome,
        error=error,
        ending=ending,
        seed=seed,
        step=step,
        min_turns=min_turns,
        max_turns=max_turns,
    )


Wanted = Annotated[Filter, Depends(_filter)]


class NotIndexedYet(UsageError):
    """The episode is not indexed yet."""


class StartRequest(BaseModel):
    """Request to start an episode."""

    model_config = ConfigDict(extra="forbid")
    env: str = Field(max_length=200)
    seed: int | None = Field(default=None, ge=0, lt=1 << 53)


class ActionRequest(BaseModel):
    """Request to take an action."""

    model_config = ConfigDict(extra="forbid")
    text: str
    box: bool = True


class PlayerRequest(BaseModel):
    """Request for an action from the expert or the random player."""

    model_config = ConfigDict(extra="forbid")
    player: str


class Viewer:
    """State shared by the routes."""

    def __init__(self, folder: str | Path, **timeouts: float | None) -> None:
        self.folder = Folder(folder)
        self.index = Index(self.folder.path)
        self.indexer = Indexer(self.folder, self.index)
        self.records = RunReader(self.folder)
        self.tokenizers = Tokenizers(self.folder)
        self.games = GameStore(self.folder, **timeouts)
        self.renderings = Renderer()

    def close(self) -> None:
        self.indexer.stop()
        self.games.close()
        self.index.close()

    def open_run(self, run: str) -> RunSummary:
        """Return a run's summary and move the run to the front of the indexing queue."""
        place = self.folder.run(run)
        self.indexer.wake(run)
        return self.records.of(place)

    def load_episode(self, run: str, at: str) -> tuple[RunSummary, str, int, dict[str, Any]]:
        """Return the run, file, line number and stored data for an episode."""
        record = self.open_run(run)
        match = _AT.fullmatch(at)
        if match is None:
            raise NotFound("an episode must be specified as FILE:NUMBER")
        file, n = match["file"], int(match["n"])
        path = self.folder.file(record.place, file)
        spot = self._position(run, file, n, path)
        return record, file, n, parse(lines.read(path, spot))

    def _position(self, run: str, file: str, n: int, path: Path) -> lines.LinePosition:
        """Return the position of an episode in its file; wait briefly if it is not indexed yet."""
        until = monotonic() + PATIENCE
        while True:
            behind = self.indexer.is_behind(run, file, path)
            spot = self.index.spot(run, file, n)
            if spot is not None:
                return spot
            if not behind:
                raise NotFound(f"no episode {n} in {file!r}")
            if monotonic() > until:
                raise NotIndexedYet("this episode is not indexed yet; the run is still being read")
            sleep(0.05)

    def rate(self, run: str) -> dict[str, float]:
        """Return the success rate of the finished episodes, for runs whose files do not contain it."""
        counts = {item["value"]: item["count"] for item in self.index.facets(run)["outcome"]}
        played = sum(counts.get(name, 0) for name in ("solved", "unsolved", "truncated"))
        return {"success": counts.get("solved", 0) / played} if played else {}

    def progress(self, run: str) -> dict[str, Any]:
        return self.index.progress(run) | {"reading": self.indexer.reading(run)}

    def changes(self, runs: list[str]) -> dict[str, Any]:
        """Return hashes that change when runs change, and the indexing progress; fast enough to poll every second."""
        places: dict[str, RunLocation] = {place.name: place for place in self.indexer.seen()}
        marks = [f"{p.name}={self.records.version(p)}" for p in places.values()]
        run_changes = {}
        for run in runs[:20]:
            if run in places:
                self.indexer.wake(run)
                run_changes[run] = {
                    "version": hashlib.sha1(
                        f"{self.records.version(places[run])}/{self.indexer.versions.get(run)}".encode(),
                        usedforsecurity=False,
                    ).hexdigest(),
                    **self.progress(run),
                }
        counted = json.dumps(self.index.counts(), sort_keys=True)
        mark = hashlib.sha1("\n".join([*marks, counted]).encode(), usedforsecurity=False).hexdigest()
        return {"all": mark, "runs": run_changes}


def create_app(
    folder: str | Path,
    *,
    token: str | None = None,
    any_host: bool = False,
    step_timeout: float | None = None,
    reset_timeout: float | None = None,
) -> FastAPI:
    """Implement `palestra.viewer.create_app`."""
    if any_host and not token:
        raise BadValue("any_host=True requires a token")
    viewer = Viewer(folder, step_timeout=step_timeout, reset_timeout=reset_timeout)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        viewer.indexer.start()
        yield
        viewer.close()

    app = FastAPI(
        title="Palestra", version=__version__, lifespan=lifespan, docs_url=None, redoc_url=None, openapi_url=None
    )
    app.add_middleware(AccessControl, token=token, any_host=any_host)
    app.add_exception_handler(PalestraError, _problem)
    app.state.viewer = viewer
    _add_reading(app, viewer)
    _add_playing(app, viewer.games)
    _add_static(app)
    return app


def _add_reading(app: FastAPI, viewer: Viewer) -> None:
    """Add the routes that read runs, curves, episodes and tokens."""
    index = viewer.index

    @app.get("/api/runs")
    def runs() -> Response:
        counts = index.counts()
        cards = [viewer.records.card(place) for place in viewer.indexer.seen()]
        for card in cards:
            card["episodes"] = counts.get(card["name"], 0)
            if "success" not in card:
                card |= viewer.rate(card["name"])
            if not card["envs"]:
                card["envs"] = [item["value"] for item in index.facets(card["name"])["env"]]
        return _json({"folder": viewer.folder.path.name, "version": __version__, "runs": cards})

    @app.get("/api/changes")
    def changes(run: Annotated[list[str] | None, Query()] = None) -> Response:
        return _json(viewer.changes(run or []))

    @app.get("/api/run")
    def one(run: Name) -> Response:
        record = viewer.open_run(run)
        keys = ("versions", "command", "config")
        values = {key: record.settings.get(key) for key in keys}
        rest = {key: value for key, value in record.settings.items() if key not in keys}
        return _json(
            {**record.card(), **values, "settings": rest, "summary": record.summary, "index": viewer.progress(run)}
        )

    @app.get("/api/curves")
    def curves(run: Name) -> Response:
        return _json(viewer.open_run(run).curves())

    @app.get("/api/episodes")
    def episodes(
        run: Name,
        wanted: Wanted,
        sort: Name = "first",
        page: Annotated[int, Query(ge=0, lt=1 << 32)] = 0,
    ) -> Response:
        viewer.open_run(run)
        rows = index.list(run, wanted, sort=sort, page=page)
        return _json({**rows, "facets": index.facets(run), "index": viewer.progress(run)})

    @app.get("/api/episode")
    def one_episode(
        run: Name,
        at: Name,
        wanted: Wanted,
    ) -> Response:
        record, file, n, data = viewer.load_episode(run, at)
        turn_advantages = _turn_advantages(viewer, record, file, n, data)
        shown = episode(data, gamma=_gamma(record), advantages=turn_advantages.advantages)
        others = [o for o in index.same_task(shown["env_id"], shown["seed"]) if (o["run"], o["at"]) != (run, at)]
        around = index.neighbors(run, file, n, wanted)
        return _json(
            {
                "run": run,
                "at": at,
                **shown,
                "advantage_source": turn_advantages.source,
                "drawable": can_draw(data),
                "around": around,
                "same_task": others,
            }
        )

    @app.get("/api/tokens")
    def tokens(run: Name, at: Name) -> Response:
        record, file, n, data = viewer.load_episode(run, at)
        decoder, source = viewer.tokenizers.of(record.place, record.settings)
        turn_advantages = _turn_advantages(viewer, record, file, n, data)
        return _json(
            {
                "sequences": token_view(data, decoder),
                "tokenizer": source,
                "decoded": decoder is not None,
                "advantages": turn_advantages.advantages,
                "advantage_source": turn_advantages.source,
                "rewards": [turn["reward"] for turn in data["turns"]],
            }
        )

    @app.get("/api/comparison")
    def compared(before: Name, after: Name, metric: Name = "success") -> Response:
        return _json(comparison(viewer.folder, index, before, after, metric=metric))

    @app.get("/api/shared")
    def shared(run: Name, at: Name) -> Response:
        record, file, n, data = viewer.load_episode(run, at)
        turn_advantages = _turn_advantages(viewer, record, file, n, data)
        shown = episode(data, gamma=_gamma(record), advantages=turn_advantages.advantages)
        name = {"content-disposition": f'attachment; filename="{file_name(shown)}"'}
        return Response(shared_page(run, at, data, shown), media_type="text/html; charset=utf-8", headers=name)

    @app.post("/api/render")
    def render(run: Name, at: Name) -> Response:
        views = viewer.renderings.of(run, at, viewer.load_episode(run, at)[3])
        return _json([view.to_json() for view in views])

    @app.get("/api/rendered")
    def rendered(run: Name, at: Name, n: int) -> Response:
        return Response(viewer.renderings.picture(run, at, n), media_type="image/png")

    @app.get("/api/picture")
    def one_picture(run: Name, at: Name, turn: int, part: int) -> Response:
        body, kind = picture(viewer.load_episode(run, at)[3], turn, part)
        return Response(body, media_type=kind)


def _add_playing(app: FastAPI, games: GameStore) -> None:
    @app.get("/api/envs")
    def envs() -> Response:
        return _json(games.envs())

    @app.post("/api/play")
    def start(wanted: StartRequest) -> Response:
        return _json(games.state(games.start(wanted.env, wanted.seed)))

    @app.get("/api/play")
    def state(game: Name) -> Response:
        return _json(games.state(game))

    @app.post("/api/play/move")
    def move(game: Name, wanted: ActionRequest) -> Response:
        return _json(games.move(game, wanted.text, box=wanted.box))

    @app.post("/api/play/propose")
    def propose(game: Name, wanted: PlayerRequest) -> Response:
        return _json({"text": games.propose(game, wanted.player)})

    @app.post("/api/play/save")
    def save(game: Name) -> Response:
        return _json(games.save(game))

    @app.get("/api/play/rendered")
    def rendered(game: Name, n: int) -> Response:
        return Response(games.drawing(game, n), media_type="image/png")

    @app.get("/api/play/picture")
    def one_picture(game: Name, turn: int, part: int) -> Response:
        body, kind = picture(games.picture_of(game), turn, part)
        return Response(body, media_type=kind)


def _add_static(app: FastAPI) -> None:
    """Add routes for the static files, which are read at startup; request paths are never used as file paths."""
    for path in sorted(STATIC.iterdir()):
        if path.suffix in KINDS:
            address = "/" if path.name == "index.html" else f"/{path.name}"
            app.add_api_route(address, _file(path), methods=["GET", "HEAD"])


def _file(path: Path) -> Any:
    body, kind = path.read_bytes(), f"{KINDS[path.suffix]}; charset=utf-8"
    tag = f'"{hashlib.sha256(body).hexdigest()[:16]}"'
    headers = {"etag": tag, "cache-control": "no-cache"}

    async def answer(request: Request) -> Response:
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        return Response(body, media_type=kind, headers=headers)

    return answer


def _turn_advantages(
    viewer: Viewer, record: RunSummary, file: str, n: int, data: dict[str, Any]
) -> advantages.TurnAdvantages:
    step = (data.get("meta") or {}).get("step")
    config = record.config if record.kind == "train" else {}
    return advantages.advantages(
        viewer.index, config, record.place.name, file, n, step if isinstance(step, int) else None
    )


def _gamma(record: RunSummary) -> float:
    gamma = record.setting("algorithm", "gamma")
    return float(gamma) if isinstance(gamma, (int, float)) and 0 <= gamma <= 1 else 1.0


def _json(data: Any) -> Response:
    return Response(_dumps(data), media_type="application/json", headers={"cache-control": "no-store"})


def _dumps(data: Any) -> bytes:
    try:
        return orjson.dumps(data)  # converts NaN to null, because browsers reject NaN in JSON
    except TypeError:  # orjson supports neither lone surrogates nor huge integers
        return json.dumps(_finite(data)).encode()


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, (list, tuple)) else value


def _problem(_: Request, err: Exception) -> Response:
    status = (
        404 if isinstance(err, NotFound) else 202 if isinstance(err, NotIndexedYet) else 400
    )  # after a 202 response, the client polls again
    if isinstance(err, ParsingFailed):
        status = 422
    elif isinstance(err, InfrastructureError):
        status = 502
    body = {"problem": str(err), "kind": type(err).__name__}
    return Response(_dumps(body), status_code=status, media_type="application/json")
