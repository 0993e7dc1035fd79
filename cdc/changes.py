"""The nouns of capture: relations, row changes and transactions.

Values are what Postgres prints, as text; `None` is NULL, UNCHANGED a TOAST value that the log left out.
A change's position is (commit LSN, ordinal in its transaction): stream ordinals start at 1, snapshot rows have 0.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final, NamedTuple


class Unchanged(enum.Enum):
    """The one value that is neither text nor NULL: present in the row, absent from the log."""

    UNCHANGED = "unchanged"


UNCHANGED: Final = Unchanged.UNCHANGED

Value = str | None
StreamedValue = str | None | Unchanged
Row = tuple[Value, ...]
StreamedRow = tuple[StreamedValue, ...]


class Op(enum.Enum):
    """What happened to a row, in the letters of Debezium's envelope."""

    READ = "r"
    CREATE = "c"
    UPDATE = "u"
    DELETE = "d"
    TRUNCATE = "t"


@dataclass(frozen=True, slots=True)
class Column:
    """One column: `type_name` is format_type()'s text (`numeric(10,2)`), `base_oid` looks through domains.

    `rule` says how its values were concealed, if so (cdc.privacy).
    """

    name: str
    type_oid: int
    type_mod: int
    type_name: str
    base_oid: int
    is_key: bool
    is_nullable: bool = True
    rule: str | None = None
    number: int = 0
    """pg_attribute.attnum, which no other column of the table ever gets; 0 where it is not known."""
    version: int = 0
    """The transaction that last altered the column; 0 where it is not known."""
    is_filled: bool = False
    """Rows that are older than the column have a value in it: `ADD COLUMN .. DEFAULT` writes no row."""


@dataclass(frozen=True, slots=True)
class Part:
    """A table that holds rows: the relation itself, or a leaf of a partitioned one."""

    oid: int
    file: int
    """pg_class.relfilenode: a new one when all rows are rewritten or gone."""
    is_attached: bool = False
    """It became a partition after it was made, so it may have brought rows."""


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why a table is not followed: a stable code, and what to do."""

    code: str
    message: str
    remedy: str


@dataclass(frozen=True, slots=True)
class Relation:
    """A captured table as the catalogue described it; `identity` is pg_class.relreplident."""

    oid: int
    schema: str
    name: str
    identity: str
    columns: tuple[Column, ...]
    parts: tuple[Part, ...] = ()
    """Where its rows lie; empty where it is not known."""
    trouble: Trouble | None = None
    """Why its rows can't be published in this shape, if so."""

    @property
    def key(self) -> tuple[Column, ...]:
        """The primary key's columns, in the table's column order."""
        return tuple(column for column in self.columns if column.is_key)

    @property
    def qualified(self) -> str:
        """`schema.table`, for people."""
        return f"{self.schema}.{self.name}"


# Not frozen, though nothing assigns: one is made for each change, and freezing quadruples what that costs (0.6 us).
@dataclass(slots=True, unsafe_hash=True)
class Change:
    """One row change. `old` is the old row, or only its key (`old_is_key`)."""

    op: Op
    relation: Relation
    old: StreamedRow | None
    new: StreamedRow | None
    old_is_key: bool = False


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a transaction's changes come from: what the envelope's `source` carries besides the ordinal."""

    commit_lsn: int
    xid: int | None
    commit_ts_us: int


class Record(NamedTuple):
    """One Kafka record to be: bytes and the partition chosen for the key."""

    topic: str
    partition: int
    key: bytes
    value: bytes | None
    position: str | None = None
