"""Queries over Delta tables on disk, at the versions that the ledger names."""

from __future__ import annotations

import subprocess
import sys
import threading
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

import afterimage
from cdc.errors import ConfigError, OperatorError, TransientError
from cdc.settings import Settings
from jobs.ledger import Ledger, LedgerRow
from jobs.query import Cut, run_query
from jobs.query.derived import Derived
from jobs.query.when import When


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    source = {"database": "shop", "tables": ["public.*"]}
    return Settings.model_validate({"pipeline": "shop", "source": source, "delta": {"path": str(tmp_path)}})


def commit(settings: Settings, lsn: int, **tables: pa.Table) -> None:
    """A batch: new contents for some tables, and the ledger over all of them."""
    root = Path(settings.delta_root)
    root.mkdir(exist_ok=True)
    for name, rows in tables.items():
        write_deltalake(str(root / name), rows, mode="overwrite")
    folders = [folder for folder in root.iterdir() if folder.name != "_ledger"]
    ledger = [
        LedgerRow(folder.name, DeltaTable(str(folder)).version(), 1, lsn, lsn * 10, {"t": (lsn,)}) for folder in folders
    ]
    Ledger(settings.delta_root).write(ledger)


@pytest.fixture
def shop(settings: Settings) -> Settings:
    orders = pa.table({"id": [1, 2, 3], "customer_id": [1, 1, 2], "total": [Decimal("1.50"), Decimal("2.50"), None]})
    customers = pa.table({"id": [1, 2], "Full Name": ["Ann", "Bob"]})
    views = {"public.orders": orders, "crm.customers": customers, "open_orders": orders.slice(1)}
    commit(settings, 100, **views)
    return settings


def rows(settings: Settings, sql: str) -> list[dict[str, object]]:
    return run_query(settings, sql).table.to_pylist()


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT count(*) AS n FROM orders", [{"n": 3}]),
        ("select count(*) as n from public.orders;", [{"n": 3}]),
        ("SELECT count(*) AS n FROM open_orders", [{"n": 2}]),
        ('SELECT count(*) AS n FROM "public"."orders"', [{"n": 3}]),
        ('SELECT count(*) AS n FROM "public.orders"', [{"n": 3}]),
        ("SELECT count(*) AS n FROM CRM.Customers", [{"n": 2}]),
        ("SELECT orders.id FROM orders WHERE orders.id = 2", [{"id": 2}]),
        ("SELECT public.orders.id FROM public.orders WHERE public.orders.id = 2", [{"id": 2}]),
        ('SELECT "Full Name" AS name FROM customers c WHERE c.id = 2', [{"name": "Bob"}]),
        (
            "SELECT c.id, sum(total) AS s FROM customers c JOIN orders ON customer_id = c.id GROUP BY 1 ORDER BY 1",
            [{"id": 1, "s": Decimal("4.00")}, {"id": 2, "s": None}],
        ),
        ("WITH x AS (SELECT id FROM orders) SELECT count(*) AS n FROM x", [{"n": 3}]),
        ("WITH orders AS (SELECT id FROM orders WHERE id > 1) SELECT count(*) AS n FROM orders", [{"n": 2}]),
        ("WITH a AS (SELECT 7 AS id), b AS (SELECT id FROM a) SELECT id FROM b", [{"id": 7}]),
        ("SELECT id FROM orders WHERE id IN (SELECT max(id) FROM open_orders)", [{"id": 3}]),
        ("SELECT id FROM orders EXCEPT SELECT id FROM open_orders", [{"id": 1}]),
        ("SELECT a.id FROM orders a, orders b WHERE a.id = b.id AND a.id = 1", [{"id": 1}]),
        ("SELECT 1 AS c FROM orders LIMIT 1", [{"c": 1}]),
        ("SELECT 1 AS c FROM public.orders o WHERE o.id > 0 LIMIT 1", [{"c": 1}]),
        ("SELECT 1 AS c FROM (SELECT id FROM orders LIMIT 1) z", [{"c": 1}]),
        ("SELECT 1 AS c FROM orders, customers LIMIT 2", [{"c": 1}, {"c": 1}]),
        ("SELECT id FROM orders LIMIT 1; -- the first", [{"id": 1}]),
        ("-- all\n/* of */ SELECT 1 AS c; ;", [{"c": 1}]),
        ("SELECT 1 AS one", [{"one": 1}]),
        ("SELECT 'orders; x' AS s -- orders\n FROM orders LIMIT 1", [{"s": "orders; x"}]),
    ],
)
def test_names_resolve(shop, sql, expected):
    assert rows(shop, sql) == expected


@pytest.mark.parametrize(
    ("sql", "code", "words"),
    [
        ("SELECT * FROM ordrs", "QUERY_UNKNOWN_TABLE", "did you mean orders?"),
        ("SELECT * FROM public.customers", "QUERY_UNKNOWN_TABLE", "crm.customers"),
        ("SELECT * FROM shop.public.orders", "QUERY_UNKNOWN_TABLE", "public.orders"),
        ("SELECT * FROM information_schema.tables", "QUERY_UNKNOWN_TABLE", "tables"),
        ("SELECT totl FROM orders", "QUERY_FAILED", "totl"),
        ("SELECT 1/0 AS x FROM orders", "QUERY_FAILED", "zero"),
        ("SELECT * FROM orders WHERE id = 'abc'", "QUERY_FAILED", "cannot cast string 'abc' to value of Int64"),
        ("SELECT", "QUERY_FAILED", "failed"),
        ("", "QUERY_SQL", "empty"),
        ("SELECT (1", "QUERY_SQL", "parenthesis"),
        ("SELECT 'a", "QUERY_SQL", "quote"),
        ("SELECT 1; SELECT 2", "QUERY_SQL", "more than one"),
        ("DELETE FROM orders", "QUERY_SQL", "DELETE"),
        ("DROP TABLE orders", "QUERY_SQL", "DROP"),
        ("CREATE EXTERNAL TABLE x STORED AS CSV LOCATION '/etc/passwd'", "QUERY_SQL", "CREATE"),
        ("COPY orders TO 'x.csv'", "QUERY_SQL", "COPY"),
        ("WITH x AS (DELETE FROM orders RETURNING id) SELECT * FROM x", "QUERY_SQL", "DELETE"),
        ("SELECT * INTO x FROM orders", "QUERY_SQL", "INTO"),
        ("INSERT INTO orders SELECT * FROM orders", "QUERY_SQL", "INSERT"),
        ("SET x = 1", "QUERY_SQL", "SET"),
        ("SELECT * FROM '/etc/passwd'", "QUERY_UNKNOWN_TABLE", "passwd"),
    ],
)
def test_what_is_wrong_is_said(shop, sql, code, words):
    with pytest.raises(ConfigError) as caught:
        run_query(shop, sql)
    assert caught.value.code == code
    assert words.lower() in f"{caught.value.message} {caught.value.hint}".lower()


def test_an_ambiguous_name_is_refused(shop):
    commit(shop, 200, **{"crm.orders": pa.table({"id": [9]})})
    with pytest.raises(ConfigError, match="several"):
        run_query(shop, "SELECT * FROM orders")
    assert rows(shop, "SELECT id FROM crm.orders") == [{"id": 9}]


def test_all_tables_are_read_at_the_ledgers_versions(shop):
    write_deltalake(f"{shop.delta_root}/public.orders", pa.table({"id": [7], "customer_id": [1], "total": [None]}),
                    mode="overwrite", schema_mode="overwrite")  # fmt: skip
    answer = run_query(shop, "SELECT count(*) AS n FROM orders")
    assert answer.cut == Cut(100, 1000)
    assert answer.table.to_pylist() == [{"n": 3}]
    commit(shop, 200)
    answer = run_query(shop, "SELECT count(*) AS n FROM orders")
    assert (answer.cut.lsn, answer.table.to_pylist()) == (200, [{"n": 1}])


def test_what_apply_keeps_for_itself_is_not_shown(settings):
    kept = pa.table({"status": ["new"], "n": [2], "__afterimage_c9": [2]})
    commit(settings, 100, totals=kept)
    assert rows(settings, "SELECT * FROM totals t WHERE n > 1") == [{"status": "new", "n": 2}]
    assert rows(settings, "SELECT count(*) AS n FROM totals") == [{"n": 1}]
    cut = afterimage.open_folder(settings.delta_root).at()
    assert pa.table(cut.table("totals")).column_names == ["status", "n"]
    assert cut.table("totals", ["n"], "n = 2").arrow().to_pylist() == [{"n": 2}]
    assert cut.scan("totals").collect_schema().names() == ["status", "n"]
    with pytest.raises(ConfigError):
        rows(settings, "SELECT __afterimage_c9 FROM totals")


def test_names_hostile_to_sql(settings):
    commit(settings, 1, **{"My-20Schema.o-22r-2ed-c3-a9rs": pa.table({"id": [1], "B%20b": ["x"]})})
    assert rows(settings, 'SELECT "B%20b" AS b FROM "My Schema"."o""r.dérs"') == [{"b": "x"}]
    assert rows(settings, 'SELECT id FROM "o""r.dérs"') == [{"id": 1}]


VIEWS = {
    "open_orders": "SELECT id FROM orders",
    "cheap": "SELECT id FROM orders WHERE total < 2",
    "busiest": "SELECT customer_id, count(*) AS n FROM orders GROUP BY customer_id ORDER BY n DESC, 1 LIMIT 3",
    "found": "-- sinks: search, cache\nSELECT id FROM orders",
    "read": "-- sinks: search\nSELECT id FROM orders WHERE id > 1",
    "over": "-- sinks: search\nSELECT id FROM read",
    "wrong": "SELECT id FROM",
}


@pytest.fixture
def declared(shop, tmp_path):
    """Views that have a file; of `open_orders` there are rows."""
    views = tmp_path / "views"
    views.mkdir()
    for name, text in VIEWS.items():
        (views / f"{name}.sql").write_text(text)
    return shop.model_copy(update={"views": views})


@pytest.mark.parametrize("view", ["cheap", "busiest", "busiest__body", "read", "over", "wrong"])
def test_a_view_that_is_declared_and_not_loaded_is_said_to_be_so(declared, view):
    for ask in (
        lambda: run_query(declared, f"SELECT * FROM {view}"),
        lambda: run_query(declared, f"SELECT * FROM {view}", as_of=When(lsn=100)),
        lambda: afterimage.Pipeline(Derived.of(declared)).at(view),
        lambda: afterimage.Pipeline(Derived.of(declared)).at().table(view, where="id = 1"),
    ):
        with pytest.raises(TransientError) as caught:
            ask()
        assert (caught.value.code, caught.value.exit_code) == ("VIEW_LOADING", 1)
        assert "afterimage status" in caught.value.hint


def test_a_view_that_delta_does_not_hold_is_never_loaded(declared):
    with pytest.raises(ConfigError) as caught:
        run_query(declared, "SELECT * FROM found")
    assert caught.value.code == "QUERY_UNKNOWN_TABLE"
    assert "kept in search, cache alone" in caught.value.message
    assert "-- sinks: delta, search, cache" in caught.value.hint


@pytest.mark.parametrize("view", ["cheaps", "cheap__body", "open_orders__body", "public.cheap"])
def test_what_no_file_declares_is_not_there(declared, view):
    with pytest.raises(ConfigError) as caught:
        run_query(declared, f"SELECT * FROM {view}")
    assert caught.value.code == "QUERY_UNKNOWN_TABLE"
    assert rows(declared, "SELECT count(*) AS n FROM open_orders") == [{"n": 2}]


def test_who_knows_the_folder_of_the_tables_alone_knows_no_files(declared):
    with pytest.raises(ConfigError) as caught:
        afterimage.open_folder(declared.delta_root).at("cheap")
    assert caught.value.code == "QUERY_UNKNOWN_TABLE"


def test_no_tables_yet(settings):
    with pytest.raises(OperatorError) as caught:
        run_query(settings, "SELECT 1")
    assert caught.value.code == "NO_TABLES"


def test_waiting_ends_when_the_ledger_is_there(shop):
    later = pa.table({"id": [1, 2, 3, 4]})
    timer = threading.Timer(0.2, lambda: commit(shop, 300, open_orders=later.append_column("customer_id", later["id"])
                            .append_column("total", pa.array([None] * 4, pa.decimal128(3, 2)))))  # fmt: skip
    timer.start()
    answer = run_query(shop, "SELECT count(*) AS n FROM open_orders", wait_lsn=250, timeout_s=20)
    timer.join()
    assert (answer.cut.lsn, answer.table.to_pylist()) == (300, [{"n": 4}])


def test_waiting_in_vain_says_where_the_tables_stand(shop):
    with pytest.raises(TransientError) as caught:
        run_query(shop, "SELECT 1", wait_lsn=0x1_0000_0001, timeout_s=0.1)
    assert caught.value.code == "WAIT_TIMEOUT"
    assert "1/1" in caught.value.message
    assert "0/64" in caught.value.message


def test_a_version_that_is_gone_is_said(shop):
    Ledger(shop.delta_root).write([LedgerRow("public.orders", 99, 1, 500, 1, {})])
    with pytest.raises(TransientError) as caught:
        run_query(shop, "SELECT 1 FROM orders")
    assert caught.value.code == "DELTA_UNAVAILABLE"


def test_a_small_query_starts_nothing_heavy(shop):
    """Two seconds on a quiet machine; processor time is what a busy one leaves comparable."""
    program = f"""
import resource, sys
from cdc.settings import Settings
from jobs.query import run_query, render
settings = Settings.model_validate_json({shop.model_dump_json()!r})
print(render.as_csv(run_query(settings, "SELECT count(*) AS n FROM orders").table), end="")
assert not {{"pandas", "pyspark", "py4j", "confluent_kafka", "psycopg"}} & set(sys.modules)
used = resource.getrusage(resource.RUSAGE_SELF)
assert used.ru_utime + used.ru_stime < 2
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "n\n3\n"), done.stderr
