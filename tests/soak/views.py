"""The view corpora for hours: `python -m tests.soak.views [--minutes 30] [--seed 1]`.

Each round fills a corpus anew from a seed of its own, then makes batches; after each one every view is compared with
Postgres. A difference is told with the seed and the batch, and the run goes on with the right rows. Needs no Kafka.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from cdc.settings import Settings
from cdc.stack import daemon
from cdc.stack.postgres import Postgres
from jobs.session import spark_session
from tests.soak.bed import say, write_result
from tests.support.corpus_kept import Keeper
from tests.support.servers import PostgresServer, fresh_database, sweep
from tests.support.view_corpus import CORPORA, ViewCorpus, batches, prepared, tables_of

BATCHES = 8


@dataclass
class Tally:
    """What the run did so far."""

    rounds: int = 0
    batches: int = 0
    refreshes: int = 0
    affected_keys: int = 0
    computed_as_a_whole: int = 0
    rows_compared: int = 0
    differences: list[str] = field(default_factory=list)


def main() -> int:
    """Run until the time is over."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak.views")
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    arguments = parser.parse_args()
    until = time.monotonic() + 60 * arguments.minutes
    tallies = {name: Tally() for name in CORPORA}
    with tempfile.TemporaryDirectory(prefix="afterimage-soak-") as made:
        folder = Path(made)
        folder.chmod(0o755)
        try:
            server = PostgresServer(daemon.start(Postgres(folder / "postgres", port=0)))
            spark = local_spark(folder)
            seed = arguments.seed
            while time.monotonic() < until:
                for name in CORPORA:
                    say(f"{name}: seed {seed}")
                    _round(spark, server, name, seed, tallies[name], until)
                seed += 1
        finally:
            sweep(folder)
    write_result("views", {"seed": arguments.seed} | {name: vars(tally) for name, tally in tallies.items()})
    return int(any(tally.differences for tally in tallies.values()))


def local_spark(folder: Path) -> SparkSession:
    """A session of its own."""
    settings = {
        "pipeline": "soak",
        "source": {"database": "none", "tables": ["public.*"]},
        "data": folder / "data",
        "apply": {"master": "local[2]", "spark": {"spark.sql.shuffle.partitions": "1"}},
    }
    return spark_session(Settings.model_validate(settings), "soak")


def _round(spark: SparkSession, server: PostgresServer, name: str, seed: int, tally: Tally, until: float) -> None:
    with fresh_database(server) as database, database.connect() as connection:
        corpus = ViewCorpus(name)
        prepared(connection, corpus)
        changes = batches(name, random.Random(seed), connection)
        changes.fill()
        tables = tables_of(connection)
        keeper = Keeper(spark, connection, tables, corpus.declared(tables))
        tally.rounds += 1
        for at in range(BATCHES):
            if time.monotonic() > until:
                break
            changes.batch()
            keeper.batch()
            tally.batches += 1
            _compare(keeper, tally, f"seed {seed}, batch {at}")
        tally.affected_keys += sum(view.affected for view in keeper.views.values())
        tally.computed_as_a_whole += sum(view.recomputed for view in keeper.views.values())
        tally.rows_compared += keeper.seen_rows


def _compare(keeper: Keeper, tally: Tally, where: str) -> None:
    for view in keeper.views.values():
        try:
            tally.refreshes += keeper.refresh(view) is not None
            told = keeper.difference(view)
        except (PySparkException, AssertionError) as error:
            told = f"{view.spec.name}: {error}"
        if told is not None:
            say(f"{where}: {told}")
            tally.differences.append(f"{where}: {told}")
            keeper.answer(view)


if __name__ == "__main__":
    sys.exit(main())
