from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from tests.papers.scripts import PAPERS


@pytest.fixture(scope="module", autouse=True)
def _path() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(PAPERS))
        yield
    for name in [n for n, m in sys.modules.items() if str(getattr(m, "__file__", None)).startswith(str(PAPERS))]:
        del sys.modules[name]  # other tests import a different module named "gem"
