"""Proofs under load: none may cry wolf, and none may miss what was planted; each corruption is mended and proved again.

PLANTED (ROUND at a time), RETYPED, PROOFS, SOAK_RATE (changes a second), PLANT_RATE (the same while it plants), SEED,
ADD=1 to add to earlier runs. Writes bench/results/prove.json after every step; exit 1 if it is not so. QUIET_FILE:
nothing begins while that exists.
"""

from __future__ import annotations

import json
import signal
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

from cdc.cli.proving import sinks_of
from cdc.cli.views import live_named_views
from cdc.settings import Settings
from cdc.stack import daemon
from cdc.stack.kafka import Kafka
from cdc.stack.opensearch import OpenSearch
from cdc.stack.postgres import Postgres
from cdc.stack.valkey import Valkey
from jobs.prove import ControlHolder, TimedHolder, prove
from tests.soak.bed import number, say, write_run
from tests.soak.open_transactions import Transactions
from tests.soak.orders import STILL, Writes, fill
from tests.soak.planting import FED, MIRROR, VIEW, Delta, change_before, chosen
from tests.support.pipelines import Pipeline, Stores, pipeline_on
from tests.support.servers import PostgresServer, sweep

OWN = {
    VIEW: "-- sinks: delta, search, cache\nSELECT id, customer, amount, at FROM public.orders WHERE paid",
    # A topic keeps all that was ever written to it, and a proof reads it whole: not every change, then.
    FED: "-- sinks: kafka\nSELECT id, customer, amount FROM orders WHERE paid AND (id % 16 = 2 OR id > 1000000)",
}
QUERIES = {
    "lines": "-- sinks: delta, search, cache\n"
    "SELECT i.line, i.order_id, o.customer, o.amount, i.quantity FROM order_items i JOIN orders o ON o.id = i.order_id",
    "totals": "-- key: rest\n-- sinks: delta, cache\n"
    "SELECT id % 97 AS rest, count(*) AS orders, sum(amount) AS amount FROM orders GROUP BY id % 97",
}
CHUNK_ROWS = 2_500
IN_CHUNKS_EVERY = 8
CATCH_UP_S = 900
LOG_SHOWN = 5_000
COUNTED = ("proofs", "false_alarms", "planted", "missed", "named_besides", "not_mended", "by_kind", "by_place", "wrong")


@dataclass
class Figures:
    """What was seen."""

    held_s: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    seconds: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    chunks: list[int] = field(default_factory=list)
    rows: int = 0
    false_alarms: list[dict[str, Any]] = field(default_factory=list)
    planted: Counter[str] = field(default_factory=Counter)
    places: defaultdict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    missed: list[str] = field(default_factory=list)
    surplus: list[str] = field(default_factory=list)
    unmended: list[str] = field(default_factory=list)
    rebuilt: int = 0

    @property
    def proofs(self) -> int:
        return sum(map(len, self.seconds.values()))

    @property
    def wrong(self) -> bool:
        return bool(self.false_alarms or self.missed or self.surplus or self.unmended)


def main() -> int:
    """All of it."""
    random, figures = Random(int(number("SEED", 20261119))), Figures()
    began_s, stopped = time.monotonic(), threading.Event()
    for number_of_signal in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number_of_signal, lambda *_: stopped.set())
    # Whoever loses patience gets what there is so far.
    with (
        running(spark={}) as pipeline,
        Writes(pipeline.settings, number("PLANT_RATE", 1_000)) as writes,
        Transactions(pipeline.settings) as transactions,
    ):
        for step in steps(pipeline, writes, random, figures):
            if stopped.is_set():
                break
            writes.await_quiet()
            say(step())
            found = result(figures, writes.rate, time.monotonic() - began_s)
            write_run("prove", found | {"longest_source_transaction_s": round(transactions.longest_s, 2)}, COUNTED)
    return int(figures.wrong)


def steps(pipeline: Pipeline, writes: Writes, random: Random, figures: Figures) -> Iterator[Callable[[], str]]:
    """One after the other; each says what there is so far."""
    wanted = int(number("PLANTED", 200))
    retyped = min(wanted, int(number("RETYPED", 4)))

    def plant(count: int) -> str:
        plant_and_repair(pipeline, random, count, figures)
        return f"{sum(figures.planted.values())} planted, missed {figures.missed}, unmended {figures.unmended}"

    def retype(view: str, alone: bool) -> str:
        retype_and_repair(pipeline, writes, view, figures, alone=alone)
        return f"{figures.planted['wrong type of a column']} columns retyped, rebuilt {figures.rebuilt}"

    def prove_all(in_chunks: bool) -> str:
        seconds = prove_once(pipeline.settings, figures, in_chunks=in_chunks)
        alarms = len(figures.false_alarms)
        return f"{figures.proofs} proofs, last {seconds:.0f} s, {alarms} false alarms, {writes.rate:.0f} changes/s"

    left = wanted - retyped
    while left > 0:
        count = min(int(number("ROUND", 40)), left)
        left -= count
        yield partial(plant, count)
    for at in range(retyped):
        yield partial(retype, (VIEW, MIRROR)[at % 2], at == retyped - 1)
    writes.pace(number("SOAK_RATE", 1_000))
    # The first of these also shows that views over what was corrupted are right, now that that is mended.
    for done in range(1, int(number("PROOFS", 100)) + 1):
        yield partial(prove_all, done % IN_CHUNKS_EVERY == 0)


@contextmanager
def running(views: Mapping[str, str] | None = None, **options: Any) -> Iterator[Pipeline]:
    """Servers for this soak alone, and a pipeline with all that it needs, caught up."""
    with tempfile.TemporaryDirectory(prefix="afterimage-soak-") as made:
        folder = Path(made)
        folder.chmod(0o755)
        try:
            postgres = PostgresServer(daemon.start(Postgres(folder / "postgres", port=0)))
            stores = Stores(
                daemon.start(Kafka(folder / "kafka", port=0)),
                daemon.start(OpenSearch(folder / "opensearch", port=0)),
                daemon.start(Valkey(folder / "valkey", port=0)),
            )
            (folder / "pipeline").mkdir()
            own = {**OWN, **QUERIES}
            tables = ("public.orders", "public.order_items")
            with pipeline_on(postgres, stores, folder / "pipeline", views or own, **options, tables=tables) as pipeline:
                fill(pipeline.admin)
                pipeline.start()
                pipeline.catch_up(CATCH_UP_S)
                try:
                    yield pipeline
                except BaseException:
                    # Its log goes with the folder.
                    say(pipeline.apply.text()[-LOG_SHOWN:])
                    raise
        finally:
            sweep(folder)


def prove_once(settings: Settings, figures: Figures, *, in_chunks: bool) -> float:
    """All views in all sinks; every difference is a false alarm, since nobody has planted any."""
    pace = settings.prove.model_copy(update={"chunk_rows": CHUNK_ROWS} if in_chunks else {})
    settings = settings.model_copy(update={"prove": pace})
    holder, began_s = TimedHolder(ControlHolder(settings)), time.monotonic()
    proofs = prove(settings, live_named_views(settings, []), sinks_of(settings), holder)
    seconds = time.monotonic() - began_s
    way = "in_chunks" if in_chunks else "in_one_piece"
    figures.seconds[way].append(seconds)
    figures.held_s[way].append(holder.longest_s)
    figures.chunks.append(max(proof.chunks for proof in proofs))
    figures.rows += sum(proof.rows for proof in proofs)
    figures.false_alarms += [proof.to_json() for proof in proofs if not proof.holds]
    return seconds


def plant_and_repair(pipeline: Pipeline, random: Random, count: int, figures: Figures) -> None:
    """A few corruptions of rows that nobody else writes; then the command must find exactly these, and mend them."""
    corruptions = chosen(random, list(STILL), count)
    before = change_before(pipeline.admin, corruptions)
    pipeline.catch_up(CATCH_UP_S)
    for each in corruptions:
        each.plant(pipeline.settings, before[each.key])
        figures.planted[each.kind] += 1
        figures.places[f"{each.view} in {each.sink}"][each.kind] += 1
    wanted = {each.named for each in corruptions}
    proofs = repair(pipeline, [] if random.random() < 0.5 else ["--chunk-rows", str(CHUNK_ROWS)])
    named = {
        (proof["view"], proof["sink"], example["difference"], example["key"]["id"])
        for proof in proofs
        for example in (proof["found"] or proof)["examples"]
    }
    figures.missed += [" ".join(each) for each in sorted(wanted - named)]
    figures.surplus += [" ".join(each) for each in sorted(named - wanted)]
    for proof in proofs:
        planted = sum(each.view == proof["view"] and each.sink == proof["sink"] for each in corruptions)
        mended = proof["mended"] or {"written": 0, "deleted": 0, "left": 0}
        if not proof["holds"] or mended["written"] + mended["deleted"] != planted or proof["rebuilt"]:
            figures.unmended.append(json.dumps(proof))


def retype_and_repair(pipeline: Pipeline, writes: Writes, view: str, figures: Figures, *, alone: bool) -> None:
    """A Delta column of another type: every row is wrong, and only a rebuild helps; `alone`: while no apply runs."""
    writes.pause()
    pipeline.catch_up(CATCH_UP_S)
    if alone:
        pipeline.apply.stop()
    Delta(pipeline.settings, view).retype("amount")
    figures.planted["wrong type of a column"] += 1
    figures.places[f"{view} in delta"]["wrong type of a column"] += 1
    proofs = repair(pipeline, [])
    figures.rebuilt += any(proof["rebuilt"] for proof in proofs)
    found = [proof for proof in proofs if proof["found"] and not proof["found"]["holds"]]
    if [(proof["view"], proof["sink"]) for proof in found] != [(view, "delta")]:
        figures.missed.append(f"wrong type of a column in {view}")
    figures.unmended += [json.dumps(proof) for proof in proofs if not proof["holds"]]
    if alone:
        pipeline.start_apply()
    writes.resume()


def repair(pipeline: Pipeline, words: list[str]) -> list[dict[str, Any]]:
    """By the command."""
    ended = pipeline.run(
        "prove", "--repair", "--json", "--keys", "100", *words, VIEW, MIRROR, FED, timeout_s=CATCH_UP_S
    )
    assert ended.stdout, ended.stderr + pipeline.apply.text()[-3000:]
    proofs: list[dict[str, Any]] = json.loads(ended.stdout)
    return proofs


def result(figures: Figures, rate: float, seconds: float) -> dict[str, Any]:
    """For bench/results."""
    return {
        "proofs": figures.proofs,
        "false_alarms": len(figures.false_alarms),
        "rows_compared": figures.rows,
        "changes_per_s": round(rate),
        "proof_s": {way: _spread(values) for way, values in figures.seconds.items()},
        "held_s": {way: _spread(values) for way, values in figures.held_s.items()},
        "chunk_rows": CHUNK_ROWS,
        "chunks_max": max(figures.chunks, default=0),
        "planted": sum(figures.planted.values()),
        "missed": len(figures.missed),
        "named_besides": len(figures.surplus),
        "not_mended": len(figures.unmended),
        "by_kind": dict(sorted(figures.planted.items())),
        "by_place": {place: dict(sorted(kinds.items())) for place, kinds in sorted(figures.places.items())},
        "rebuilt": figures.rebuilt,
        "seed": int(number("SEED", 20261119)),
        "seconds": round(seconds, 1),
        "wrong": [*figures.false_alarms, *figures.missed, *figures.surplus, *figures.unmended],
    }


def _spread(values: list[float]) -> dict[str, float]:
    return {"proofs": len(values), "p50": round(median(values), 2), "max": round(max(values), 2)}


if __name__ == "__main__":
    sys.exit(main())
