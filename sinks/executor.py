"""Writing a DataFrame from the executors (or, when it is small, the driver), and what became of each row.

In: a DataFrame and a PartitionWriter. Out: Written, or the first partition's error, raised on the driver. Keeps true:
errors travel as data, so that Spark neither retries nor logs them, and what comes back is bounded.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import pyarrow as pa

from cdc.errors import CdcError, ConfigError, OperatorError, ProtocolError, RecordError, TransientError
from sinks.entries import Entry, RowShape
from sinks.protocol import Rejected, Written

REJECTED_MAX: Final = 10_000
"""More refused rows than this in one partition are no matter of single rows."""

DRIVER_BYTES_MAX: Final = 1 << 20
"""Up to here the driver writes by itself: a task with its Python worker costs more than so few rows."""

_NUMBERS: Final = ("upserts", "deletes", "lsn")
_TEXTS: Final = ("at", "reason", "error", "code", "hint")
_SPARK_SCHEMA: Final = ", ".join([f"{n} bigint" for n in _NUMBERS] + [f"{n} string" for n in _TEXTS])
_ARROW_SCHEMA: Final = pa.schema([(n, pa.int64()) for n in _NUMBERS] + [(n, pa.string()) for n in _TEXTS])
_ERRORS: Final = {e.default_code: e for e in (ConfigError, TransientError, RecordError, OperatorError, ProtocolError)}


class PartitionWriter(Protocol):
    """Writes one partition's entries to the store; it is pickled to the executors."""

    def __call__(self, entries: Iterator[Entry]) -> Iterable[Rejected]:
        """Write all of them durably; what the store refused comes back, what it cannot do at all is raised."""
        ...


def write_partitions(frame: Any, shape: RowShape, writer: PartitionWriter) -> Written:
    """Run the writer on every partition; on the few rows of a small batch, right here."""
    if is_small(frame):
        return _written(_write(shape.entries(frame.toArrow().to_batches()), writer))
    names = list(frame.columns)

    def partition(batches: Iterator[Any]) -> Iterator[Any]:
        entries = shape.entries(batch.rename_columns(names) for batch in batches)
        yield pa.RecordBatch.from_pylist(_write(entries, writer), schema=_ARROW_SCHEMA)

    # mapInArrow looks columns up by name, and takes a column called * for all of them: give it plain names.
    plain = frame.toDF(*(f"c{place}" for place in range(len(names))))
    return _written([row.asDict() for row in plain.mapInArrow(partition, _SPARK_SCHEMA).collect()])


def is_small(frame: Any) -> bool:
    """Whether its rows are few enough to be written from here."""
    return estimated_bytes(frame) <= DRIVER_BYTES_MAX


def estimated_bytes(frame: Any) -> int:
    """Spark's estimate; of rows that came from the driver or are held in memory it is close, else it is huge."""
    return int(frame._jdf.queryExecution().optimizedPlan().stats().sizeInBytes())  # noqa: SLF001 - no public way


def _written(outcomes: list[dict[str, Any]]) -> Written:
    """What all partitions did; the first failure among them is raised."""
    for outcome in outcomes:
        if outcome.get("error") is not None:
            kind, _, message = outcome["error"].partition(":")
            raise _ERRORS[kind](message, outcome["hint"], code=outcome["code"])
    refused = [outcome for outcome in outcomes if outcome.get("reason") is not None]
    rejected = tuple(Rejected(each["at"], each["lsn"], each["reason"]) for each in refused)
    upserts, deletes = (sum(each.get(name) or 0 for each in outcomes) for name in ("upserts", "deletes"))
    return Written(upserts - len(rejected), deletes, rejected)


def _write(entries: Iterator[Entry], writer: PartitionWriter) -> list[dict[str, Any]]:
    counted = _Counted(entries)
    outcomes: list[dict[str, Any]] = []
    try:
        for refused in writer(counted):
            outcomes.append({"at": refused.at, "lsn": refused.lsn, "reason": refused.reason})
            if len(outcomes) > REJECTED_MAX:
                raise _too_many(refused)
    except CdcError as error:
        text = f"{_kind(error)}:{error.message}"
        return [{"error": text, "code": error.code, "hint": error.hint}]
    return [*outcomes, {"upserts": counted.upserts, "deletes": counted.deletes}]


def _kind(error: CdcError) -> str:
    return next(kind for kind, of in _ERRORS.items() if isinstance(error, of))


def _too_many(last: Rejected) -> OperatorError:
    message = f"the store refuses row after row, over {REJECTED_MAX} of one partition: {last.reason}"
    return OperatorError(
        message,
        "see what the reason says about the column; change the view or its mapping, then rebuild",
        code="SINK_REJECTS",
    )


@dataclass
class _Counted:
    """Counts what passes."""

    entries: Iterator[Entry]
    upserts: int = field(default=0)
    deletes: int = field(default=0)

    def __iter__(self) -> Iterator[Entry]:
        return self

    def __next__(self) -> Entry:
        entry = next(self.entries)
        if entry.is_delete:
            self.deletes += 1
        else:
            self.upserts += 1
        return entry
