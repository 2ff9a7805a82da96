"""Test dense and hybrid retrieval: encoders, nearest neighbors and fusion of rankings."""

from __future__ import annotations

import importlib
import json
import threading
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from palestra.errors import BadValue, ParsingFailed, ToolFailed
from palestra.tools.search import Index, Passage, SearchTool, get_encoder
from palestra.tools.search.dense import (
    EmbeddingsEndpoint,
    NgramEncoder,
    TransformerEncoder,
    fuse_rankings,
    nearest,
)
from palestra.tools.search.encyclopedia import encyclopedia_passages


def test_misspelt_names_are_found(tmp_path: Path) -> None:
    corpus = list(encyclopedia_passages())
    index = Index.build(corpus, tmp_path / "i", encoder=NgramEncoder())
    town = next(passage.title for passage in corpus if " is a town " in passage.text)
    wrong = town[:3] + town[4:]
    assert index.search(wrong) == []
    opened = Index(tmp_path / "i")  # the index creates its encoder from the stored name
    assert town in [hit.passage.title for hit in opened.search(wrong, 5, mode="dense")]
    assert town in [hit.passage.title for hit in SearchTool(tmp_path / "i", topk=5, mode="hybrid").hits(wrong)]


@given(
    rows=st.integers(1, 60),
    columns=st.integers(1, 8),
    topk=st.integers(1, 70),
    block=st.integers(1, 70),
    seed=st.integers(0, 99),
)
def test_nearest_is_exact(rows: int, columns: int, topk: int, block: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    vectors = rng.integers(-2, 3, (rows, columns)).astype(np.float32)  # small integers cause ties
    query = rng.integers(-2, 3, columns).astype(np.float32)
    scores = [float(row @ query) for row in vectors]
    wanted = sorted(range(rows), key=lambda row: (-scores[row], row))[:topk]
    assert nearest(vectors, query, topk, block=block) == [(row, scores[row]) for row in wanted]


def test_fusion() -> None:
    assert [number for number, _ in fuse_rankings([[1, 2, 3], [3, 4, 1]], 4)] == [1, 3, 2, 4]
    assert fuse_rankings([[], []], 3) == []
    assert [number for number, _ in fuse_rankings([[5], [4]], 3)] == [4, 5]  # equal scores are ordered by number


class Stub(BaseHTTPRequestHandler):
    """Server that embeds a text as its length and its first character, unless a test sets `reply`."""

    reply: Any = None

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        data = [{"index": n, "embedding": [len(text), ord(text[0])]} for n, text in enumerate(body["input"])]
        body_bytes = json.dumps({"data": data[::-1]} if self.reply is None else self.reply).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body_bytes)))
        self.end_headers()
        self.wfile.write(body_bytes)

    def log_message(self, *args: Any) -> None:
        pass


@pytest.fixture
def server() -> Iterator[tuple[str, type[Stub]]]:
    kind = type("ConfiguredStub", (Stub,), {})
    with ThreadingHTTPServer(("127.0.0.1", 0), kind) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/v1/embeddings#some-model", kind
        server.shutdown()
        thread.join()


def test_an_embeddings_endpoint(server: tuple[str, type[Stub]], tmp_path: Path) -> None:
    address, kind = server
    texts = [Passage(id=str(n), title="", text="a" * n) for n in range(1, 200)]
    Index.build(texts, tmp_path / "i", encoder=get_encoder(address))
    index = Index(tmp_path / "i")
    assert index.search("a" * 150, 1, mode="dense")[0].passage.id == "150"
    for reply, error in [
        ({"data": []}, "0 embeddings for 1"),
        ({"error": "x"}, "no embeddings"),
        ([1], "no embeddings"),
    ]:
        kind.reply = reply
        with pytest.raises(ParsingFailed, match=error):
            index.search("a", mode="dense")


def test_an_unreachable_endpoint() -> None:
    with pytest.raises(ToolFailed, match="127.0.0.1:9"):
        EmbeddingsEndpoint("http://127.0.0.1:9/v1/embeddings#m").queries(["x"])
    for name in ("http://host/v1/embeddings", "word2vec"):
        with pytest.raises(BadValue):
            get_encoder(name)


@pytest.mark.slow
def test_a_transformer_from_a_folder(tmp_path: Path) -> None:
    """Check with a tiny untrained model that padding does not change a text's vector."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    transformers: Any = importlib.import_module("transformers")

    words = ["[PAD]", "[UNK]", *(letter for letter in "abcdefghijklmnopqrstuvwxyz:")]
    tokenizer = Tokenizer(models.WordLevel({word: n for n, word in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]"
    ).save_pretrained(tmp_path / "e5-x")
    config = transformers.BertConfig(
        vocab_size=len(words), hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16
    )
    transformers.BertModel(config).save_pretrained(tmp_path / "e5-x")
    encoder = get_encoder(f"hf:{tmp_path / 'e5-x'}")
    assert isinstance(encoder, TransformerEncoder)
    alone, padded = encoder.passages(["ab"]), encoder.passages(["ab", "abcdefghij" * 3])
    assert alone.dtype == np.float32
    assert np.allclose(alone[0], padded[0], atol=1e-5)
    assert np.allclose(np.linalg.norm(padded, axis=1), 1, atol=1e-5)
    assert not np.allclose(encoder.queries(["ab"]), alone, atol=1e-3)  # queries and passages have different E5 prefixes
    index = Index.build(
        [Passage(id="0", title="", text="ab"), Passage(id="1", title="", text="xyz")], tmp_path / "i", encoder=encoder
    )
    assert len(index.search("ab", 2, mode="hybrid")) == 2


def test_custom_encoders() -> None:
    class Lengths:
        name = "lengths"

        def passages(self, texts: Sequence[str]) -> Any:
            return np.array([[len(text), 1.0] for text in texts])

        queries = passages

    index = Index.build(encyclopedia_passages(), encoder=Lengths())
    assert len(index.search("anything", 4, mode="dense")) == 4
