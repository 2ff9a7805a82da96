"""Test the system call filter for both architectures by interpreting its instructions."""

from __future__ import annotations

import errno
import platform
import struct

import pytest

from palestra.tools.sandbox.guest import seccomp

ALLOWED, REFUSED, MISSING = "allowed", errno.EPERM, errno.ENOSYS
MACHINES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}


def evaluate(code: bytes, arch: int, number: int, args: tuple[int, ...] = ()) -> str | int:
    """Return the filter's decision about a system call: "allowed", or the error with which the call fails."""
    data = struct.pack("<IIQ6Q", number, arch, 0, *(*args, *[0] * 6)[:6])
    words = list(struct.iter_unpack("<HBBI", code))
    at = accumulator = 0
    while True:
        operation, true, false, operand = words[at]
        at += 1
        match operation:
            case 0x20:
                accumulator = struct.unpack_from("<I", data, operand)[0]
            case 0x15:
                at += true if accumulator == operand else false
            case 0x35:
                at += true if accumulator >= operand else false
            case 0x45:
                at += true if accumulator & operand else false
            case 0x06:
                return ALLOWED if operand == 0x7FFF0000 else operand & 0xFFFF
            case _:
                raise AssertionError(f"unknown instruction {operation:#x}")


@pytest.mark.parametrize("machine", MACHINES)
def test_each_call_is_allowed_or_refused_as_listed(monkeypatch: pytest.MonkeyPatch, machine: str) -> None:
    monkeypatch.setattr(platform, "machine", lambda: machine)
    code, arch, column = seccomp.program(), MACHINES[machine], list(MACHINES).index(machine)
    assert code is not None
    refused = {numbers[column] for numbers in seccomp._REFUSED.values()}
    conditional = {seccomp._CLONE3[column], seccomp._SOCKET[column]}
    for number in set(range(600)) - conditional:
        assert evaluate(code, arch, number) == (REFUSED if number in refused else number_only(column, number)), number
        assert evaluate(code, 0x40000003, number) == MISSING  # 32-bit programs
        assert evaluate(code, arch, number | 0x40000000) == MISSING  # the x32 ABI

    def decide(numbers: tuple[int, int], *args: int) -> str | int:
        return evaluate(code, arch, numbers[column], args)

    assert decide(seccomp._CLONE3) == MISSING
    assert [decide(seccomp._CLONE, flags) for flags in (0x11, 0x1200011, 0x10000011, 0x20000)] == [
        ALLOWED,
        ALLOWED,
        REFUSED,
        REFUSED,
    ]
    families = [decide(seccomp._SOCKET, family) for family in (1, 2, 10, 16, 40)]
    assert families == [ALLOWED] * 3 + [errno.EAFNOSUPPORT] * 2
    mappings = [decide(seccomp._MMAP, 0, 4096, 3, flags) for flags in (0x22, 0x02, 0x01, 0x21, 0x23)]
    assert mappings == [ALLOWED, ALLOWED, ALLOWED, REFUSED, REFUSED]
    assert [decide(seccomp._SETRLIMIT, name, 1) for name in (0, 3)] == [REFUSED, ALLOWED]
    high = 1 << 32  # a pointer whose lower half is 0
    limits = [decide(seccomp._PRLIMIT, *args) for args in ((0, 0, 0), (7, 0, 0), (0, 3, 5), (0, 3, high))]
    assert limits == [ALLOWED] * 4
    limits = [decide(seccomp._PRLIMIT, *args) for args in ((0, 0, 5), (0, 0, high), (7, 3, 5), (7, 3, high))]
    assert limits == [REFUSED] * 4
    signals = [decide(seccomp._PIDFD_SEND_SIGNAL, 3, 9, info) for info in (0, 5, high)]
    assert signals == [ALLOWED, REFUSED, REFUSED]


def number_only(column: int, number: int) -> str | int:
    """Return the decision for a call that is not always refused, if all its arguments are 0."""
    return REFUSED if number == seccomp._SETRLIMIT[column] else ALLOWED
