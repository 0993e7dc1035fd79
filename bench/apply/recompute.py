"""The peer of an incremental view: its SELECT computed in full by a warm Spark, and the Delta table overwritten.

In: a configuration, a folder; on standard input a view's name and its SELECT, a line each. Out: "done NAME".
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from bench.apply.worker import tell
from cdc.configuration import load_settings
from jobs.session import spark_session


def main() -> None:
    """Until the input ends, or says stop."""
    parser = argparse.ArgumentParser()
    parser.add_argument("config", type=Path)
    parser.add_argument("folder", type=Path)
    arguments = parser.parse_args()
    settings = load_settings(arguments.config)
    spark = spark_session(settings, "recompute")
    for line in sys.stdin:
        view, _, select = line.strip().partition(" ")
        if not select:
            break
        for mirror in Path(settings.delta_root).glob("public.*"):
            spark.read.format("delta").load(str(mirror)).createOrReplaceTempView(mirror.name.removeprefix("public."))
        spark.sql(select).write.format("delta").mode("overwrite").save(str(arguments.folder / view))
        tell(f"done {view}")
    spark.stop()


if __name__ == "__main__":
    main()
