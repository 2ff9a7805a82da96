"""`openenv+http://host:port` -> an environment on a server of OpenEnv's, or on one that speaks as they do."""

from __future__ import annotations

import json
from contextlib import ExitStack, suppress
from typing import Any
from urllib.parse import urlsplit

from palestra.core import Reset
from palestra.errors import BadValue, EnvFailed
from palestra.optional import require
from palestra.remote.adapter import ForeignEnv
from palestra.remote.adapter_http import Wire, base_of
from palestra.types import Step

LARGEST = 100 << 20  # bytes of a message, as in OpenEnv's client
ACTION_KEYS = ("action", "text", "message", "code", "command", "content", "query")
TEXT_KEYS = ("text", "message", "content", "output", "prompt", "observation", "echoed_message", "result")


def make_openenv(url: str, **kwargs: Any) -> OpenEnvEnv:
    """The environment at `url`; keywords are OpenEnvEnv's."""
    return OpenEnvEnv(url, **kwargs)


class OpenEnvEnv(ForeignEnv):
    """The environment of a server of OpenEnv's, over its socket, in a session of its own.

    The text of an action goes into the field `action_key`; left out, the one field for text that the server's schema
    has, or the first it has of action, text, message ... Where there is none, an action is a JSON object. The text of
    an observation is its field `text_key`, or the first it has of text, message, content ...; else the whole of it, as
    JSON. It is in `info["observation"]` in any case. An action that the server's schema refuses is answered, not an
    error. Options of `reset` are passed on.
    """

    def __init__(
        self,
        url: str,
        *,
        action_key: str | None = None,
        text_key: str | None = None,
        max_turns: int | None = None,
        timeout: float = 60.0,
        token: str | None = None,
    ) -> None:
        super().__init__(max_turns=max_turns)
        self._base = base_of(url, "openenv")
        self._token = token
        self._timeout = timeout
        self._text_key = text_key
        self._socket: Any = None
        self._held = ExitStack()  # what leaves the socket
        self._action_key = action_key or self._read_schema()
        self._connect()

    # The episode.

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        seed = self.start_episode(seed)
        data = {**(options or {}), "seed": seed}
        reply = self._ask({"type": "reset", "data": data})
        if reply["type"] == "error":
            words = str(reply["data"].get("message"))
            code = reply["data"].get("code")
            self._give_up()
            if code == "VALIDATION_ERROR":
                raise BadValue(f"{self._base} refuses to begin: {words}")
            raise EnvFailed(f"{self._base} cannot begin an episode ({code}): {words}")
        observation = self._observation(reply)
        self._begun()
        return self._text(observation), {"seed": seed, "observation": observation}

    def step(self, action: str) -> Step:
        self._check_running(action)
        data = self._action(action)
        if data is None:
            hint = "An action is a JSON object; nothing was done."
            return self._stepped(hint, 0.0, False, {"invalid": "format"})
        reply = self._ask({"type": "step", "data": data})
        if reply["type"] == "error":
            words, code = str(reply["data"].get("message")), reply["data"].get("code")
            if code == "VALIDATION_ERROR":
                return self._stepped(f"That is no action here: {words}", 0.0, False, {"invalid": "format"})
            self._give_up()
            raise EnvFailed(f"{self._base} failed at a step ({code}): {words}")
        observation = self._observation(reply)
        reward, done = reply["data"].get("reward"), reply["data"].get("done")
        if isinstance(reward, bool) or not isinstance(reward, int | float | None) or not isinstance(done, bool):
            self._give_up()
            raise EnvFailed(f"{self._base} answers with reward {reward!r} and done {done!r}")
        more = observation.get("info")
        info = dict(more) if isinstance(more, dict) else {}
        info["observation"] = observation
        cut = observation.get("truncated") is True
        return self._stepped(self._text(observation), float(reward or 0.0), done, info, cut=cut)

    def close(self) -> None:
        socket, self._socket = self._socket, None
        self._state = "reset"
        if socket is not None:
            with suppress(Exception):  # whatever is wrong with it, it is left
                socket.send('{"type": "close"}')
            with suppress(Exception):
                self._held.close()

    def _action(self, text: str) -> dict[str, Any] | None:
        if self._action_key:
            return {self._action_key: text}
        try:
            found = json.loads(text)
        except (ValueError, RecursionError):
            return None
        return found if isinstance(found, dict) else None

    def _text(self, observation: dict[str, Any]) -> str:
        keys = (self._text_key,) if self._text_key else TEXT_KEYS
        for key in keys:
            if isinstance(observation.get(key), str):
                return str(observation[key])
        return json.dumps(observation, ensure_ascii=False)

    # The server.

    def _read_schema(self) -> str:
        """The field that an action's text goes into; "" where there is none."""
        wire = Wire(self._base, self._token, self._timeout)
        try:
            schema = wire.ask("GET", "schema")
        finally:
            wire.close()
        fields = schema.get("action", {}).get("properties", {}) if isinstance(schema, dict) else {}
        texts = [name for name, kind in fields.items() if isinstance(kind, dict) and kind.get("type") == "string"]
        if len(texts) == 1:
            return str(texts[0])
        return next((key for key in ACTION_KEYS if key in texts), "")

    def _connect(self) -> None:
        client = require("websockets.sync.client", extra="serve")
        parts = urlsplit(self._base)
        scheme = "wss" if parts.scheme == "https" else "ws"
        headers = {"Authorization": f"Bearer {self._token}"} if self._token else {}
        address = f"{scheme}://{parts.netloc}{parts.path}/ws"
        try:
            opening = client.connect(
                address,
                additional_headers=headers,
                open_timeout=self._timeout,
                close_timeout=1.0,
                max_size=LARGEST,
                proxy=None,
            )
            self._socket = self._held.enter_context(opening)
        except Exception as err:  # a status, a time-out, no server: the library has an error for each
            status = getattr(getattr(err, "response", None), "status_code", None)
            if status in (401, 403, 421):
                raise BadValue(f"{self._base} does not let us in ({status}); give its token as token=...") from err
            raise EnvFailed(f"{address} cannot be reached: {type(err).__name__}: {err}") from err

    def _ask(self, message: dict[str, Any]) -> dict[str, Any]:
        """The reply to a message; a socket that owes one is thrown away, and the reply with it."""
        if self._socket is None:
            self._connect()
        try:
            self._socket.send(json.dumps(message))
            reply = json.loads(self._socket.recv(timeout=self._timeout))
        except TimeoutError as err:
            self._give_up()
            raise EnvFailed(f"{self._base} did not answer a {message['type']} within {self._timeout:g} s") from err
        except Exception as err:
            self._give_up()
            raise EnvFailed(f"{self._base} was lost at a {message['type']}: {type(err).__name__}: {err}") from err
        except BaseException:
            self._give_up()
            raise
        if not isinstance(reply, dict) or not isinstance(reply.get("data"), dict) or "type" not in reply:
            self._give_up()
            raise EnvFailed(f"{self._base} answers {str(reply)[:200]!r}")
        return reply

    def _observation(self, reply: dict[str, Any]) -> dict[str, Any]:
        observation = reply["data"].get("observation")
        if reply["type"] != "observation" or not isinstance(observation, dict):
            self._give_up()
            raise EnvFailed(f"{self._base} answers {str(reply)[:200]!r}, which is no observation")
        return observation

    def _give_up(self) -> None:
        self.close()
        self._state = "failed"
