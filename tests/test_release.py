"""Test the checks of `make release`, which also builds and installs the distribution."""

from __future__ import annotations

import importlib.util
import zipfile
from pathlib import Path
from types import ModuleType

import pytest

import palestra

ROOT = Path(__file__).parents[1]
METADATA = """Metadata-Version: 2.4
Name: palestra
Version: {version}
Summary: A gym.
License-Expression: Apache-2.0
Requires-Python: >=3.11
Description-Content-Type: text/markdown
"""


@pytest.fixture(scope="module")
def release() -> ModuleType:
    spec = importlib.util.spec_from_file_location("release", ROOT / "scripts" / "release.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def wheel(folder: Path, *, names: set[str], metadata: str = METADATA.format(version="1.0")) -> Path:
    path = folder / "palestra-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name in names:
            archive.writestr(name, "")
        archive.writestr("palestra-1.0.dist-info/METADATA", metadata)
        archive.writestr("palestra-1.0.dist-info/licenses/LICENSE", "")
        archive.writestr(
            "palestra-1.0.dist-info/entry_points.txt", "[console_scripts]\npalestra = palestra.__main__:main\n"
        )
    return path


def test_the_version_agrees_everywhere(release: ModuleType) -> None:
    assert release.declared_version() == palestra.__version__


def test_a_complete_wheel_passes(release: ModuleType, tmp_path: Path) -> None:
    files = {"palestra/__init__.py", "palestra/envs/data/words.txt"}
    release.check_wheel(wheel(tmp_path, names=files), files, "1.0")


@pytest.mark.parametrize(
    ("names", "metadata", "message"),
    [
        ({"palestra/__init__.py"}, METADATA.format(version="1.0"), "missing ..palestra/core.py"),
        ({"palestra/__init__.py", "palestra/core.py", "tests/x.py"}, METADATA.format(version="1.0"), "unexpected"),
        ({"palestra/__init__.py", "palestra/core.py"}, METADATA.format(version="2.0"), "version 2.0, expected 1.0"),
        ({"palestra/__init__.py", "palestra/core.py"}, "Name: palestra\nVersion: 1.0\n", "no Summary"),
    ],
)
def test_defects_are_found(release: ModuleType, tmp_path: Path, names: set[str], metadata: str, message: str) -> None:
    with pytest.raises(release.ReleaseError, match=message):
        release.check_wheel(
            wheel(tmp_path, names=names, metadata=metadata), {"palestra/__init__.py", "palestra/core.py"}, "1.0"
        )
