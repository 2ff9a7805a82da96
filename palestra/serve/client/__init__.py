"""Environments that live on a server: an address -> an Env, or a vector of them."""

from __future__ import annotations

from palestra.serve.client.env import RemoteEnv
from palestra.serve.client.make import make_remote, make_remote_vec

__all__ = ["RemoteEnv", "make_remote", "make_remote_vec"]
