"""BM25 search over a local memory-mapped index, optionally with dense vectors, and a search server with its client.

from palestra.tools.search import Index, SearchTool, read

index = Index.build(read(["corpus.jsonl", "notes/"]), "corpus.index")      # or: palestra search-index ... --out ...
index.search("who built the bridge", topk=3)
env = palestra.make(id, tools=[SearchTool("corpus.index"), ...])           # or: tools=["search:corpus.index"]
"""

from palestra.optional import require

require("numpy", extra="search")  # raises an error with the pip command before the imports below fail

from palestra.tools.search.build import build  # noqa: E402
from palestra.tools.search.client import Retriever  # noqa: E402
from palestra.tools.search.dense import Encoder, get_encoder  # noqa: E402
from palestra.tools.search.index import Index  # noqa: E402
from palestra.tools.search.passages import Hit, Passage, read  # noqa: E402
from palestra.tools.search.tool import SearchTool  # noqa: E402

__all__ = ["Encoder", "Hit", "Index", "Passage", "Retriever", "SearchTool", "build", "get_encoder", "read"]
