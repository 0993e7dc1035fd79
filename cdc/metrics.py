"""Every metric by name, with its meaning; docs/METRICS.md lists them, cdc.metrics_server serves them.

In: events of capture and apply. Out: a registry. Keeps true: base units, no label that grows with the data, never a
value or a key of a row.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector

from cdc.progress import Progress
from cdc.retention import Danger, Retention, seconds_left

REGISTRY: Final = CollectorRegistry()
ProcessCollector(registry=REGISTRY)

_P: Final = "afterimage"

SOURCE_LSN: Final = Gauge("source_lsn", "Where the source's log ends, in bytes", namespace=_P, registry=REGISTRY)
COMMITTED_LSN: Final = Gauge("committed_lsn", "The last position committed to Kafka", namespace=_P, registry=REGISTRY)
LAG_BYTES: Final = Gauge("capture_lag_bytes", "Log that Kafka does not have yet", namespace=_P, registry=REGISTRY)
LAG_SECONDS: Final = Gauge(
    "capture_lag_seconds", "Age of the last position in Kafka while there is newer log", namespace=_P, registry=REGISTRY
)
WAL_RATE: Final = Gauge(
    "source_wal_bytes_per_second", "The rate at which the source writes its log", namespace=_P, registry=REGISTRY
)
RETAINED: Final = Gauge("slot_retained_bytes", "WAL that the slot keeps on the server", namespace=_P, registry=REGISTRY)
SAFE: Final = Gauge("slot_safe_bytes", "WAL until the slot can be lost; NaN: no limit", namespace=_P, registry=REGISTRY)
SECONDS_LEFT: Final = Gauge(
    "slot_seconds_left",
    "How long the slot lasts if it stays where it is; NaN: for ever",
    namespace=_P,
    registry=REGISTRY,
)
DANGER: Final = Gauge("slot_danger", "0 safe, 1 warning, 2 alarm, 3 lost", namespace=_P, registry=REGISTRY)
RECORDS: Final = Counter("records", "Data records committed to Kafka", namespace=_P, registry=REGISTRY)
TRANSACTIONS: Final = Counter(
    "kafka_transactions",
    "Kafka transactions committed, by kind of progress record",
    ["kind"],
    namespace=_P,
    registry=REGISTRY,
)
TOAST_COMPLETIONS: Final = Counter(
    "toast_completions",
    "Rows whose unchanged TOAST values were read back from the source (or were gone)",
    ["outcome"],
    namespace=_P,
    registry=REGISTRY,
)
SNAPSHOT_ROWS: Final = Gauge("snapshot_rows", "Rows that the snapshot has read", namespace=_P, registry=REGISTRY)
RESTARTS: Final = Counter(
    "capture_restarts",
    "Times that capture started over after an error, by code",
    ["code"],
    namespace=_P,
    registry=REGISTRY,
)
BATCH_SECONDS: Final = Histogram(
    "batch_seconds",
    "Duration of apply's batches",
    namespace=_P,
    registry=REGISTRY,
    buckets=(0.1, 0.25, 0.5, 1, 2, 5, 10, 30, 60, 300, 1800),
)
VIEW_LSN: Final = Gauge(
    "view_lsn", "Where a view stands, in bytes of the source's log", ["view", "sink"], namespace=_P, registry=REGISTRY
)
REFRESHES: Final = Counter(
    "refreshes", "Refreshes of a view over several tables, by how", ["view", "how"], namespace=_P, registry=REGISTRY
)
REFRESH_SECONDS: Final = Gauge(
    "refresh_seconds", "How long the last refresh of such a view took", ["view"], namespace=_P, registry=REGISTRY
)
REFRESH_KEYS: Final = Gauge(
    "refresh_keys", "Keys that it found affected; NaN: computed in full", ["view"], namespace=_P, registry=REGISTRY
)
VIEW_UNFIT_ROWS: Final = Gauge(
    "view_unfit_rows",
    "Rows that a view lacks, since a value of them has no counterpart in its column's Delta type",
    ["view", "sink"],
    namespace=_P,
    registry=REGISTRY,
)
VIEW_STOPPED: Final = Gauge(
    "view_stopped",
    "1 while a view stands behind the others: its SQL fails, it reads one that does, or its file does not fit tables",
    ["view"],
    namespace=_P,
    registry=REGISTRY,
)
PROVED_TIMESTAMP: Final = Gauge(
    "prove_timestamp_seconds",
    "When a view was last compared with the source by apply's own proofs, as Unix time",
    ["view", "sink"],
    namespace=_P,
    registry=REGISTRY,
)
PROVED_HOLDS: Final = Gauge(
    "prove_holds", "1 if it was equal then, else 0", ["view", "sink"], namespace=_P, registry=REGISTRY
)
PROVED_ROWS: Final = Gauge(
    "prove_rows", "Rows of the source that were compared", ["view", "sink"], namespace=_P, registry=REGISTRY
)
PROVED_DIFFERENCES: Final = Gauge(
    "prove_differing_rows", "Keys that differed", ["view", "sink"], namespace=_P, registry=REGISTRY
)
PROVED_SECONDS: Final = Gauge(
    "prove_seconds", "How long it took to compare a view in one sink", ["view", "sink"], namespace=_P, registry=REGISTRY
)
PROVE_HELD_SECONDS: Final = Gauge(
    "prove_held_seconds", "For how long the last proof held apply at a time, at most", namespace=_P, registry=REGISTRY
)
PROVE_MENDED: Final = Counter(
    "prove_mended_keys", "Keys that repairs have written or deleted", namespace=_P, registry=REGISTRY
)
PROVE_FAILURES: Final = Counter(
    "prove_failures", "Proofs that could not be made, by code", ["code"], namespace=_P, registry=REGISTRY
)

_OF_A_SINK: Final = (
    VIEW_LSN,
    VIEW_UNFIT_ROWS,
    PROVED_TIMESTAMP,
    PROVED_HOLDS,
    PROVED_ROWS,
    PROVED_DIFFERENCES,
    PROVED_SECONDS,
)
_OF_A_VIEW: Final = (REFRESHES, REFRESH_SECONDS, REFRESH_KEYS, VIEW_STOPPED)

_NOT_KNOWN: Final = float("nan")
_last: list[Progress] = []


def committed(progress: Progress) -> None:
    """A Kafka transaction with this progress record is durable."""
    TRANSACTIONS.labels(progress.kind.value).inc()
    RECORDS.inc(progress.records)
    COMMITTED_LSN.set(progress.lsn)
    _last[:] = [progress]


def looked(retention: Retention, danger: Danger, bytes_per_s: float | None, now_s: float) -> None:
    """The slot was looked at."""
    SOURCE_LSN.set(retention.lsn)
    RETAINED.set(_or_nan(retention.kept_bytes))
    SAFE.set(_or_nan(retention.safe_bytes))
    SECONDS_LEFT.set(_or_nan(seconds_left(retention, bytes_per_s)))
    WAL_RATE.set(_or_nan(bytes_per_s))
    DANGER.set(danger.level)
    if _last:
        behind = max(0, retention.lsn - _last[0].lsn)
        LAG_BYTES.set(behind)
        LAG_SECONDS.set(max(0.0, now_s - _last[0].source_ts_us / 1e6) if behind else 0.0)


def snapshot_read(rows: Mapping[str, int]) -> None:
    """The initial snapshot has read so many rows of each table."""
    SNAPSHOT_ROWS.set(sum(rows.values()))


def refreshed(view: str, how: str, keys: int | None, seconds: float) -> None:
    """A view over several tables was refreshed."""
    REFRESHES.labels(view, how).inc()
    REFRESH_SECONDS.labels(view).set(seconds)
    REFRESH_KEYS.labels(view).set(_or_nan(keys))


def proved(at: tuple[str, str], *, ts_s: float, holds: bool, rows: int, differences: int, seconds: float) -> None:
    """A view was compared in one sink."""
    PROVED_TIMESTAMP.labels(*at).set(ts_s)
    PROVED_HOLDS.labels(*at).set(holds)
    PROVED_ROWS.labels(*at).set(rows)
    PROVED_DIFFERENCES.labels(*at).set(differences)
    PROVED_SECONDS.labels(*at).set(seconds)


def kept(targets: Collection[tuple[str, str]]) -> None:
    """These views are kept in these sinks from now on: nothing is said any more of what is not among them."""
    views = {view for view, _ in targets}
    _withdraw(_OF_A_SINK, lambda labels: (labels["view"], labels["sink"]) not in targets)
    _withdraw(_OF_A_VIEW, lambda labels: labels["view"] not in views)


def dropped(view: str) -> None:
    """Nothing is left of it."""
    _withdraw((*_OF_A_SINK, *_OF_A_VIEW), lambda labels: labels["view"] == view)


def _withdraw(metrics: Iterable[Gauge | Counter], is_over: Callable[[Mapping[str, str]], bool]) -> None:
    for metric in metrics:
        found = {tuple(sample.labels.items()) for family in metric.collect() for sample in family.samples}
        for labels in found:
            if is_over(dict(labels)):
                metric.remove(*(value for _, value in labels))


def _or_nan(value: float | None) -> float:
    return _NOT_KNOWN if value is None else value
