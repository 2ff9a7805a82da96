"""MkDocs hooks: add the generated pages to the navigation, and publish the files outside docs/ that pages link to.

MkDocs loads this file in `make docs` (see mkdocs.yml). The hooks add SECURITY.md, CONTRIBUTING.md and CHANGELOG.md as
pages, and other linked files, such as deploy/nginx.conf, as downloads in `source/`.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

ROOT = Path(__file__).parents[1]
PROJECT_PAGES = ("SECURITY.md", "CONTRIBUTING.md", "CHANGELOG.md")
LINK = re.compile(r"\]\((?!https?:|#|mailto:)([^)#\s]+)(#[^)]*)?\)")


def on_config(config: Any) -> Any:
    """Replace the placeholders in the navigation with the generated pages."""
    config["nav"] = _expand(config["nav"])
    return config


def _expand(item: Any) -> Any:
    if isinstance(item, dict):
        return {title: _expand(value) for title, value in item.items()}
    if not isinstance(item, list):
        return item
    pages: list[Any] = []
    for child in item:
        if child in ("GALLERY", "REFERENCE"):
            folder = ROOT / "docs" / "generated" / child.lower()
            names = sorted(path.name for path in folder.glob("*.md") if path.name != "index.md")
            pages += [f"generated/{child.lower()}/{name}" for name in names]
        else:
            pages.append(_expand(child))
    return pages


def on_files(files: Any, *, config: Any) -> Any:
    """Add the pages and files outside docs/."""
    for name in PROJECT_PAGES:
        files.append(File.generated(config, name, abs_src_path=str(ROOT / name)))
    linked = {
        target
        for page in [*(ROOT / "docs").glob("**/*.md"), *(ROOT / name for name in PROJECT_PAGES)]
        for target in _outside(page)
    }
    for target in sorted(linked):
        files.append(File.generated(config, f"source/{target}", abs_src_path=str(ROOT / target)))
    return files


def _outside(page: Path) -> list[str]:
    """Return the files outside docs/ that `page` links to, relative to the root."""
    found = []
    for match in LINK.finditer(page.read_text()):
        path = (page.parent / match[1]).resolve()
        if path.is_file() and ROOT in path.parents and ROOT / "docs" not in path.parents and path.suffix != ".md":
            found.append(path.relative_to(ROOT).as_posix())
    return found


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Rewrite links to files that have another place on the site."""
    here = posixpath.dirname(page.file.src_uri)
    is_project_page = page.file.src_uri in PROJECT_PAGES

    def rewrite(match: re.Match[str]) -> str:
        target, anchor = match[1], match[2] or ""
        if is_project_page:
            path = target.removeprefix("docs/") if target.startswith("docs/") else f"../{target}"
        else:
            path = posixpath.normpath(posixpath.join(here, target))
        if path.startswith("../"):
            path = path.removeprefix("../")
            path = path if path in PROJECT_PAGES else f"source/{path}"
        return f"]({posixpath.relpath(path, here or '.')}{anchor})"

    return LINK.sub(rewrite, markdown)
