"""Limit the bytes of requests and responses in flight, per client and in total.

A request counts from the time its body is received until its response is ready, and a response until it is written to
the connection. A client that reaches its limit receives the error `capacity` and can retry. Results of resets, steps
and forks are stored, so nothing is executed twice. A single message may exceed the limits if its client has nothing
else in flight, so that every message can be delivered eventually. The response to a vector step is never refused,
because it would have to be built again; instead, a client at its limit cannot start one.
"""

from __future__ import annotations

from typing import Final

from palestra.remote.protocol import Fault, fault

FREE: Final = 1 << 16  # HTTP bodies up to this size are not counted


class ByteBudget:
    """Bytes in flight for all clients."""

    def __init__(self, *, total: int, per_client: int) -> None:
        self.total = total
        self.per_client = per_client
        self.used = 0
        self.refused = 0  # number of requests and responses that were refused
        self._accounts: dict[str, ClientBudget] = {}

    def of(self, owner: str) -> ClientBudget:
        """Return a client's budget. Access tokens identify clients, so their number is limited."""
        account = self._accounts.get(owner)
        if account is None:
            account = self._accounts[owner] = ClientBudget(self)
        return account

    def hold(self, size: int) -> bool:
        """Count bytes of an incomplete message; return False if this would exceed the total limit."""
        if self.used and self.used + size > self.total:
            self.refused += 1
            return False
        self.used += size
        return True

    def give_back(self, size: int) -> None:
        """Subtract `size` bytes that `hold` has counted."""
        self.used -= size


class ClientBudget:
    """Bytes in flight for one client."""

    __slots__ = ("_budget", "used")

    def __init__(self, budget: ByteBudget) -> None:
        self._budget = budget
        self.used = 0

    def take(self, size: int) -> bool:
        """Add `size` bytes and return True, or return False if this would exceed a limit."""
        budget, used = self._budget, self.used
        if used and (used + size > budget.per_client or budget.used + size > budget.total):
            return False
        self.used = used + size
        budget.used += size
        return True

    def add(self, size: int) -> None:
        """Add `size` bytes, even if this exceeds a limit."""
        self.used += size
        self._budget.used += size

    @property
    def full(self) -> bool:
        """True if this client has bytes in flight and a limit is reached."""
        budget = self._budget
        return bool(self.used) and (self.used >= budget.per_client or budget.used >= budget.total)

    def give_back(self, size: int) -> None:
        """Subtract `size` bytes, because a message has been handled or written to its connection."""
        self.used -= size
        self._budget.used -= size

    def refusal(self) -> Fault:
        """Return the error for a request or response that exceeds a limit."""
        self._budget.refused += 1
        return fault(
            "capacity",
            f"too much data is in flight (limits: {self._budget.per_client:,} bytes per client and "
            f"{self._budget.total:,} bytes in total); read the responses, then retry with the same id",
            retry_after=0.1,
        )
