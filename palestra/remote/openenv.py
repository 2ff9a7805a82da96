"""Use environments on servers with OpenEnv's protocol, with URLs like `openenv+http://host:port`."""

from __future__ import annotations

import json
from contextlib import ExitStack, suppress
from typing import Any
from urllib.parse import urlsplit

from palestra.core import Reset
from palestra.errors import BadValue, EnvFailed
from palestra.optional import require
from palestra.remote.adapter import AdapterEnv
from palestra.remote.json_http import JsonHttpClient, base_url
from palestra.types import Step

MAX_MESSAGE = 100 << 20  # maximum bytes per message, as in OpenEnv's client
ACTION_KEYS = ("action", "text", "message", "code", "command", "content", "query")
TEXT_KEYS = ("text", "message", "content", "output", "prompt", "observation", "echoed_message", "result")


class OpenEnvEnv(AdapterEnv):
    """Environment on an OpenEnv server, with its own WebSocket connection.

    `action_key` is the field in which an action's text is sent. The default is the only string field of the
    server's action schema, or the first of ACTION_KEYS that is in the schema. If there is no such field, actions must
    be JSON objects. `text_key` is the field that contains an observation's text. The default is the first of
    TEXT_KEYS in the observation. If there is no such field, the text is the whole observation as JSON.
    `info["observation"]` always contains the whole observation. If an action does not match the schema, the observation
    is an error message. `reset` options are passed to the server.
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
        self._base = base_url(url, "openenv")
        self._token = token
        self._timeout = timeout
        self._text_key = text_key
        self._socket: Any = None
        self._resources = ExitStack()  # contains the open socket
        self._action_key = action_key or self._read_schema()
        self._connect()

    # Episodes.

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        seed = self.start_episode(seed)
        data = {**(options or {}), "seed": seed}
        reply = self._request({"type": "reset", "data": data})
        if reply["type"] == "error":
            message = str(reply["data"].get("message"))
            code = reply["data"].get("code")
            self._abandon()
            if code == "VALIDATION_ERROR":
                raise BadValue(f"{self._base} rejected the reset: {message}")
            raise EnvFailed(f"{self._base} could not start an episode ({code}): {message}")
        observation = self._observation(reply)
        self._started()
        return self._text(observation), {"seed": seed, "observation": observation}

    def step(self, action: str) -> Step:
        self._check_running(action)
        data = self._action(action)
        if data is None:
            hint = "The action must be a JSON object. No action was taken."
            return self._step_result(hint, 0.0, False, {"invalid": "format"})
        reply = self._request({"type": "step", "data": data})
        if reply["type"] == "error":
            message, code = str(reply["data"].get("message")), reply["data"].get("code")
            if code == "VALIDATION_ERROR":
                return self._step_result(f"Invalid action: {message}", 0.0, False, {"invalid": "format"})
            self._abandon()
            raise EnvFailed(f"{self._base} failed during a step ({code}): {message}")
        observation = self._observation(reply)
        reward, done = reply["data"].get("reward"), reply["data"].get("done")
        if reward is None and done is False:
            reward = 0.0  # OpenEnv servers may omit the reward of all steps but the last
        if isinstance(reward, bool) or not isinstance(reward, int | float) or not isinstance(done, bool):
            self._abandon()
            raise EnvFailed(f"{self._base} returned an invalid reward or done: {reward!r}, {done!r}")
        extra = observation.get("info")
        info = dict(extra) if isinstance(extra, dict) else {}
        info["observation"] = observation
        truncated = observation.get("truncated") is True
        return self._step_result(self._text(observation), reward, done, info, truncated=truncated)

    def close(self) -> None:
        socket, self._socket = self._socket, None
        self._state = "reset"
        if socket is not None:
            with suppress(Exception):  # the connection may already be broken
                socket.send('{"type": "close"}')
            with suppress(Exception):
                self._resources.close()

    def _action(self, text: str) -> dict[str, Any] | None:
        if self._action_key:
            return {self._action_key: text}
        try:
            action = json.loads(text)
        except (ValueError, RecursionError):
            return None
        return action if isinstance(action, dict) else None

    def _text(self, observation: dict[str, Any]) -> str:
        keys = (self._text_key,) if self._text_key else TEXT_KEYS
        for key in keys:
            if isinstance(observation.get(key), str):
                return str(observation[key])
        return json.dumps(observation, ensure_ascii=False)

    # Requests to the server.

    def _read_schema(self) -> str:
        """Return the name of the field for an action's text, or "" if the schema has no such field."""
        http = JsonHttpClient(self._base, self._token, self._timeout)
        try:
            schema = http.request("GET", "schema")
        finally:
            http.close()
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
                max_size=MAX_MESSAGE,
                proxy=None,
            )
            self._socket = self._resources.enter_context(opening)
        # The websockets library raises different exceptions for an error status, a timeout and a missing server.
        except Exception as err:
            status = getattr(getattr(err, "response", None), "status_code", None)
            if status in (401, 403, 421):
                raise BadValue(f"{self._base} denied access ({status}); pass its token as token=...") from err
            raise EnvFailed(f"{address} cannot be reached: {type(err).__name__}: {err}") from err

    def _request(self, message: dict[str, Any]) -> dict[str, Any]:
        """Send a message and return the reply. After a failure, close the socket, so that a late reply is dropped."""
        if self._socket is None:
            self._connect()
        try:
            self._socket.send(json.dumps(message))
            reply = json.loads(self._socket.recv(timeout=self._timeout))
        except TimeoutError as err:
            self._abandon()
            raise EnvFailed(f"{self._base} did not reply to a {message['type']} within {self._timeout:g} s") from err
        except Exception as err:
            self._abandon()
            raise EnvFailed(
                f"the connection to {self._base} failed during a {message['type']}: {type(err).__name__}: {err}"
            ) from err
        except BaseException:
            self._abandon()
            raise
        if not isinstance(reply, dict) or not isinstance(reply.get("data"), dict) or "type" not in reply:
            self._abandon()
            raise EnvFailed(f"{self._base} sent an invalid reply: {str(reply)[:200]!r}")
        return reply

    def _observation(self, reply: dict[str, Any]) -> dict[str, Any]:
        observation = reply["data"].get("observation")
        if reply["type"] != "observation" or not isinstance(observation, dict):
            self._abandon()
            raise EnvFailed(f"{self._base} sent {str(reply)[:200]!r} instead of an observation")
        return observation

    def _drop_episode(self) -> None:
        self._abandon()

    def _abandon(self) -> None:
        self.close()
        self._state = "failed"
