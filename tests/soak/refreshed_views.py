"""The view corpora refreshed over Delta tables for hours: `python -m tests.soak.refreshed_views [--minutes 30]`.

What apply does to a view, by lookups, merges and fallbacks, without capture and Kafka: each round fills a corpus anew
from a seed of its own; after each batch every view's table is compared with Postgres.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.sql import SparkSession

from cdc.stack import daemon
from cdc.stack.postgres import Postgres
from tests.soak.bed import say, write_result
from tests.soak.views import local_spark
from tests.support.corpus_on_delta import OnDelta
from tests.support.servers import PostgresServer, fresh_database, sweep
from tests.support.view_corpus import CORPORA, ViewCorpus, batches, prepared, tables_of

BATCHES = 6


@dataclass
class Run:
    """What was done so far, and until when."""

    spark: SparkSession
    server: PostgresServer
    folder: Path
    until: float
    rounds: int = 0
    batches: int = 0
    comparisons: int = 0
    wrong: list[str] = field(default_factory=list)

    def round(self, name: str, seed: int) -> None:
        """One corpus, filled anew; it ends with the first difference."""
        with fresh_database(self.server) as database, database.connect() as connection:
            corpus = ViewCorpus(name)
            prepared(connection, corpus)
            changes = batches(name, random.Random(seed), connection)
            changes.fill()
            tables = tables_of(connection)
            specs = corpus.declared(tables)
            bed = OnDelta(self.spark, connection, tables, specs, self.folder / f"{name}-{seed}")
            self.rounds += 1
            found, at = bed.differences(), 0
            self._note(name, seed, at, len(specs), found)
            while not found and at < BATCHES and time.monotonic() < self.until:
                at += 1
                changes.batch()
                found = bed.batch()
                say(f"{name}, seed {seed}, batch {at}: {len(found)} differ, {dict(bed.ways())}")
                self.batches += 1
                self._note(name, seed, at, len(specs), found)

    def _note(self, name: str, seed: int, at: int, views: int, found: list[str]) -> None:
        self.comparisons += views
        for text in found:
            say(f"{name}, seed {seed}, batch {at}: {text}")
            self.wrong.append(f"{name}, seed {seed}, batch {at}: {text}")


def main() -> int:
    """Run until the time is over."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak.refreshed_views")
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--corpus", choices=CORPORA, action="append")
    arguments = parser.parse_args()
    until = time.monotonic() + 60 * arguments.minutes
    with tempfile.TemporaryDirectory(prefix="afterimage-soak-") as made:
        folder = Path(made)
        folder.chmod(0o755)
        try:
            server = PostgresServer(daemon.start(Postgres(folder / "postgres", port=0)))
            run = Run(local_spark(folder), server, folder, until)
            seed = arguments.seed
            while time.monotonic() < until:
                for name in arguments.corpus or CORPORA:
                    run.round(name, seed)
                seed += 1
        finally:
            sweep(folder)
    done = {"rounds": run.rounds, "batches": run.batches, "comparisons": run.comparisons, "wrong": run.wrong}
    write_result("refreshed_views", {"seed": arguments.seed, **done})
    return int(bool(run.wrong))


if __name__ == "__main__":
    sys.exit(main())
