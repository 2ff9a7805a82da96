"""Test the search index: exact BM25 scores, sources, concurrency, unusual queries, and the search tool."""

from __future__ import annotations

import gzip
import json
import math
import os
import pickle
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

import palestra
from palestra.errors import BadValue
from palestra.tools import make_toolset
from palestra.tools.search import Index, Passage, SearchTool, build, read
from palestra.tools.search import index as index_module
from palestra.tools.search.analysis import analyser, raw_words, stem
from palestra.tools.search.encyclopedia import encyclopedia_passages

build_module = sys.modules["palestra.tools.search.build"]  # `search.build` is the function, which hides the module


def passages(*texts: str) -> list[Passage]:
    return [Passage(id=f"p{number}", title="", text=text) for number, text in enumerate(texts)]


def by_definition(texts: Sequence[str], query: str, k1: float, b: float, analyse: str = "plain") -> dict[int, float]:
    """Compute BM25 by its definition, in double precision."""
    term_of = analyser(analyse)

    def terms(text: str) -> list[str]:
        return [term for word in raw_words(text) if (term := term_of(word)) is not None]

    counts = [Counter(terms(text)) for text in texts]
    lengths = [sum(count.values()) for count in counts]
    mean = sum(lengths) / len(lengths) if lengths else 0.0
    scores: dict[int, float] = {}
    for term in terms(query):
        frequency = sum(term in count for count in counts)
        idf = math.log(1 + (len(texts) - frequency + 0.5) / (frequency + 0.5))
        for number, count in enumerate(counts):
            if term in count:
                times = count[term]
                weight = idf * times * (k1 + 1) / (times + k1 * (1 - b + b * lengths[number] / mean))
                scores[number] = scores.get(number, 0.0) + weight
    return scores


def assert_exact(ranking: list[tuple[int, float]], wanted: dict[int, float], topk: int) -> None:
    """Compare the scores per rank and per passage; passages with equal scores may be in any order."""
    best = sorted(wanted.values(), reverse=True)[:topk]
    assert [score for _, score in ranking] == pytest.approx(best, rel=1e-5)
    for number, score in ranking:
        assert score == pytest.approx(wanted[number], rel=1e-5)
    assert len({number for number, _ in ranking}) == len(ranking)


WORDS = ["ant", "bee", "cat", "dog", "eel", "fox", "gnu", "hen"]
sentences = st.lists(st.sampled_from(WORDS), max_size=12).map(" ".join)


@given(
    texts=st.lists(sentences, min_size=1, max_size=40),
    query=sentences,
    topk=st.integers(1, 12),
    k1=st.floats(0, 3),
    b=st.floats(0, 1),
    short=st.sampled_from([0, 3, 4096]),
    batch=st.sampled_from([5, 10**6]),
    merge_size=st.sampled_from([4, 10**6]),
)
def test_scores_are_those_of_the_definition(
    texts: list[str], query: str, topk: int, k1: float, b: float, short: int, batch: int, merge_size: int
) -> None:
    """Compare scores with the definition of BM25, including indexes that are built from many runs and ranges."""
    with (
        patch.object(build_module, "BATCH", batch),
        patch.object(build_module, "MERGE_SIZE", merge_size),
        patch.object(index_module, "_SHORT", short),
    ):
        index = Index.build(passages(*texts), k1=k1, b=b, analyse="plain")
        wanted = by_definition(texts, query, k1, b)
        assert_exact(index.rank(query, topk), wanted, topk)
        assert_exact(index.rank(query, topk), wanted, topk)  # the scores of one query must not affect the next


def test_long_lists_are_looked_up_with_the_same_result() -> None:
    """Compare scores for a corpus that is large enough for pruning with the default constants."""
    import numpy as np

    rng = np.random.default_rng(3)
    words = [f"w{rank}" for rank in range(3_000)]
    frequencies = 1 / np.arange(1, len(words) + 1) ** 0.9
    drawn = rng.choice(len(words), (8_000, 20), p=frequencies / frequencies.sum())
    texts = [" ".join(words[i] for i in row) for row in drawn]
    index = Index.build(passages(*texts), analyse="plain")
    pruned = 0
    original = np.searchsorted

    def counting(*args: object, **options: object) -> object:
        nonlocal pruned
        pruned += 1
        return original(*args, **options)  # type: ignore[call-overload]

    with patch.object(np, "searchsorted", counting):
        rankings = [index.rank(f"w{rare} w0 w1 w2", 10) for rare in range(2_000, 2_003)]
    assert pruned > 0
    for rare, hits in zip(range(2_000, 2_003), rankings, strict=True):
        assert_exact(hits, by_definition(texts, f"w{rare} w0 w1 w2", 0.9, 0.4), 10)


def test_ties_are_in_the_order_of_the_index() -> None:
    index = Index.build(passages(*["same words"] * 30, "other"))
    assert [number for number, _ in index.rank("words", 5)] == [0, 1, 2, 3, 4]
    assert [number for number, _ in index.rank("same words", 5)] == [0, 1, 2, 3, 4]


PAPER = """
caresses caress, ponies poni, ties ti, cats cat, feed feed, agreed agre, plastered plaster, bled bled, motoring
motor, sing sing, conflated conflat, troubled troubl, sized size, hopping hop, tanned tan, falling fall, hissing
hiss, fizzed fizz, failing fail, filing file, happy happi, sky sky, relational relat, conditional condit, rational
ration, valenci valenc, digitizer digit, conformabli conform, radicalli radic, differentli differ, vileli vile,
analogousli analog, vietnamization vietnam, predication predic, operator oper, feudalism feudal, decisiveness decis,
hopefulness hope, callousness callous, formaliti formal, sensitiviti sensit, sensibiliti sensibl, triplicate
triplic, formative form, formalize formal, electriciti electr, electrical electr, hopeful hope, goodness good,
revival reviv, allowance allow, inference infer, airliner airlin, gyroscopic gyroscop, adjustable adjust, defensible
defens, irritant irrit, replacement replac, adjustment adjust, dependent depend, adoption adopt, homologou homolog,
communism commun, activate activ, angulariti angular, homologous homolog, effective effect, bowdlerize bowdler,
probate probat, rate rate, cease ceas, controll control, roll roll
"""


@pytest.mark.parametrize("pair", PAPER.split(","))
def test_stems_are_those_of_porters_paper(pair: str) -> None:
    word, wanted = pair.split()
    assert stem(word) == wanted


@given(st.text())
def test_any_text_is_split_into_terms(text: str) -> None:
    for word in raw_words(text):
        assert word
        for name in ("english", "plain"):
            term = analyser(name)(word)
            assert term is None or term.encode()


def test_words_of_other_languages() -> None:
    texts = ["Der Zürcher Bürgermeister", "東京都は日本の首都", "café au lait", "наука и жизнь"]
    index = Index.build(passages(*texts))
    for query, wanted in [("burgermeister", 0), ("日本", 1), ("CAFÉ", 2), ("cafe", 2), ("Наука", 3), ("cafe\u0301", 2)]:
        assert [number for number, _ in index.rank(query, 1)] == [wanted], query


def test_unusual_queries() -> None:
    index = Index.build(encyclopedia_passages())
    for query in ["", " ", "the of and", "zzzz qqqq", "\x00\x01", "\ud800", "?" * 10]:
        assert index.search(query, 3) == []
    assert len(index.search(" ".join(f"river{n} town" for n in range(100_000)), 3)) == 3  # more than 1 MB
    assert len(index.search("river", 10**6)) <= len(index)
    for wrong in (0, -1):
        with pytest.raises(BadValue, match="topk"):
            index.search("river", wrong)
    with pytest.raises(BadValue, match="mode"):
        index.search("river", mode="fuzzy")
    with pytest.raises(BadValue, match="--dense"):
        index.search("river", mode="dense")


def test_an_empty_index() -> None:
    for texts in ([], ["", ""], ["the of"]):
        index = Index.build(passages(*texts))
        assert len(index) == len(texts)
        assert index.search("anything at all") == []


def test_every_form_of_source(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"id": 7, "contents": '"Ants"\nAnts walk.\nFar.'},
        {"_id": "b", "title": "Bees", "text": "Bees fly."},
        {"text": "Nameless."},
    ]
    lines = "\n".join(json.dumps(row) for row in rows)
    (tmp_path / "a.jsonl").write_text(lines + "\n\n")
    with gzip.open(tmp_path / "b.jsonl.gz", "wt") as file:
        file.write(lines)
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "c.md").write_text("one two three\n\nfour five\n\nsix seven eight nine ten eleven twelve")
    (tmp_path / "notes" / "d.bin").write_bytes(b"\x00")
    (tmp_path / "notes" / ".hidden.txt").write_text("not this")
    rows_read = list(read([tmp_path / "a.jsonl"]))
    assert rows_read == [
        Passage(id="7", title="Ants", text="Ants walk.\nFar."),
        Passage(id="b", title="Bees", text="Bees fly."),
        Passage(id="a:3", title="", text="Nameless."),
    ]
    assert rows_read[0].contents == rows[0]["contents"]
    assert [passage.text for passage in read([tmp_path / "b.jsonl.gz"])] == [passage.text for passage in rows_read]
    everything = list(read([tmp_path], words=5))
    assert [passage.text for passage in everything[6:]] == [
        "one two three four five",
        "six seven eight nine ten",
        "eleven twelve",
    ]
    assert {passage.title for passage in everything} == {"Ants", "Bees", "", "notes/c.md"}
    assert len({passage.id for passage in everything}) == len(everything) - 2  # two of the ids occur twice


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", "{not json", "line 1 is not valid JSON"),
        ("a.jsonl", '{"text": "x"}\n[1]', "line 2: a row must be a JSON object"),
        ("a.jsonl.gz", "not compressed", "damaged"),
        ("a.jsonl", '{"title": "x"}', "needs `contents` or `text`, but this one has title"),
    ],
)
def test_bad_rows_are_named(tmp_path: Path, name: str, content: str, message: str) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(BadValue, match=message):
        build(read([tmp_path / name]), tmp_path / "out")
    assert sorted(path.name for path in tmp_path.iterdir()) == [name]  # no partial index is left


def test_missing_and_damaged(tmp_path: Path) -> None:
    with pytest.raises(BadValue, match="no such file or folder"):
        list(read([tmp_path / "nowhere"]))
    (tmp_path / "empty").mkdir()
    with pytest.raises(BadValue, match="contains no files of type"):
        list(read([tmp_path / "empty"]))
    with pytest.raises(BadValue, match="palestra search-index"):
        Index(tmp_path / "empty")
    with pytest.raises(BadValue, match="palestra search-index"):
        SearchTool(str(tmp_path / "empty"))
    folder = build(encyclopedia_passages(), tmp_path / "index")
    with pytest.raises(BadValue, match="--overwrite"):
        build(encyclopedia_passages(), folder)
    with pytest.raises(BadValue, match="already exists$"):
        build(encyclopedia_passages(), tmp_path / "empty", overwrite=True)  # `overwrite` replaces only an index
    build(passages("new"), folder, overwrite=True)
    assert len(Index(folder)) == 1
    weights = folder / "postings.weights"
    weights.write_bytes(weights.read_bytes()[:-1])
    with pytest.raises(BadValue, match="damaged"):
        Index(folder)
    (folder / "palestra-search.json").write_text("{}")
    with pytest.raises(BadValue, match="build the index again"):
        Index(folder)


def test_a_source_that_fails_leaves_the_old_index(tmp_path: Path) -> None:
    folder = build(passages("old"), tmp_path / "index")

    def broken() -> Iterator[Passage]:
        yield from passages("new")
        raise OSError("disk failure")

    with pytest.raises(OSError, match="disk failure"):
        build(broken(), folder, overwrite=True)
    assert Index(folder).search("old")[0].passage.text == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["index"]


def test_threads_share_and_processes_reopen(tmp_path: Path) -> None:
    index = Index.build(encyclopedia_passages(), tmp_path / "index")
    queries = [passage.text for passage in list(encyclopedia_passages())[:100]]
    alone = [index.rank(query, 5) for query in queries]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda query: index.rank(query, 5), queries * 3)) == alone * 3
    assert pickle.loads(pickle.dumps(index)).rank(queries[0], 5) == alone[0]
    with pytest.raises(BadValue, match="out=FOLDER"):
        pickle.dumps(Index.build(passages("x")))
    assert len(pickle.loads(pickle.dumps(SearchTool(tmp_path / "index"))).hits("river")) == 3


def test_results_do_not_depend_on_the_hash_seed() -> None:
    code = (
        "from palestra.tools.search import SearchTool; tool = SearchTool(topk=5);"
        "print([tool.run({'query': q}).text for q in ('poet born on a river', 'amber and tin', 'observatory')])"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": str(seed)},
            capture_output=True,
            check=True,
            text=True,
        ).stdout
        for seed in (1, 2)
    }
    assert len(outputs) == 1
    assert "Doc 1(Title: " in outputs.pop()


def test_the_encyclopedia_supports_multi_hop_questions() -> None:
    """Look up a person's birthplace, then that town's river, then the mountain range where the river rises."""
    corpus = {passage.title: passage.text for passage in encyclopedia_passages()}

    def search(query: str) -> str:
        return str(SearchTool(topk=1).run({"query": query}).text)

    person = next(title for title, text in corpus.items() if " was a poet born in " in text)
    town = corpus[person].split("born in ")[1].split(",")[0]
    assert search(f"where was {person} born").startswith(f"Doc 1(Title: {person})")
    assert search(f"{town} town on the river").startswith(f"Doc 1(Title: {town})")
    river = corpus[town].split("on the river ")[1].split(",")[0]
    assert f"{river} (river)" in corpus
    assert search(f"in which range does the {river} rise").startswith(f"Doc 1(Title: {river} (river))")


def test_the_tool_in_an_environment() -> None:
    with palestra.make("game:GuessTheNumber-v0-easy", tools=["search"], max_tool_calls=2) as env:
        prompt, _ = env.reset(seed=1)
        assert "<search>" in str(prompt)
        step = env.step("<think>hm</think><search>observatory</search> and more")
        assert step.info["use_tool"]
        assert str(step.observation).startswith("Doc 1(Title: ")
        assert len(step.info["tool_calls"][0]["hits"]) == 3
        assert "`query` is empty" in str(env.step("<search>  </search>").observation)


def test_names_of_the_tool(tmp_path: Path) -> None:
    build(passages("hello world"), tmp_path / "i")
    assert (
        make_toolset(f"search:{tmp_path / 'i'}").tools[0].run({"query": "hello"}).text == "Doc 1(Title: ) hello world"
    )
    assert (
        SearchTool(Index(tmp_path / "i")).run({"query": "nothing"}).text
        == "No passage matches the query. Try other words."
    )
    with pytest.raises(BadValue, match="no vectors"):
        SearchTool(mode="hybrid")
    with pytest.raises(BadValue, match="topk"):
        SearchTool(topk=0)


def test_the_command_line(tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "ants.txt").write_text("Ants carry leaves.")

    def command(*args: str) -> subprocess.CompletedProcess[str]:
        words = [sys.executable, "-m", "palestra", *args]
        return subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)

    built = command("search-index", "notes", "--out", "notes.index", "--dense", "ngrams")
    assert built.returncode == 0, built.stderr
    assert built.stdout.startswith("1 passages, 4 terms")
    assert command("search", "carrying a leaf", "--index", "notes.index").stdout == (
        "Doc 1(Title: ants.txt) Ants carry leaves.\n"
    )
    hit = json.loads(command("search", "antz", "--index", "notes.index", "--mode", "hybrid", "--json").stdout)
    assert hit["title"] == "ants.txt"
    assert command("search-index", "--out", "x").returncode == 2
    assert command("search", "x", "--index", "nowhere").returncode == 2
