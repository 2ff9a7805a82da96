"""Build the wheel and the source distribution, check them, and try the wheel in an empty environment.

    python scripts/release.py [--out dist]

Checks: the version agrees everywhere, the wheel contains every file of the package and nothing else, the metadata is
complete, and `palestra --version`, `palestra envs` and an evaluation work with no other package installed.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from email.parser import HeaderParser
from pathlib import Path

ROOT = Path(__file__).parents[1]
REQUIRED = ("Name", "Version", "Summary", "License-Expression", "Requires-Python", "Description-Content-Type")
NOT_PACKAGED = {"__pycache__", ".DS_Store"}


class ReleaseError(Exception):
    """The distribution must not be released."""


def declared_version(root: Path = ROOT) -> str:
    """Return the package's version; raise ReleaseError if CITATION.cff or CHANGELOG.md name another one."""
    match = re.search(r'^__version__ = "([^"]+)"', (root / "palestra" / "__init__.py").read_text(), re.M)
    if match is None:
        raise ReleaseError("palestra/__init__.py has no __version__")
    version = match[1]
    cited = re.search(r"^version: (\S+)", (root / "CITATION.cff").read_text(), re.M)
    if cited is None or cited[1] != version:
        raise ReleaseError(f"CITATION.cff names version {cited[1] if cited else 'none'}, the package {version}")
    if version not in (root / "CHANGELOG.md").read_text():
        raise ReleaseError(f"CHANGELOG.md has no section for {version}")
    return version


def check_wheel(wheel: Path, files: set[str], version: str) -> None:
    """Raise ReleaseError if the wheel does not contain exactly `files` and complete metadata."""
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        info = f"palestra-{version}.dist-info"
        packaged = {name for name in names if not name.startswith(f"{info}/")}
        if packaged != files:
            missing, extra = sorted(files - packaged)[:5], sorted(packaged - files)[:5]
            raise ReleaseError(f"{wheel.name}: missing {missing}, unexpected {extra}")
        metadata = HeaderParser().parsestr(archive.read(f"{info}/METADATA").decode())
        absent = [name for name in REQUIRED if not metadata[name]]
        if absent:
            raise ReleaseError(f"{wheel.name}: no {', '.join(absent)} in the metadata")
        if metadata["Version"] != version:
            raise ReleaseError(f"{wheel.name}: version {metadata['Version']}, expected {version}")
        if "palestra = palestra.__main__:main" not in archive.read(f"{info}/entry_points.txt").decode():
            raise ReleaseError(f"{wheel.name}: no command `palestra`")
        if not any(name.startswith(f"{info}/licenses/") for name in names):
            raise ReleaseError(f"{wheel.name}: no license file")


def package_files(root: Path = ROOT) -> set[str]:
    """Return the files of the package that git tracks."""
    listed = subprocess.run(
        ["git", "ls-files", "palestra"], cwd=root, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    return {name for name in listed if not NOT_PACKAGED & set(Path(name).parts)}


def check_source(archive: Path, version: str) -> None:
    with tarfile.open(archive) as tar:
        names = {name.partition("/")[2] for name in tar.getnames()}
    for name in ("pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "palestra/__init__.py"):
        if name not in names:
            raise ReleaseError(f"{archive.name}: {name} is missing")
    if version not in archive.name:
        raise ReleaseError(f"{archive.name}: expected version {version}")


def try_wheel(wheel: Path, version: str) -> None:
    """Install the wheel without any other package, and run a few commands outside the checkout."""
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        python = Path(folder) / "bin" / "python"
        _run([str(python), "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", str(wheel)], folder)
        command = str(Path(folder) / "bin" / "palestra")
        if _run([command, "--version"], folder).strip() != f"palestra {version}":
            raise ReleaseError("`palestra --version` prints another version")
        _run([command, "envs"], folder)
        _run([command, "eval", "game:GuessTheNumber-v0-easy", "--agent", "expert", "-n", "2", "--out", "out"], folder)


def _run(command: list[str], folder: str) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ReleaseError(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="Folder for the distribution.")
    out: Path = parser.parse_args().out
    try:
        version = declared_version()
        shutil.rmtree(out, ignore_errors=True)
        with tempfile.TemporaryDirectory() as folder:  # hatchling builds the source distribution and the wheel
            venv.create(folder, with_pip=True)
            python = str(Path(folder) / "bin" / "python")
            _run([python, "-m", "pip", "install", "--quiet", "build"], folder)
            _run([python, "-m", "build", "--outdir", str(out), str(ROOT)], folder)
        wheel = next(out.glob("palestra-*.whl"))
        source = next(out.glob("palestra-*.tar.gz"))
        check_wheel(wheel, package_files(), version)
        check_source(source, version)
        try_wheel(wheel, version)
    except ReleaseError as err:
        print(f"release: {err}", file=sys.stderr)
        return 1
    for path in (wheel, source):
        print(f"{path.stat().st_size:>12,}  {path.name}")
    print(f"palestra {version} is ready in {out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
