"""Search with BM25 over a local memory-mapped index, optionally with vectors; a search server and its client.

from palestra.tools.search import Index, SearchTool, read

index = Index.build(read(["corpus.jsonl", "notes/"]), "corpus.index")      # or: palestra search-index ... --out ...
index.search("who built the bridge", topk=3)
env = palestra.make(id, tools=[SearchTool("corpus.index"), ...])           # or: tools=["search:corpus.index"]
"""

from palestra.optional import require

require("numpy", extra="search")  # before the modules below fail with a less helpful message

from palestra.tools.search.build import build  # noqa: E402
from palestra.tools.search.client import Retriever  # noqa: E402
from palestra.tools.search.dense import Encoder, get_encoder  # noqa: E402
from palestra.tools.search.index import Index  # noqa: E402
from palestra.tools.search.passages import Hit, Passage, read  # noqa: E402
from palestra.tools.search.tool import SearchTool  # noqa: E402

__all__ = ["Encoder", "Hit", "Index", "Passage", "Retriever", "SearchTool", "build", "get_encoder", "read"]
