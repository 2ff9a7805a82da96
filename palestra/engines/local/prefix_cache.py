"""Index of cached conversations: find the entry that shares the longest prefix with a new prompt."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

HASH_BLOCK = 32  # tokens; shorter common prefixes are not shared


class CacheEntry:
    """One conversation and its block in the KV cache."""

    __slots__ = ("busy", "cached", "ids", "key", "offset", "prefix_hashes", "size")

    def __init__(self, ids: list[int], key: Hashable | None, offset: int, size: int) -> None:
        self.ids = ids  # all tokens in the conversation; a running request appends to the same list
        self.cached = 0  # number of leading ids whose keys and values are stored
        self.key = key  # key of the conversation
        self.offset = offset  # address of the block
        self.size = size  # capacity of the block in tokens
        self.busy = True  # whether a running request uses this entry
        self.prefix_hashes: list[int] = []  # hashes by which other prompts find this entry


class PrefixCache:
    """All cache entries, indexed by conversation and by prompt prefix; idle entries in least-recently-used order."""

    def __init__(self) -> None:
        self._idle: dict[CacheEntry, None] = {}  # least recently used first
        self._by_key: dict[Hashable, CacheEntry] = {}
        self._by_hash: dict[int, CacheEntry] = {}

    def __len__(self) -> int:
        """Return the number of idle entries."""
        return len(self._idle)

    def idle(self) -> list[CacheEntry]:
        return list(self._idle)

    def get(self, key: Hashable | None) -> CacheEntry | None:
        """Return a conversation's entry, busy or idle."""
        return None if key is None else self._by_key.get(key)

    def add(self, entry: CacheEntry, hashes: list[int]) -> None:
        """Add a busy entry; it replaces any older entry for the same conversation."""
        if entry.key is not None:
            self._by_key[entry.key] = entry
        entry.prefix_hashes = hashes
        self._by_hash.update(dict.fromkeys(hashes, entry))

    def activate(self, entry: CacheEntry) -> None:
        """Mark an idle entry as busy."""
        del self._idle[entry]
        entry.busy = True

    def deactivate(self, entry: CacheEntry) -> bool:
        """Mark a busy entry as idle. If it cannot be reused, remove it and return False; the caller frees its block."""
        entry.busy = False
        if entry.key is None or self._by_key.get(entry.key) is not entry:
            self.remove(entry)
            return False
        self._idle[entry] = None
        return True

    def remove(self, entry: CacheEntry) -> None:
        self._idle.pop(entry, None)
        if entry.key is not None and self._by_key.get(entry.key) is entry:
            del self._by_key[entry.key]
        for prefix_hash in entry.prefix_hashes:
            if self._by_hash.get(prefix_hash) is entry:
                del self._by_hash[prefix_hash]

    def forget(self, key: Hashable) -> CacheEntry | None:
        """Remove and return a finished conversation's idle entry; a busy one is removed when its request ends."""
        entry = self._by_key.pop(key, None)
        if entry is None or entry.busy:
            return None
        self.remove(entry)
        return entry

    def least_recently_used(self, exclude: CacheEntry | None = None) -> CacheEntry | None:
        """Return the least recently used idle entry other than `exclude`, or None if there is none."""
        return next((entry for entry in self._idle if entry is not exclude), None)

    def longest_match(self, hashes: Sequence[int]) -> CacheEntry | None:
        """Return the entry with the longest prefix in common with the prompt whose prefix hashes are `hashes`."""
        for prefix_hash in reversed(hashes):
            entry = self._by_hash.get(prefix_hash)
            if entry is not None:
                return entry
        return None


def prefix_hashes(ids: Sequence[int]) -> list[int]:
    """Return one hash for each prefix of `ids` whose length is a multiple of HASH_BLOCK."""
    hashes: list[int] = []
    prefix_hash = 0
    for end in range(HASH_BLOCK, len(ids) + 1, HASH_BLOCK):
        prefix_hash = hash((prefix_hash, *ids[end - HASH_BLOCK : end]))
        hashes.append(prefix_hash)
    return hashes


def common_prefix(a: Sequence[int], b: Sequence[int], limit: int) -> int:
    """Return the number of leading tokens that two sequences have in common, at most `limit`."""
    limit = min(limit, len(a), len(b))
    if a[:limit] == b[:limit]:
        return limit
    low, high = 0, limit  # a and b agree up to `low` and differ before `high`
    while high - low > 1:
        middle = (low + high) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle
    return low
