"""Replay recordings in a fresh process: read a pickled job from standard input and print the results as JSON."""

import json
import pickle
import sys

from palestra.conformance.recording import Recording, replay_actions
from palestra.core import Env


def _replayed(recording: Recording, env: Env) -> list[str]:
    prompt, _ = env.reset(seed=recording.seed)
    return [prompt if isinstance(prompt, str) else repr(prompt), *replay_actions(env, recording.actions)]


def main() -> None:
    job = pickle.loads(sys.stdin.buffer.read())  # noqa: S301  # the input comes from the parent process
    with job["factory"]() as env:
        records = [_replayed(recording, env) for recording in job["recordings"]]
    continued = []
    for snapshot, actions in job["snapshots"]:
        with Env.restore(snapshot) as moved:
            continued.append(replay_actions(moved, actions))
    sys.stdout.write(json.dumps([records, continued]))  # JSON escapes lone surrogates, which UTF-8 cannot encode


main()
