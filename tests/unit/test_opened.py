"""What is remembered of a Delta table is what a table that is opened anew says, whoever wrote meanwhile."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import TableNotFoundError

from sinks.delta import opened
from sinks.delta.log import size_of
from sinks.delta.opened import answer, answer_at, newest

asked: list[int] = []


def rows_in(table: DeltaTable) -> int:
    asked.append(table.version())
    return size_of(table).rows


def wrote(path: str, rows: int, mode: str = "append") -> None:
    write_deltalake(path, pa.table({"id": pa.array(range(rows), pa.int64())}), mode=mode)  # type: ignore[call-overload]


@pytest.fixture
def path(tmp_path: Path) -> str:
    asked.clear()
    folder = str(tmp_path / "table")
    wrote(folder, 3)
    return folder


def test_a_version_is_asked_once_and_a_new_commit_by_anybody_is_seen(path: str):
    assert [answer(path, {}, rows_in) for _ in range(3)] == [3, 3, 3]
    assert asked == [0]
    wrote(path, 2)
    wrote(path, 1)
    assert answer(path, {}, rows_in) == 6
    assert asked == [0, 2]


def test_an_older_version_says_what_it_said(path: str):
    assert answer(path, {}, rows_in) == 3
    wrote(path, 2)
    wrote(path, 1)
    assert [answer_at(path, {}, version, rows_in) for version in (0, 1, 2, 1)] == [3, 5, 6, 5]
    assert asked == [0, 1, 2]


def test_few_answers_of_older_versions_are_kept(path: str):
    for _ in range(3 * opened.PAST_MAX):
        assert answer(path, {}, rows_in)
        wrote(path, 1)
    assert answer_at(path, {}, 0, rows_in) == 3
    assert len(opened._tables[path].past) <= opened.PAST_MAX


def test_a_table_that_was_removed_is_not_there(path: str):
    assert answer(path, {}, rows_in) == 3
    shutil.rmtree(path)
    with pytest.raises(TableNotFoundError):
        answer(path, {}, rows_in)


def test_a_table_that_was_made_anew_is_another_one_with_another_past(path: str):
    wrote(path, 4)
    assert answer(path, {}, rows_in) == 7
    assert answer_at(path, {}, 0, rows_in) == 3
    shutil.rmtree(path)
    wrote(path, 10)
    wrote(path, 10)
    assert answer(path, {}, rows_in) == 20
    assert answer_at(path, {}, 0, rows_in) == 10


def test_who_commits_with_the_open_table_sees_it(path: str):
    assert answer(path, {}, rows_in) == 3
    with newest(path, {}) as (table, _):
        table.delete("id = 1")
    assert answer(path, {}, rows_in) == 2


def test_after_an_error_it_is_opened_anew(path: str):
    with pytest.raises(KeyError):
        _fail_with(path)
    assert answer(path, {}, rows_in) == 4


def _fail_with(path: str) -> None:
    with newest(path, {}) as (table, _):
        wrote(path, 1)
        table.update_incremental()
        raise KeyError


def test_a_table_elsewhere_is_opened_each_time(path: str):
    url = f"file://{path}"
    assert [answer(url, {}, rows_in) for _ in range(2)] == [3, 3]
    assert answer_at(url, {}, 0, rows_in) == 3
    assert asked == [0, 0, 0]
