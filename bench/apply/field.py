"""What a work runs on: a database with tables, capture over it, and both sides caught up with its topics.

In: how many tables of how many rows. Out: a Field; `publish` makes changes and says where in the topics they end.
"""

from __future__ import annotations

import secrets
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from bench.afterimage import Pipeline
from bench.apply.sides import Ours, Recipe, Side
from bench.apply.tables import CUSTOMERS, customers, filled, names
from bench.apply.versions import Ends
from bench.counters import ProgressCounter
from bench.servers import Bench
from cdc.lsn import parse_lsn
from cdc.settings import Apply, Delta

MASTER = "local[2]"
_WAIT_S = 1800.0
NO_VIEWS: Mapping[str, str] = {}


@dataclass(slots=True)
class Field:
    """Everything is warm, and nobody works."""

    bench: Bench
    database: str
    pipeline: Pipeline
    tables: list[str]
    rows: int
    progress: ProgressCounter
    capture: subprocess.Popen[bytes]
    sides: Sequence[Side] = ()
    turns: int = 0
    marks: int = 0

    def publish(self, *statements: str) -> None:
        """Run them in Postgres, in one transaction, and wait until capture has brought all of it."""
        with self.bench.connect(self.database) as connection:
            with connection.transaction():
                for statement in statements:
                    connection.execute(statement.encode())
            row = connection.execute("SELECT pg_current_wal_insert_lsn()::text").fetchone()
        assert row is not None
        self._await(parse_lsn(row[0]))

    def ends(self, *tables: str) -> dict[str, Ends]:
        """Where the tables' topics end, as capture says."""
        newest = self.progress.newest
        assert newest is not None
        return {table: newest.ends[self.pipeline.topic(table)] for table in tables or self.tables}

    def side(self, name: str) -> Side | None:
        """That side, if it takes part."""
        return next((side for side in self.sides if side.name == name), None)

    def _await(self, lsn: int) -> None:
        deadline = time.monotonic() + _WAIT_S
        self.progress()
        while (newest := self.progress.newest) is None or not newest.is_boundary or newest.lsn < lsn:
            assert time.monotonic() < deadline, f"capture does not get there; see {self.pipeline.config}"
            self.progress()


@contextmanager
def field(
    bench: Bench,
    tables: int,
    rows: int,
    sides: Iterable[str],
    selects: Mapping[str, str] = NO_VIEWS,
    *,
    marks: bool,
    **sections: Any,
) -> Iterator[Field]:
    """A field with the sides that are wanted, each caught up and held; views come with a table of customers.

    `marks`: our tables have deletion vectors.
    """
    database, called = f"apply_{secrets.token_hex(3)}", names(tables)
    bench.create_database(database)
    with bench.connect(database) as connection:
        for statement in (
            *(each for table in called for each in filled(table, rows)),
            *(customers() if selects else ()),
        ):
            connection.execute(statement.encode())
    folder = bench.folder / f"views-{database}"
    folder.mkdir()
    for name, select in selects.items():
        (folder / f"{name}.sql").write_text(select)
    own = {
        "apply": Apply(master=MASTER),
        "delta": Delta(path=str(bench.folder / "delta"), deletion_vectors=marks),
        "views": folder,
    }
    name = f"a{secrets.token_hex(3)}"
    captured = [f"public.{table}" for table in (*called, *((CUSTOMERS,) if selects else ()))]
    pipeline = Pipeline.prepared(bench, name, database, *captured, **{**own, **sections})
    with ExitStack() as stack:
        stack.callback(bench.drop_database, database)
        capture = stack.enter_context(pipeline.running())
        pipeline.wait_for_boundary()
        progress = ProgressCounter(pipeline.settings.kafka, name)
        stack.callback(progress.close)
        made = Field(bench, database, pipeline, called, rows, progress, capture)
        made.publish("SELECT 1")
        made.sides = [stack.enter_context(caught_up(kind, made)) for kind in (Ours, Recipe) if kind.name in sides]
        yield made


@contextmanager
def caught_up(kind: type[Ours] | type[Recipe], made: Field) -> Iterator[Side]:
    """A side that stands where the topics end, and is held."""
    side = kind(made.pipeline, made.tables)
    try:
        side.go()
        side.wait_for(made.ends())
        time.sleep(1.0)
        side.hold()
        yield side
    finally:
        side.stop()
