"""Test the licenses and version ranges of the packages that Palestra's extras install."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import PackageMetadata, PackageNotFoundError, metadata, requires
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[1]
ALLOWED = {
    *(
        "0BSD",
        "Apache-2.0",
        "BSD-2-Clause",
        "BSD-3-Clause",
        "BSL-1.0",
        "CC0-1.0",
        "CNRI-Python",
        "ISC",
        "LLVM-exception",
    ),
    *("MIT", "MIT-0", "MIT-CMU", "PSF-2.0", "Zlib"),
    "MPL-2.0",  # applies only to changes in the package's own files
    "LGPL-2.0",  # license of func-timeout, which skyrl-gym imports and users can replace
    "LGPL-2.1",  # license of pygame-ce, which minigrid imports and users can replace
}
# Names that packages use instead of SPDX identifiers, in their License field or in their classifiers
SPDX = {
    "3-Clause BSD License": "BSD-3-Clause",
    "Apache": "Apache-2.0",
    "Apache 2.0": "Apache-2.0",
    "Apache 2.0 License": "Apache-2.0",
    "Apache License 2.0": "Apache-2.0",
    "Apache License, Version 2.0": "Apache-2.0",
    "Apache Software License": "Apache-2.0",
    "BSD": "BSD-3-Clause",
    "BSD 3-Clause License": "BSD-3-Clause",
    "BSD License": "BSD-3-Clause",
    "ISC License": "ISC",
    "LGPL v2.1": "LGPL-2.1",
    "LGPLv2": "LGPL-2.0",
    "MIT License": "MIT",
    "MIT license": "MIT",
    "MIT, BSD": "MIT AND BSD-3-Clause",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "Python Software Foundation License": "PSF-2.0",
    "Simplified BSD": "BSD-2-Clause",
}
UNSTATED = {"zss": "BSD-3-Clause"}  # packages whose metadata contain no license, only a license file
# CUDA libraries, which torch installs on x86. They are proprietary, but free to use, and torch needs them on a GPU.
PROPRIETARY = ("nvidia-", "cuda-")


def extras() -> dict[str, list[str]]:
    tables = tomllib.loads((ROOT / "pyproject.toml").read_text())
    found: dict[str, list[str]] = tables["project"]["optional-dependencies"]
    return found


def dependencies() -> dict[str, PackageMetadata]:
    """Return the metadata of every installed package that an extra other than `dev` requires directly or indirectly."""
    todo = [Requirement(text) for name, texts in extras().items() if name != "dev" for text in texts]
    packages: dict[str, PackageMetadata] = {}
    done: set[tuple[str, frozenset[str]]] = set()
    while todo:
        requirement = todo.pop()
        name = canonicalize_name(requirement.name)
        key = name, frozenset(requirement.extras)
        if name == "palestra" or key in done:
            continue
        done.add(key)
        try:
            packages[name] = metadata(name)
        except PackageNotFoundError:
            continue  # not installed on this platform
        for text in requires(name) or ():
            needed = Requirement(text)
            if needed.marker is None or any(needed.marker.evaluate({"extra": e}) for e in ("", *requirement.extras)):
                todo.append(needed)
    return packages


def license_of(package: PackageMetadata) -> str:
    """Return the license as an SPDX expression, or as stated if it has no known SPDX identifier."""
    fields = [*(package.get_all("License-Expression") or ()), *(package.get_all("License") or ()), ""]
    stated = fields[0].strip()
    stated = stated if "\n" not in stated else SPDX.get(stated.splitlines()[0], "")  # the text of the license
    if not stated:
        prefix = "License :: OSI Approved :: "
        classifiers = [text for text in package.get_all("Classifier") or () if text.startswith(prefix)]
        stated = " AND ".join(SPDX.get(text.removeprefix(prefix), text) for text in classifiers)
    return SPDX.get(stated, stated) or UNSTATED.get(canonicalize_name(package["Name"]), "")


def test_every_dependency_has_an_allowed_license() -> None:
    licenses = {name: license_of(package) for name, package in dependencies().items()}
    assert licenses["torch"]
    assert licenses["pygame-ce"] == "LGPL-2.1"
    refused = {
        name: text
        for name, text in licenses.items()
        if not name.startswith(PROPRIETARY)
        and not set(re.findall(r"[\w.+-]+", re.sub(r" (AND|OR|WITH) ", " ", text)) or [""]) <= ALLOWED
    }
    assert refused == {}


def test_torch_and_transformers_have_tested_upper_bounds() -> None:
    pinned = dict(line.split("==") for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line)
    ranges = {r.name: r.specifier for r in map(Requirement, extras()["hf"])}
    for name in ("torch", "transformers"):
        version = Version(pinned[name])
        assert version in ranges[name], "constraints.txt must be within the supported range"
        assert f"{version.major + 1}.0" not in ranges[name]
