"""The differences that are justified, each with its reason: what docs/DEBEZIUM.md lists, and nothing else may differ.

In: nothing. Out: KINDS. Keeps true: a kind under LOST is one of which Debezium's record no longer tells the value; one
under FORM was checked, value by value, to hold the same.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final


class Group(enum.Enum):
    """What a difference means for who reads the topics."""

    LOST = "Debezium's record does not tell the value; Afterimage's does"
    FORM = "the same value in another form"
    AROUND = "what stands around the row"


@dataclass(frozen=True, slots=True)
class Kind:
    """A justified difference."""

    group: Group
    what: str
    why: str


def _lost(what: str, why: str) -> Kind:
    return Kind(Group.LOST, what, why)


def _form(what: str, why: str) -> Kind:
    return Kind(Group.FORM, what, why)


def _around(what: str, why: str) -> Kind:
    return Kind(Group.AROUND, what, why)


KINDS: Final[dict[str, Kind]] = {
    "event-lost": _lost(
        "no event for a row with the timetz `24:00:00-15:59:59`",
        "Debezium cannot parse it: it stops, or under `event.processing.failure.handling.mode=warn` skips the row",
    ),
    "toast-placeholder": _lost(
        "`__debezium_unavailable_value` for a large value that an update left alone",
        "under REPLICA IDENTITY DEFAULT the log lacks it; Afterimage reads the row from the source at a known position",
    ),
    "infinity": _lost(
        "`infinity` becomes a far date, another one in the snapshot than in the stream; as an interval, zero",
        "Afterimage writes it as Postgres prints it",
    ),
    "old-date": _lost(
        "dates up to 1582 are moved by days, or lose their BC, in snapshots and arrays",
        "JDBC's dates follow the Julian calendar there; Afterimage has no calendar, only text",
    ),
    "time-24": _lost("`24:00:00` becomes `00:00:00Z`, or null", "Java's times end before midnight"),
    "time-array-cut": _lost(
        "times in arrays lose their microseconds, or all below a second",
        "JDBC's times; Afterimage has the digits printed",
    ),
    "array-nested": _lost(
        "the rows of an array of several dimensions become nulls or `[Ljava.lang.String;@4d9e68d0`",
        "Debezium supports one dimension; Afterimage nests JSON arrays",
    ),
    "array-bounds": _lost(
        "an array that does not begin at 1 loses its bounds, or is null",
        "no JSON array has bounds, so Afterimage writes the literal as a string",
    ),
    "array-lost": _lost(
        "the whole array is null when one element cannot be converted: `NaN`, any bit string, types it does not know",
        "Debezium logs a warning; Afterimage converts every array or stops",
    ),
    "column-absent": _lost(
        "columns of the types money[], name[], bit varying[], interval[], xml[] and point[] are not in the row",
        "Debezium has no converter for them and leaves them out; Afterimage has every column",
    ),
    "vector-lost": _lost("int2vector and oidvector are empty or null", "Debezium does not know them"),
    "unknown-type-driver": _lost(
        "geometric types and regclass come as the JDBC driver prints them, in base64",
        "`1.0` for `1`, no schema where its search_path has it; Afterimage fixes what printing depends on",
    ),
    "bits-as-bytes": _lost(
        "bit strings are bytes in reverse order, without their length",
        "Afterimage writes the digits, so `000` stays `000`",
    ),
    "timetz-moved": _lost(
        "timetz is moved to UTC, and its zone lost", "the zone is part of a timetz; Afterimage keeps what is printed"
    ),
    "iso-time": _form(
        "`2026-11-18Z`; a timestamp without zone ends in `Z`, a timestamptz has six digits",
        "Afterimage: no `Z` where there is no zone, digits as Postgres prints them; it can be told from an instant",
    ),
    "time-zone-mark": _form("a time without zone ends in `Z`", "it has no zone, so Afterimage writes none"),
    "year-bc": _form("years BC are astronomical: `-0043-03-15Z`", "Afterimage: `0044-03-15 BC`, as printed"),
    "interval-form": _form(
        "`P-1Y0M2DT0H0M-1.5S`",
        "Afterimage: `-1 years +2 days -00:00:01.5`, which Postgres reads back under any setting",
    ),
    "money-form": _form("`1234.50`", "Afterimage: `$1,234.50`, as printed with lc_monetary C"),
    "numeric-special": _form(
        "`NAN`, `POSITIVE_INFINITY`, `NEGATIVE_INFINITY`",
        "Afterimage: `NaN`, `Infinity`, `-Infinity`, Postgres's own words",
    ),
    "numeric-padded": _form(
        "a numeric with a negative scale has hundreds of zeros behind its point", "Afterimage: the digits printed"
    ),
    "float-digits": _form(
        "`1.4E-45`, `4.9E-324`", "Java prints the smallest floats with more digits than Postgres; the float is the same"
    ),
    "point-struct": _form("an object of x, y, wkb and srid", "Afterimage: `(1.5,-2)`, as every geometric type"),
    "hstore-json": _form("a JSON text", "Afterimage: the literal, which Postgres reads back"),
    "array-literal": _form(
        "arrays of enums, extensions' and one's own types are JSON arrays",
        "Afterimage knows how built-in types' elements are told apart; of others it writes the literal as a string",
    ),
    "unknown-type": _form(
        "types that Debezium does not know are base64, with `include.unknown.datatypes`; without it they are left out",
        "Afterimage: text as printed",
    ),
    "key-order": _around(
        "a key of several columns has them in the order of the primary key",
        "Afterimage: in the table's order, also when the key is declared anew; read keys as JSON, not as bytes",
    ),
    "partition": _around(
        "a key's partition is by murmur2 of its bytes",
        "Afterimage: by crc32; on either side a key has one partition, and its changes their order",
    ),
    "before-key-only": _around(
        '`before` of a delete under REPLICA IDENTITY DEFAULT fills the columns that the log lacks with null, `""` or 0',
        "Afterimage: the key's columns alone, so that unknown is not taken for null",
    ),
    "generated-column": _around(
        "stored generated columns are in the snapshot's rows, not in the stream's",
        "Afterimage: on neither side before Postgres 18, whose log has them; snapshot and stream have one shape",
    ),
    "truncate-key": _around(
        "a truncate has a null key and stands in one partition",
        "Afterimage: one `t` event in each partition, under `{}`: each reader meets it, and compaction needs keys",
    ),
    "tombstone-position": _around(
        "a tombstone says nothing", "Afterimage: the header `position`, since a tombstone has no body to say it"
    ),
    "header-moved-key": _around(
        "headers `__debezium.newkey` and `__debezium.oldkey` on the two halves of a key change",
        "Afterimage: both halves have one `commit_lsn`, and ordinals that follow each other",
    ),
    "header-context": _around(
        "headers `__debezium.context.*` on every record", "they name the connector's task and run"
    ),
    "source-identity": _around("`source.version` and `source.name`", "each side's own"),
    "source-lsn": _around(
        "`source.lsn` is the row's own place in the log",
        "Afterimage: that of the commit, the only one that orders rows of different transactions",
    ),
    "source-ours": _around(
        "no `source.commit_lsn` and `source.ordinal`", "Afterimage: a total order of all changes, in every record"
    ),
    "source-theirs": _around(
        "`source.sequence`, `xmin`, `origin`, `origin_lsn`",
        "`sequence` is there to tell repeats apart, as `commit_lsn` and `ordinal` do; the others were null",
    ),
    "finer-times": _around(
        "`ts_us` and `ts_ns`, in `source` and beside it",
        "Postgres tells microseconds; progress records have `source_ts_us`",
    ),
    "transaction-field": _around(
        "`transaction`: id, total_order, data_collection_order",
        "Afterimage: `source.txId` and `source.ordinal`; progress records say where transactions end",
    ),
    "topic-transaction": _around(
        "BEGIN and END records in `<prefix>.transaction`; their ids differ within a transaction",
        "Afterimage: progress records, in the Kafka transaction of the data",
    ),
    "topic-progress": _around("no progress topic", "positions, counts, checksums and offsets: docs/FORMATS.md"),
    "topic-schema": _around("no schema topic", "the columns of each table, and from where on they hold"),
    "topic-name": _around(
        "`_` for each character that Kafka refuses in topics",
        "Afterimage: `-` and two digits, so that two tables never share a topic",
    ),
    "capture-time": _around("`ts_ms`", "when each side has written the record"),
    "snapshot-position": _around(
        "`source.lsn` and `source.ts_ms` of snapshot rows", "each side has taken its own snapshot"
    ),
    "snapshot-txid": _around(
        "`source.txId` of snapshot rows is that of the snapshot", "no transaction of the source wrote them then: null"
    ),
    "snapshot-words": _around(
        "`source.snapshot`: also `first`, `last`, `first_in_data_collection`, `last_in_data_collection`",
        "Afterimage: `true`; the first progress record that is no `snapshot` ends it",
    ),
    "message-content": _around(
        "a logical message's content is base64",
        "Afterimage: text where it is UTF-8, and `encoding` says which; `transactional` is told",
    ),
    "message-time": _around(
        "a message that is not transactional has the time of the commit before it",
        "Afterimage: null, since it belongs to no transaction",
    ),
}
