"""What pyspark needs beyond its wheel: jars to read Kafka and write Delta, and a Java to run on.

In: the spark lock. Out: a class path and a JAVA_HOME. Jars of another Spark than the one installed are refused.
"""

from __future__ import annotations

import os
from importlib.metadata import PackageNotFoundError, version

from rich.console import Console

from cdc.errors import OperatorError
from cdc.stack.fetch import fetch
from cdc.stack.java import java_home
from cdc.stack.locks import Lock, load


def spark_classpath(console: Console | None = None) -> str:
    """For `spark.driver.extraClassPath` and `spark.executor.extraClassPath`."""
    lock = load("spark")
    _check_versions(lock)
    return os.pathsep.join(str(jar) for jar in fetch(lock.artifacts, what="Spark's jars", console=console))


def spark_java_home() -> str:
    """For JAVA_HOME, before the first Spark session starts its JVM."""
    return str(java_home())


def _check_versions(lock: Lock) -> None:
    for package, wanted in lock.requires.items():
        try:
            installed = version(package)
        except PackageNotFoundError:
            installed = "none"
        if installed != wanted:
            raise OperatorError(
                f"config/locks/spark.json is out of date: it is for {package} {wanted}, installed is {installed}",
                f"install {package}=={wanted}, or put the new versions into the lock and run: "
                "python -m cdc.stack.relock spark",
                code="LOCK",
            )


if __name__ == "__main__":  # for images: what a machine without network will need
    spark_classpath(Console(stderr=True))
    spark_java_home()
