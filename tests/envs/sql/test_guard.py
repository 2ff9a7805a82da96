"""Test that no query can write, attach a database, run without limit, exhaust memory or read the clock."""

from __future__ import annotations

import resource
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palestra.envs.sql.domains import DOMAINS
from palestra.envs.sql.guard import NOW, File, Image, Limits, run
from palestra.errors import EnvFailed

SHOP = DOMAINS["shop"].build(1)
LIMITS = Limits()


@pytest.mark.parametrize(
    "query",
    [
        "DELETE FROM orders",
        "INSERT INTO orders VALUES (1, 2, 3, 4, 5)",
        "UPDATE orders SET status = 'x'",
        "DROP TABLE orders",
        "CREATE TABLE x (a)",
        "CREATE TEMP TABLE x (a)",
        "CREATE VIEW x AS SELECT 1",
        "ALTER TABLE orders RENAME TO x",
        "ATTACH DATABASE '/tmp/x.db' AS x",
        "VACUUM INTO '/tmp/x.db'",
        "PRAGMA writable_schema = ON",
        "PRAGMA query_only = OFF",
        "PRAGMA temp_store_directory = '/'",
        "PRAGMA journal_mode = WAL",
        "BEGIN",
        "SAVEPOINT x",
        "ANALYZE",
        "SELECT load_extension('x')",
        "SELECT random()",
        "SELECT hex(randomblob(8))",
        "SELECT zeroblob(1000000000)",
        "UPDATE sqlite_master SET sql = 'x'",
        "DELETE FROM sqlite_master",
        "INSERT INTO sqlite_master VALUES (1, 2, 3, 4, 5)",
        "SELECT fts3_tokenizer('x')",
        "SELECT sqlite_version()",
    ],
)
def test_only_read_access_is_allowed(query: str) -> None:
    result = run(SHOP, query, LIMITS)
    assert "only read access is allowed" in result.error
    assert result.rows == ()


def test_a_file_is_not_changed(tmp_path: Path) -> None:
    place = tmp_path / "odd name?#%.sqlite"
    place.write_bytes(SHOP.data)
    database = File(str(place))
    assert run(database, "SELECT COUNT(*) FROM customers", LIMITS).rows == ((40,),)
    for query in ("DELETE FROM customers", "UPDATE sqlite_master SET sql = ''", "PRAGMA user_version = 5"):
        assert run(database, query, LIMITS).error
    assert place.read_bytes() == SHOP.data
    assert [path.name for path in tmp_path.iterdir()] == [place.name]  # no journal file was created


ENDLESS = "WITH RECURSIVE r(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM r) SELECT COUNT(*) FROM r"
WIDE = "WITH RECURSIVE r(x, s) AS (SELECT 1, printf('%3900d', 1) UNION ALL SELECT x + 1, s FROM r) SELECT x, s FROM r"


@pytest.mark.parametrize(
    "query",
    [
        ENDLESS,
        "SELECT COUNT(*) FROM order_items a, order_items b, order_items c, order_items d",
        f"{WIDE} ORDER BY s DESC, x",
        WIDE.replace("UNION ALL", "UNION").replace("SELECT x, s FROM r", "SELECT COUNT(*) FROM r"),
        "WITH RECURSIVE r(x) AS (SELECT 1 UNION ALL SELECT x FROM r, r AS q LIMIT 10) SELECT * FROM r",
        "SELECT group_concat(a.title || b.title) FROM products a, products b, products c, products d",
    ],
)
def test_endless_queries_are_stopped(query: str) -> None:
    assert run(SHOP, query, LIMITS).error


def test_a_query_stops_at_the_same_step_everywhere() -> None:
    first = run(SHOP, f"{ENDLESS} LIMIT 1", Limits(steps=50_000))
    assert "after 50,000 steps" in first.error
    counts = "WITH RECURSIVE r(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM r LIMIT {n}) SELECT COUNT(*) FROM r"
    enough = [not run(SHOP, counts.format(n=n), Limits(steps=50_000)).error for n in range(1_000, 9_000, 500)]
    assert enough == sorted(enough, reverse=True)
    assert True in enough
    assert False in enough
    assert enough == [not run(SHOP, counts.format(n=n), Limits(steps=50_000)).error for n in range(1_000, 9_000, 500)]


def test_memory_use_is_limited() -> None:
    """Memory use is measured in a separate process, because this process's peak includes other tests."""
    code = (
        "import resource\n"
        "from palestra.envs.sql.domains import DOMAINS\n"
        "from palestra.envs.sql.guard import Limits, run\n"
        "shop = DOMAINS['shop'].build(1)\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        f"for query in ({WIDE + ' ORDER BY s DESC, x'!r}, {WIDE.replace('UNION ALL', 'UNION')!r}):\n"
        "    run(shop, query, Limits())\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    scale = 1 if sys.platform == "linux" else 1024
    assert int(done.stdout) / scale < 100_000  # kilobytes; the queries process a gigabyte
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss > 0


def test_the_clock_is_fixed() -> None:
    query = (
        "SELECT date('now'), datetime(), strftime('%Y-%m-%d %H:%M:%S'), CURRENT_TIMESTAMP, CURRENT_DATE || ' ' || "
        "CURRENT_TIME, date('n' || 'ow', 'localtime'), julianday('now') - julianday('2025-06-29 12:00:00')"
    )
    assert run(SHOP, query, LIMITS).rows == ((NOW[:10], NOW, NOW, NOW, NOW, NOW[:10], 1.0),)


@pytest.mark.parametrize(
    "expression",
    [
        "date('2024-02-28', '+2 days')",
        "strftime('%Y-%m', '2024-07-31 10:00')",
        "julianday('2024-03-01') - julianday('2024-02-01')",
        "date('2024-01-31', '+1 month', 'start of month')",
        "time('2024-01-01 05:06:07')",
        "date(NULL)",
        "date('no day')",
        "date(2460000.5)",
        "strftime('%s', '2024-01-01')",
    ],
)
def test_date_functions_equal_sqlites(expression: str) -> None:
    plain = sqlite3.connect(":memory:")
    assert run(SHOP, f"SELECT {expression}", LIMITS).rows == (plain.execute(f"SELECT {expression}").fetchone(),)
    plain.close()


@pytest.mark.parametrize(
    "query",
    [
        "SELECT name FROM sqlite_master",
        "PRAGMA table_info(orders)",
        "PRAGMA foreign_key_list('orders')",
        "SELECT name FROM pragma_table_info('orders')",
        "EXPLAIN QUERY PLAN SELECT * FROM orders",
        "VALUES (1), (2)",
        "SELECT DISTINCT city, COUNT(*) OVER (PARTITION BY city) FROM customers",
        "SELECT value FROM json_each('[1, 2]')",
        "WITH RECURSIVE r(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM r WHERE x < 5) SELECT * FROM r",
        "/* a comment */ SELECT 1;",
    ],
)
def test_all_kinds_of_reading_work(query: str) -> None:
    result = run(SHOP, query, LIMITS)
    assert result.error == ""
    assert result.rows


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", "not a query"),
        ("-- nothing", "not a query"),
        ("SELECT 1; SELECT 2", "one statement"),
        ("SELECT name FROM nowhere", "no such table"),
        ("SELECT ?", "bindings"),
        ("SELECT '\x00'", "null character"),
        ("\ud800", "cannot be parsed"),
        ("x" * 30_000, "at most"),
        ("SELECT " + "(" * 900 + "1" + ")" * 900, "overflow"),
        ("SELECT " + "-" * 3_000 + "1", ""),
        (f"SELECT {'hex(' * 9}title{')' * 9} FROM products", "bytes"),
    ],
)
def test_invalid_queries_return_an_error(query: str, expected: str) -> None:
    result = run(SHOP, query, LIMITS)
    assert result.error
    assert expected in result.error


@given(st.text(max_size=80))
def test_any_text_returns_a_result(query: str) -> None:
    result = run(SHOP, query, LIMITS, rows=2)
    assert result.error or len(result.rows) <= 2


def test_rows_are_limited() -> None:
    result = run(SHOP, "SELECT * FROM customers", LIMITS, rows=5)
    assert len(result.rows) == 5
    assert result.more
    assert not run(SHOP, "SELECT * FROM customers", LIMITS, rows=40).more


def test_invalid_utf8_is_shown() -> None:
    assert run(SHOP, "SELECT CAST(x'ff41' AS TEXT)", LIMITS).rows == (("\ufffdA",),)


def test_a_broken_database_raises(tmp_path: Path) -> None:
    place = tmp_path / "broken.sqlite"
    place.write_bytes(b"this is not a database, but it is long enough to be read..." * 20)
    with pytest.raises(EnvFailed, match="broken"):
        run(File(str(place)), "SELECT 1 FROM sqlite_master", LIMITS)
    with pytest.raises(EnvFailed):
        run(File(str(tmp_path / "missing.sqlite")), "SELECT 1 FROM sqlite_master", LIMITS)
    half = bytearray(SHOP.data)
    half[4096:] = b"\x00" * (len(half) - 4096)
    with pytest.raises(EnvFailed, match="broken"):
        run(Image(bytes(half)), "SELECT * FROM orders", LIMITS)
