"""Report why a rollout finished no episode."""

from __future__ import annotations

from collections import Counter

from palestra import errors
from palestra.errors import BadValue, EngineFailed, PalestraError, UsageError
from palestra.rollout import RolloutResult


def check_finished(result: RolloutResult, player: str, *, hint: str = "") -> None:
    """Raise an error with the most frequent cause of failure if no episode finished or the rollout stopped early.

    `player` names the player. `hint` is appended unless the cause is a usage error, whose message explains the fix.
    """
    if result.trajectories and result.stopped is None:
        return
    causes = Counter((t.failure.kind, t.failure.message) for t in result.failures if t.failure is not None)
    if not causes:
        raise EngineFailed(f"{player} finished no episode: {result.stopped or 'none was started'}")
    (kind, message), _ = causes.most_common(1)[0]
    usage = issubclass(getattr(errors, kind, PalestraError), UsageError)
    stopped = f"{player} finished {len(result.trajectories) or 'no'} episodes, {len(result.failures)} failed"
    raise (BadValue if usage else EngineFailed)(f"{stopped} ({kind}): {message}{'' if usage or not hint else hint}")
