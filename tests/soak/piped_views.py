"""A whole corpus of views through capture, Kafka and apply: `python -m tests.soak.piped_views [--corpus shop]`.

All views are declared in one pipeline; after each random batch `prove` compares every one of them with Postgres at one
LSN. `--kill` kills apply at a random moment of every other batch.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from pathlib import Path

from cdc.stack import daemon
from cdc.stack.kafka import Kafka
from cdc.stack.opensearch import OpenSearch
from cdc.stack.postgres import Postgres
from cdc.stack.valkey import Valkey
from tests.soak.bed import say, write_result
from tests.support.pipelines import Pipeline, Stores, pipeline_on
from tests.support.servers import PostgresServer, sweep
from tests.support.view_corpus import CORPORA, ViewCorpus, batches


def main() -> int:
    """Run until the time is over."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak.piped_views")
    parser.add_argument("--corpus", choices=CORPORA, default=CORPORA[0])
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--kill", action="store_true")
    arguments = parser.parse_args()
    say(f"seed {arguments.seed}")
    with tempfile.TemporaryDirectory(prefix="afterimage-soak-") as made:
        folder = Path(made)
        folder.chmod(0o755)
        try:
            result = _run(folder, arguments)
        finally:
            sweep(folder)
    write_result(f"piped_views_{arguments.corpus}", vars(arguments) | result)
    return int(bool(result["wrong"]))


def _run(folder: Path, arguments: argparse.Namespace) -> dict[str, object]:
    corpus = ViewCorpus(arguments.corpus)
    postgres = PostgresServer(daemon.start(Postgres(folder / "postgres", port=0)))
    kafka, opensearch, valkey = (
        daemon.start(server)
        for server in (
            Kafka(folder / "kafka", port=0, short_lived=True),
            OpenSearch(folder / "opensearch", port=0, short_lived=True),
            Valkey(folder / "valkey", port=0),
        )
    )
    views = {name: source.text for name, source in corpus.texts.items()}
    rng = random.Random(arguments.seed)
    with pipeline_on(
        postgres, Stores(kafka, opensearch, valkey), folder, views, ddl=corpus.ddl, tables=("public.*",)
    ) as pipeline:
        pipeline.admin.execute("SET search_path TO public")
        changes = batches(corpus.name, rng, pipeline.admin)
        changes.fill()
        pipeline.start()
        until = time.monotonic() + 60 * arguments.minutes
        proofs, wrong, rounds, kills = 0, list[object](), 0, 0
        while rounds == 0 or time.monotonic() < until:
            if arguments.kill and rounds % 2:
                kills += _killed(pipeline, rng)
            pipeline.catch_up(timeout_s=900)
            found = pipeline.prove()
            proofs += len(found)
            wrong += [proof for proof in found if not proof["holds"]]
            rounds += 1
            say(f"round {rounds}: {len(found)} proofs, {len(wrong)} wrong so far")
            changes.batch()
        return {"rounds": rounds, "views": len(views), "proofs": proofs, "kills": kills, "wrong": wrong}


def _killed(pipeline: Pipeline, rng: random.Random) -> int:
    """Kill apply while it takes the batch in, and start it again."""
    time.sleep(rng.uniform(0, 5))
    pipeline.apply.kill()
    pipeline.start_apply()
    return 1


if __name__ == "__main__":
    sys.exit(main())
