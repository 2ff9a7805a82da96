"""Take the screenshot of the viewer in the README.

make demo
python scripts/screenshot.py runs --run guess_the_number --out docs/images/viewer.png
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

from palestra.browser.executable import find_browser


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="Folder that contains the runs.")
    parser.add_argument("--run", required=True, help="Name of the run to show.")
    parser.add_argument("--out", type=Path, required=True, help="PNG file to write.")
    args = parser.parse_args()
    command = [sys.executable, "-m", "palestra", "view", str(args.folder), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        address = next(word for word in server.stdout.readline().split() if word.startswith("http")).strip(";")
        try:
            with sync_playwright() as driver:
                browser = driver.chromium.launch(executable_path=find_browser(), args=["--no-sandbox"])
                page = browser.new_page(viewport={"width": 1200, "height": 760}, reduced_motion="reduce")
                page.goto(address)
                page.get_by_text(args.run, exact=True).first.click()
                page.wait_for_load_state("networkidle")
                page.get_by_text("indexing episodes").wait_for(state="hidden")
                page.screenshot(path=args.out)
        finally:
            server.terminate()


if __name__ == "__main__":
    main()
