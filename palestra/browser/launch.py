"""Program that starts a browser with fewer privileges: `python launch.py READ WRITE USER NETWORK COMMAND...`.

It runs in a separate process, which the browser then replaces, because its steps are not safe in a threaded process.
READ and WRITE are the ends of the DevTools pipes, which the browser expects as descriptors 3 and 4. USER is the user id
to change to ("-" keeps it), and NETWORK is "none" for a network namespace without any connection.
"""

from __future__ import annotations

import ctypes
import os
import sys

CLONE_NEWUSER, CLONE_NEWNET = 0x10000000, 0x40000000


def main(read: int, write: int, user: str, network: str, command: list[str]) -> None:
    first, second = os.dup(read), os.dup(write)
    while min(first, second) < 5:  # keep the copies away from the descriptors that they will replace
        first, second = os.dup(first), os.dup(second)
    os.dup2(first, 3)
    os.dup2(second, 4)
    os.closerange(5, max(first, second) + 1)
    libc = ctypes.CDLL(None, use_errno=True)
    if network == "none":
        remove_network(libc)
    if user != "-":
        os.setgroups([])
        os.setresgid(int(user), int(user), int(user))
        os.setresuid(int(user), int(user), int(user))
    os.execv(command[0], command)  # noqa: S606  # there is no shell


def remove_network(libc: ctypes.CDLL) -> None:
    """Enter an empty network namespace if the user may do so; requests are also blocked in the browser."""
    if sys.platform != "linux":
        return
    if os.geteuid() == 0:
        libc.unshare(CLONE_NEWNET)
        return
    uid, gid = os.getuid(), os.getgid()
    if libc.unshare(CLONE_NEWUSER | CLONE_NEWNET) == 0:
        for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
            with open(f"/proc/self/{name}", "w") as file:  # noqa: PTH123  # pathlib would slow down the start
                file.write(text)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4], sys.argv[5:])
