"""`import afterimage`: derived tables on disk as Arrow, pandas and polars, all at one LSN."""

from __future__ import annotations

import datetime as dt
import subprocess
import sys
import threading
from decimal import Decimal
from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest
import yaml
from deltalake import DeltaTable, write_deltalake

import afterimage
from cdc.settings import Settings
from jobs.ledger import Ledger, LedgerRow
from tests.integration.test_query import commit

AWKWARD = pa.table(
    {
        "id": pa.array([1, 2, 2**53 + 1], pa.int64()),
        "n": pa.array([Decimal("1.50"), None, Decimal("-0.01")], pa.decimal128(38, 2)),
        "big": pa.array([2**63 - 1, None, 0], pa.int64()),
        "ok": pa.array([True, None, False]),
        "t": pa.array(["é", None, ""]),
        "raw": pa.array([b"\x00\xff", None, b""]),
        "day": pa.array([dt.date(1, 1, 1), None, dt.date(9999, 12, 31)]),
        "at": pa.array([dt.datetime(9999, 12, 31, 23, 59, tzinfo=dt.UTC), None, None], pa.timestamp("us", "UTC")),
    }
)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    source = {"database": "shop", "tables": ["public.*"]}
    return Settings.model_validate({"pipeline": "shop", "source": source, "delta": {"path": str(tmp_path)}})


@pytest.fixture
def shop(settings: Settings) -> afterimage.Pipeline:
    orders = pa.table({"id": [1, 2, 3], "customer_id": [1, 1, 2], "total": [Decimal("1.50"), Decimal("2.50"), None]})
    customers = pa.table({"id": [1, 2], "Full Name": ["Ann", "Bob"]})
    commit(settings, 0x1_0000_0064, **{"public.orders": orders, "crm.customers": customers, "awkward": AWKWARD})
    return afterimage.open_folder(settings.delta_root)


def test_a_cut_says_where_it_stands_and_what_there_is(shop):
    cut = shop.at()
    assert cut.lsn == "1/64"
    assert cut.time == dt.datetime.fromtimestamp(0x1_0000_0064 * 10 / 1e6, dt.UTC)
    assert cut.tables == ["awkward", "crm.customers", "public.orders"]


def test_tables_by_name_columns_and_condition(shop):
    cut = shop.at()
    assert cut.table("orders").arrow().num_rows == 3
    assert cut.table("public.orders", ["id"], "customer_id = 1").arrow().to_pylist() == [{"id": 1}, {"id": 2}]
    assert cut.table("public.orders", ["id"], "orders.id IN (SELECT max(id) FROM orders)").arrow().num_rows == 1
    assert cut.table("CRM.customers", ["Full Name"], "customers.id = 2").polars().rows() == [("Bob",)]
    assert cut.table("crm.customers", ["Full Name"], "customers.id = 2").polars().rows() == [("Bob",)]


def test_queries_join_tables(shop):
    sql = 'SELECT c."Full Name" AS name, sum(o.total) AS s FROM orders o JOIN customers c ON c.id = customer_id'
    assert shop.at().query(f"{sql} GROUP BY 1 ORDER BY 1").polars().rows() == [("Ann", Decimal("4.00")), ("Bob", None)]


def test_every_form_has_the_values_exactly(shop):
    rows = shop.at().table("awkward")
    assert rows.arrow().to_pylist() == AWKWARD.to_pylist()
    assert pa.Table.from_batches(rows.batches()).to_pylist() == AWKWARD.to_pylist()
    assert pa.table(rows).to_pylist() == AWKWARD.to_pylist()
    assert rows.polars().to_dicts() == AWKWARD.to_pylist()
    assert shop.at().scan("awkward").filter(pl.col("id") > 2).collect().to_dicts() == AWKWARD.to_pylist()[2:]
    frame = rows.pandas()
    assert {name: str(kind) for name, kind in frame.dtypes.items()}["big"] == "int64[pyarrow]"
    assert pa.Table.from_pandas(frame, preserve_index=False).to_pylist() == AWKWARD.to_pylist()


def test_a_cut_stays_where_it_is_while_tables_go_on(settings, shop):
    before = shop.at()
    commit(settings, 0x1_0000_0100, **{"public.orders": pa.table({"id": [9]}).append_column("customer_id", [[1]])
                                       .append_column("total", pa.array([None], pa.decimal128(3, 2)))})  # fmt: skip
    assert before.table("orders", ["id"]).arrow().num_rows == 3
    assert before.scan("orders").collect().height == 3
    after = shop.at()
    assert (after.lsn, after.table("orders", ["id"]).arrow().to_pylist()) == ("1/100", [{"id": 9}])


@pytest.mark.parametrize("token", ["1/C8", 0x1_0000_00C8])
def test_waiting_for_an_lsn(settings, shop, token):
    timer = threading.Timer(0.2, lambda: commit(settings, 0x1_0000_0100))
    timer.start()
    assert shop.at(wait=token, timeout_s=20).lsn == "1/100"
    timer.join()


def test_waiting_in_vain_and_for_nonsense(shop):
    with pytest.raises(afterimage.Error, match="stand at 1/64") as caught:
        shop.at(wait="1/C8", timeout_s=0.1)
    assert caught.value.code == "WAIT_TIMEOUT"
    with pytest.raises(afterimage.Error, match="not a log position"):
        shop.at(wait="yesterday")


def test_a_table_that_stopped_alone_is_read_alone(settings, shop):
    state = Ledger(settings.delta_root).read()
    assert state is not None
    rows = [
        LedgerRow(row.name, row.version, 1, row.lsn + 10 * (row.name != "awkward"), row.source_ts_us + 1, {})
        if row.name != "awkward"
        else row
        for row in state.rows.values()
    ]
    Ledger(settings.delta_root).write(rows)
    cut = shop.at()
    assert cut.tables == ["crm.customers", "public.orders"]
    for ask in (
        lambda: cut.table("awkward"),
        lambda: shop.at("awkward", "orders"),
        lambda: shop.at("awkward", wait="1/65"),
    ):
        with pytest.raises(afterimage.Error) as caught:
            ask()
        assert caught.value.code == "TABLE_STOPPED"
    alone = shop.at("awkward")
    assert (alone.lsn, alone.table("awkward").arrow().num_rows) == ("1/64", 3)


def test_what_is_wrong_is_said(shop):
    with pytest.raises(afterimage.Error, match="no derived table ordrs") as caught:
        shop.at().table("ordrs")
    assert caught.value.code == "QUERY_UNKNOWN_TABLE"
    with pytest.raises(afterimage.Error, match="DELETE"):
        shop.at().query("DELETE FROM orders")
    with pytest.raises(afterimage.Error, match="totl"):
        shop.at().query("SELECT totl FROM orders").arrow()
    with pytest.raises(afterimage.Error) as caught:
        list(shop.at().query("SELECT 1/(id - 2) AS x FROM orders").batches())
    assert caught.value.code == "QUERY_FAILED"


def test_files_that_have_gone_are_said(settings, shop):
    cut = shop.at()
    rows = cut.table("orders")
    write_deltalake(f"{settings.delta_root}/public.orders", cut.table("orders").arrow(), mode="overwrite")
    DeltaTable(f"{settings.delta_root}/public.orders").vacuum(0, dry_run=False, enforce_retention_duration=False)
    with pytest.raises(afterimage.Error) as caught:
        rows.arrow()
    assert caught.value.code == "DELTA_UNAVAILABLE"


def test_a_configuration_leads_there_too(settings, shop, tmp_path):
    body = {
        "pipeline": "shop",
        "source": {"database": "shop", "tables": ["public.*"]},
        "delta": {"path": str(tmp_path)},
    }
    (tmp_path / "a.yml").write_text(yaml.safe_dump(body))
    assert afterimage.open(tmp_path / "a.yml").at().lsn == "1/64"


def test_first_rows_need_neither_spark_nor_a_second(settings, shop):
    """A quarter of a second on a quiet machine; processor time is what a busy one leaves comparable."""
    program = f"""
import resource, sys
import afterimage
rows = next(afterimage.open_folder({settings.delta_root!r}).at(wait="1/64").table("public.orders").batches())
assert rows.num_rows == 3
heavy = {{"pandas", "polars", "pydantic", "sqlglot", "pyspark", "py4j", "confluent_kafka", "psycopg"}}
assert not heavy & set(sys.modules)
used = resource.getrusage(resource.RUSAGE_SELF)
print(used.ru_utime + used.ru_stime)
assert used.ru_utime + used.ru_stime < 1
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr + done.stdout
