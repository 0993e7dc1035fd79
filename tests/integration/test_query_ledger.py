"""The ledger on a real Delta log: whole, fenced, and never growing for ever."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from cdc.errors import TransientError
from jobs.ledger import Ledger, LedgerRow
from sinks.protocol import Unfit


def rows(lsn: int, **versions: int) -> list[LedgerRow]:
    offsets = {"shop.public.orders": (3, 4)}
    return [LedgerRow(name, version, 1, lsn, lsn * 1000, offsets) for name, version in versions.items()]


def test_what_is_written_is_read(tmp_path: Path):
    root = str(tmp_path / "not" / "yet")
    assert Ledger(root).read() is None
    writer = Ledger(root)
    for lsn in (1, 2, 1 << 40):
        written = rows(lsn, orders=lsn, customers=7)
        writer.write(written)
        state = Ledger(root).read()
        assert state is not None
        assert (state.lsn, state.source_ts_us) == (lsn, lsn * 1000)
        assert state.rows == {row.name: row for row in written}


def test_it_tells_the_rows_that_a_table_lacks_also_after_a_ledger_that_did_not(tmp_path: Path):
    ledger = Ledger(str(tmp_path))
    ledger.write(rows(1, a=1))
    older = pa.table(DeltaTable(str(tmp_path / "_ledger")).scan().read_all()).drop_columns(["unfit"])
    write_deltalake(str(tmp_path / "_ledger"), older, mode="overwrite", schema_mode="overwrite")
    ledger = Ledger(str(tmp_path))
    state = ledger.read()
    assert state is not None
    assert state.rows["a"].unfit == ()

    unfit = (Unfit("d1", "shop.public.a@0:7", 1 << 40, ("price", "é")), Unfit("d2", "shop.public.a@1:0", 3, ("day",)))
    written = replace(rows(2, a=2)[0], unfit=unfit)
    ledger.write([written])
    state = Ledger(str(tmp_path)).read()
    assert state is not None
    assert state.rows == {"a": written}


def test_a_table_that_is_gone_is_gone(tmp_path: Path):
    ledger = Ledger(str(tmp_path))
    ledger.write(rows(1, a=1, b=2))
    ledger.write(rows(2, b=3))
    state = ledger.read()
    assert state is not None
    assert set(state.rows) == {"b"}


def test_an_overtaken_writer_fails_once_and_can_resume(tmp_path: Path):
    first, second = Ledger(str(tmp_path)), Ledger(str(tmp_path))
    first.write(rows(1, a=1))
    second.write(rows(2, a=2))
    with pytest.raises(TransientError) as caught:
        first.write(rows(3, a=3))
    assert caught.value.code == "LEDGER_CONFLICT"
    state = first.read()
    assert state is not None
    assert state.lsn == 2
    first.write(rows(3, a=3))


def test_a_created_but_never_written_ledger_is_none(tmp_path: Path):
    ledger = Ledger(str(tmp_path))
    ledger.write(rows(1, a=1))
    DeltaTable(str(tmp_path / "_ledger")).delete()
    assert ledger.read() is None


def test_a_table_that_stopped_alone_stands_behind(tmp_path: Path):
    Ledger(str(tmp_path)).write(rows(1, a=1) + rows(2, b=1))
    state = Ledger(str(tmp_path)).read()
    assert state is not None
    assert (state.lsn, state.rows["a"].lsn, state.rows["b"].lsn) == (2, 1, 2)


def test_a_table_cannot_stand_at_two_positions(tmp_path: Path):
    with pytest.raises(AssertionError):
        Ledger(str(tmp_path)).write(rows(1, a=1) + rows(2, a=1))


def test_the_log_and_the_files_do_not_grow_for_ever(tmp_path: Path):
    ledger = Ledger(str(tmp_path), kept_minutes=0)
    for lsn in range(1, 460):
        ledger.write(rows(lsn, a=lsn))
    folder = tmp_path / "_ledger"
    assert len(list(folder.glob("*.parquet"))) < 100
    assert len(list((folder / "_delta_log").iterdir())) < 130
    state = ledger.read()
    assert state is not None
    assert state.lsn == 459


def test_readers_have_ten_minutes(tmp_path: Path):
    ledger = Ledger(str(tmp_path))
    for lsn in range(1, 210):
        ledger.write(rows(lsn, a=lsn))
    old = DeltaTable(str(tmp_path / "_ledger"), version=5)
    assert old.to_pyarrow_table().column("lsn").to_pylist() == [5]


def test_a_folder_that_cannot_be_written_is_said(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(TransientError) as caught:
        Ledger(str(tmp_path / "file")).write(rows(1, a=1))
    assert caught.value.code == "DELTA_UNAVAILABLE"
