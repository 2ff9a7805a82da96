"""The other Python of `remote.py`: a pickled job on standard input, the records as JSON on standard output."""

import json
import pickle
import sys

from palestra.conformance.recording import Tape, retrace
from palestra.conformance.replay import build
from palestra.core import Env


def _replayed(tape: Tape, env: Env) -> list[str]:
    prompt, _ = env.reset(seed=tape.seed)
    return [prompt if isinstance(prompt, str) else repr(prompt), *retrace(env, tape.actions)]


def main() -> None:
    job = pickle.loads(sys.stdin.buffer.read())  # noqa: S301  # from the parent process
    with build(job["recipe"]) as env:
        records = [_replayed(tape, env) for tape in job["tapes"]]
    continued = []
    for snapshot, actions in job["snapshots"]:
        with Env.restore(snapshot) as moved:
            continued.append(retrace(moved, actions))
    sys.stdout.write(json.dumps([records, continued]))  # JSON keeps lone surrogates as escapes


main()
