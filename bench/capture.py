"""`make bench-capture`: Afterimage and Debezium over the same Postgres and the same broker, in turns.

In: how often, how large, which works. Out: bench/results/capture.json. Each side starts anew for each run, so that peak
memory is a run's own; databases and topics are a run's own where a run changes them.
"""

from __future__ import annotations

import argparse
import json
import secrets
from collections.abc import Callable, Iterable
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console

from bench import afterimage, debezium, limit
from bench.afterimage import Pipeline
from bench.debezium import Connector
from bench.latency import Latency, measure
from bench.result import Run, medians
from bench.servers import Bench, running
from bench.works import ACCOUNTS, SETTLED, CatchUp, Snapshot, catch_ups, snapshots

RESULTS = Path(__file__).parent / "results" / "capture.json"
TABLE = "pgbench_accounts"
PUBLICATION = "bench"

_say = Console(stderr=True).print


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.capture", description=__doc__)
    parser.add_argument("works", nargs="*", help="which works; else all")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--scale", type=float, default=1.0, help="below 1 for a quick look")
    parser.add_argument("--sides", default="limit,afterimage,debezium")
    parser.add_argument("--folder", type=Path, default=Path("data/bench"))
    parser.add_argument("--results", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    sides, repeats = arguments.sides.split(","), arguments.repeats
    with running(arguments.folder.absolute()) as bench:
        for snapshot in snapshots(arguments.scale):
            if not arguments.works or snapshot.name in arguments.works:
                _save(arguments.results, snapshot.name, summary([*_snapshot_turns(bench, snapshot, repeats, sides)]))
        for catch_up in catch_ups(arguments.scale):
            if not arguments.works or catch_up.name in arguments.works:
                _save(arguments.results, catch_up.name, summary([*_catch_up_turns(bench, catch_up, repeats, sides)]))
        if not arguments.works or "latency" in arguments.works:
            seconds = 5 + 15 * arguments.scale
            _save(arguments.results, "latency", _latency_turns(bench, seconds, repeats, sides))


def _latency_turns(bench: Bench, seconds: float, repeats: int, sides: list[str]) -> dict[str, Any]:
    """Medians of the percentiles, in turns."""
    database = _database(bench, "latency")
    _fill_table(bench, database, ACCOUNTS, 10_000)
    found: dict[str, list[Latency]] = {afterimage.SIDE: [], debezium.SIDE: []}
    for _ in range(repeats):
        if afterimage.SIDE in sides:
            found[afterimage.SIDE].append(_our_latency(bench, database, seconds))
        if debezium.SIDE in sides:
            found[debezium.SIDE].append(_their_latency(bench, database, seconds))
    bench.drop_database(database)
    body: dict[str, Any] = {}
    for side, prefix in ((afterimage.SIDE, ""), (debezium.SIDE, "debezium_")):
        if found[side]:
            body[f"{prefix}p50_ms"] = median(one.p50_ms for one in found[side])
            body[f"{prefix}p99_ms"] = median(one.p99_ms for one in found[side])
    return body


def _our_latency(bench: Bench, database: str, seconds: float) -> Latency:
    pipeline = Pipeline.prepared(bench, f"a{secrets.token_hex(3)}", database, f"public.{TABLE}")
    with pipeline.running():
        pipeline.wait_for_boundary()
        return _told_latency(afterimage.SIDE, measure(bench, database, TABLE, pipeline.topic(TABLE), seconds))


def _their_latency(bench: Bench, database: str, seconds: float) -> Latency:
    connector = _connector(bench, database, "initial")
    connector.options["poll.interval.ms"] = "10"
    with connector.running(10_000):
        return _told_latency(debezium.SIDE, measure(bench, database, TABLE, connector.topic, seconds))


def _told_latency(side: str, latency: Latency) -> Latency:
    _say(f"{'latency':15} {side:10} p50 {latency.p50_ms:.1f} ms, p99 {latency.p99_ms:.1f} ms")
    return latency


def _snapshot_turns(bench: Bench, work: Snapshot, repeats: int, sides: list[str]) -> Iterable[Run]:
    database = _database(bench, work.name)
    _fill_table(bench, database, work.ddl, work.rows)
    for _ in range(repeats):
        if limit.SIDE in sides and limit.is_there():
            yield _told(work.name, limit.run_copy(_conninfo(bench, database), TABLE, work.rows))
        if "afterimage" in sides:
            pipeline = Pipeline.prepared(bench, f"a{secrets.token_hex(3)}", database, f"public.{TABLE}")
            yield _told(work.name, pipeline.run(work.records))
        if "debezium" in sides:
            connector = _connector(bench, database, "initial")
            yield _told(work.name, connector.run(work.records))
    bench.drop_database(database)


def _catch_up_turns(bench: Bench, work: CatchUp, repeats: int, sides: list[str]) -> Iterable[Run]:
    database = _database(bench, work.name)
    _fill_table(bench, database, (*ACCOUNTS, work.procedure), work.rows)
    turns: list[Callable[[], Run]] = []
    for _ in range(repeats):
        if limit.SIDE in sides and limit.is_there():
            turns.append(_limit_turn(bench, database, work))
        if "afterimage" in sides:
            pipeline = Pipeline.prepared(bench, f"a{secrets.token_hex(3)}", database, f"public.{TABLE}")
            pipeline.take_snapshot()
            turns.append(lambda pipeline=pipeline: pipeline.run(work.records))  # type: ignore[misc]
        if "debezium" in sides:
            connector = _connector(bench, database, "no_data")
            _create_slot(bench, database, connector.name)
            turns.append(lambda connector=connector: connector.run(work.records))  # type: ignore[misc]
    with bench.connect(database) as connection:
        connection.execute("SET synchronous_commit = off")
        connection.execute(f"CALL fill({work.changes}, {work.rows})".encode())
        connection.execute("CHECKPOINT")
    for turn in turns:
        yield _told(work.name, turn())
    bench.drop_database(database)


def _limit_turn(bench: Bench, database: str, work: CatchUp) -> Callable[[], Run]:
    slot = f"l{secrets.token_hex(3)}"
    _create_slot(bench, database, slot)
    conninfo = _conninfo(bench, database)

    def run() -> Run:
        with bench.connect(database) as connection:
            end = connection.execute("SELECT pg_current_wal_insert_lsn()::text").fetchone()
        assert end is not None
        return limit.run_limit(limit.Log(conninfo, slot, PUBLICATION, end[0], work.changes))

    return run


def _conninfo(bench: Bench, database: str) -> str:
    at = bench.postgres
    return f"host={at.host} port={at.port} user={at.user} password={at.password} dbname={database}"


def _database(bench: Bench, name: str) -> str:
    database = f"{name}_{secrets.token_hex(3)}"
    bench.create_database(database)
    return database


def _fill_table(bench: Bench, database: str, statements: tuple[str, ...], rows: int) -> None:
    with bench.connect(database) as connection:
        for statement in (*statements, SETTLED, f"CREATE PUBLICATION {PUBLICATION} FOR TABLE {TABLE}"):
            connection.execute(statement.replace("{table}", TABLE).replace("{rows}", str(rows)).encode())


def _create_slot(bench: Bench, database: str, name: str) -> None:
    with bench.connect(database) as connection:
        connection.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", [name])


def _connector(bench: Bench, database: str, snapshot_mode: str) -> Connector:
    return Connector(bench, f"d{secrets.token_hex(3)}", database, TABLE, {"snapshot.mode": snapshot_mode})


def _told(work: str, run: Run) -> Run:
    cost = f"{run.reader_cpu_s:.1f} + {run.broker_cpu_s:.1f} CPU s, {run.peak_rss_mb:.0f} MB"
    _say(f"{work:15} {run.side:10} {run.per_second:10,.0f}/s  {cost}")
    return run


def summary(runs: list[Run]) -> dict[str, Any]:
    """Medians and the ratios that the project holds itself to."""
    sides = {run.side for run in runs}
    middle = {side: medians(runs, side) for side in sides}
    body: dict[str, Any] = {"runs": [run.rounded() for run in runs]}
    body |= {side: middle[side].rounded() for side in sorted(sides)}
    ours = middle.get(afterimage.SIDE)
    if ours is None:
        return body
    body["peak_rss_mb"] = round(ours.peak_rss_mb, 1)
    if peer := middle.get(debezium.SIDE):
        spent = ours.reader_cpu_s + ours.broker_cpu_s
        body["ratio_to_debezium"] = round(ours.per_second / peer.per_second, 2)
        body["cpu_ratio"] = round(spent / (peer.reader_cpu_s + peer.broker_cpu_s), 3)
    if most := middle.get(limit.SIDE):
        body["ratio_to_limit"] = round(ours.per_second / most.per_second, 3)
    return body


def _save(path: Path, work: str, body: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    document = json.loads(path.read_text()) if path.exists() else {}
    document[work] = body
    path.write_text(json.dumps(document, indent=2) + "\n")


if __name__ == "__main__":
    main()
