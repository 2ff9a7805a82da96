"""Find the browser's executable and choose its command-line flags."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from palestra.errors import BadValue, MissingExtra

VARIABLE = "PALESTRA_BROWSER"  # environment variable with the path of the executable
NAMES = (
    "chromium-headless-shell",
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
)
INSTALL = "apt-get install chromium-headless-shell (or chromium)"
# Executables that Debian's shell scripts start; the scripts add at most desktop flags.
_BEHIND_WRAPPER = {
    "/usr/bin/chromium": "/usr/lib/chromium/chromium",
    "/usr/bin/chromium-headless-shell": "/usr/lib/chromium/chromium-headless-shell",
}

_DISABLED_FEATURES = (
    "AutofillServerCommunication",
    "DestroyProfileOnBrowserClose",
    "DialMediaRouteProvider",
    "HttpsFirstBalancedMode",
    "HttpsFirstBalancedModeAutoEnable",
    "HttpsUpgrades",
    "MediaRouter",
    "OptimizationHints",
    "PaintHolding",
    "RenderDocument",
    "Translate",
    # Without these three, every window loads pages for the address bar's list, which take a second of CPU time.
    "WebUIOmniboxAimPopup",
    "WebUIOmniboxFullPopup",
    "WebUIOmniboxPopup",
)
FLAGS = (
    "--remote-debugging-pipe",
    "--disable-background-networking",
    "--disable-background-timer-throttling",
    "--disable-backgrounding-occluded-windows",
    "--disable-breakpad",
    "--disable-client-side-phishing-detection",
    "--disable-component-extensions-with-background-pages",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-dev-shm-usage",
    "--disable-domain-reliability",
    "--disable-extensions",
    f"--disable-features={','.join(_DISABLED_FEATURES)}",
    "--disable-gpu",
    "--disable-hang-monitor",
    "--disable-ipc-flooding-protection",
    "--disable-popup-blocking",
    "--disable-prompt-on-repost",
    "--disable-renderer-backgrounding",
    "--disable-smooth-scrolling",
    "--disable-sync",
    "--font-render-hinting=none",
    "--force-color-profile=srgb",
    "--force-device-scale-factor=1",
    "--hide-scrollbars",
    "--host-resolver-rules=MAP * ~NOTFOUND",  # requests are answered by this process, so no name is ever resolved
    "--lang=en-US",
    "--metrics-recording-only",
    "--mute-audio",
    "--no-default-browser-check",
    "--no-first-run",
    "--no-pings",
    "--password-store=basic",
    "--use-mock-keychain",
)


def find_browser() -> str:
    """Return the path of the browser's executable; raise MissingExtra with the install command if there is none."""
    chosen = os.environ.get(VARIABLE, "").strip()
    if chosen:
        path = shutil.which(chosen)
        if path is None:
            raise BadValue(f"{VARIABLE} must be the path or name of a Chromium executable, got {chosen!r}")
        return path
    for name in NAMES:
        path = shutil.which(name)
        if path is not None:
            real = _BEHIND_WRAPPER.get(path, path)
            return real if Path(real).exists() else path
    raise MissingExtra(f"Chromium was not found. Install it with: {INSTALL}, or set {VARIABLE} to its path")


def command_line(executable: str, profile: Path, *, sandboxed: bool) -> list[str]:
    """Return the command that starts the browser."""
    # The headless shell has no other mode and rejects the flag's value.
    headless = [] if "headless" in Path(executable).name else ["--headless=new"]
    unsafe = [] if sandboxed else ["--no-sandbox"]
    return [executable, *headless, *unsafe, *FLAGS, f"--user-data-dir={profile}", "about:blank"]
