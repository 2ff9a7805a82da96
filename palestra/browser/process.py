"""Start and end the browser process, and remove its profile folder."""

from __future__ import annotations

import os
import pwd
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

from palestra.browser.executable import command_line, find_browser
from palestra.browser.folders import LockedFolder, remove_stale
from palestra.errors import EnvFailed

PREFIX = "palestra-browser-"  # start of the names of profile folders
MAX_PARENT_LENGTH = (
    30  # the browser creates sockets in its profile, and the path of a socket has at most 107 characters
)
LAUNCHER = Path(__file__).with_name("launch.py")


class BrowserProcess:
    """A browser with its DevTools pipes and a temporary profile, which `kill` removes.

    If this process is root, the browser runs as the user nobody, so that its own sandbox works; `sandboxed=False`
    starts it with the privileges of this process and without its sandbox.
    """

    def __init__(self, *, sandboxed: bool = True) -> None:
        executable = find_browser()
        remove_stale_profiles()
        # The browser is ended at exit, before its profile is deleted, so the folder must not be deleted earlier.
        self._folder = LockedFolder(PREFIX, _parent(), at_exit=False)
        self.profile = self._folder.path
        user = _other_user() if sandboxed else None
        if user is not None:
            os.chown(self.profile, user, user)
        child_read, self.write_end = os.pipe()
        self.read_end, child_write = os.pipe()
        command = command_line(
            executable, self.profile, sandboxed=sandboxed and (os.geteuid() != 0 or user is not None)
        )
        launcher = [sys.executable, "-I", "-S", str(LAUNCHER), str(child_read), str(child_write)]
        try:
            self._process = subprocess.Popen(
                [*launcher, "-" if user is None else str(user), "none", *command],
                pass_fds=(child_read, child_write),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                env=_environment(self.profile),
                start_new_session=True,  # Ctrl-C interrupts only this process, which then ends the browser
            )
        except OSError as err:
            self._release()
            raise EnvFailed(f"the browser {executable} could not be started: {err}") from err
        finally:
            os.close(child_read)
            os.close(child_write)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def kill(self) -> int | None:
        """End the browser and all its processes, and remove the profile; return the exit status it had before."""
        code = self._process.poll()
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.kill()
        self._process.wait()
        self._release()
        return code

    def _release(self) -> None:
        # The reading thread owns `read_end` and closes it when the browser's end is closed.
        if self.write_end >= 0:
            os.close(self.write_end)
            self.write_end = -1
        self._folder.remove()

    def disown(self) -> None:
        """Release the parent's browser in a forked child process, so that it still ends with the parent."""
        for end in (self.write_end, self.read_end):
            with suppress(OSError):
                os.close(end)
        self._folder.disown()
        self.write_end = self.read_end = -1
        self._process.returncode = 0  # the browser is not a child of this process


def remove_stale_profiles() -> None:
    """Delete the profiles of processes that were killed before they could do so."""
    remove_stale(PREFIX, _parent())


def _parent() -> Path:
    """Return the folder for profiles: the one for temporary files, or /tmp if socket paths would be too long."""
    folder = Path(tempfile.gettempdir())
    return folder if len(str(folder)) <= MAX_PARENT_LENGTH else Path("/tmp")  # noqa: S108


def _other_user() -> int | None:
    """Return the id of the user that the browser runs as, or None if this process cannot change its user."""
    if os.geteuid() != 0:
        return None
    try:
        return pwd.getpwnam("nobody").pw_uid
    except KeyError:
        return 65534


def _environment(profile: Path) -> dict[str, str]:
    """Return the browser's environment variables: none of the user's secrets, proxies or desktop settings."""
    kept = ("PATH", "LD_LIBRARY_PATH", "FONTCONFIG_PATH", "FONTCONFIG_FILE")
    own = {
        "HOME": str(profile),
        "TMPDIR": str(profile),
        "LANG": "C.UTF-8",
        "TZ": "UTC",
        "DBUS_SESSION_BUS_ADDRESS": "disabled:",
    }
    return {**{name: os.environ[name] for name in kept if name in os.environ}, **own}
