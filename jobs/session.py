"""The Spark session that apply works in: one JVM, kept warm, tuned for many small batches.

In: settings. Out: a SparkSession with Delta and Kafka on its class path. Keeps true: UTC and ANSI everywhere, time in
microseconds, nothing written to the working directory, and no row value in a log.
"""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from cdc.cycles import look_seldom
from cdc.settings import Settings
from cdc.stack.spark import spark_classpath, spark_java_home
from jobs.memory import share_arenas

LOG4J = """\
status = off
appender.err.type = Console
appender.err.name = err
appender.err.target = SYSTEM_ERR
appender.err.layout.type = PatternLayout
appender.err.layout.pattern = %d{ISO8601} %p %c{1} %m%n
rootLogger.level = off
rootLogger.appenderRef.err.ref = err
# Else Spark takes this for a shell without a level of its own, sets WARN and says so.
logger.shell.name = org.apache.spark.api.python.PythonGatewayServer
logger.shell.level = off
"""

# Meaning: what an identical answer in every place needs.
SEMANTICS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    # A key such as '${env:HOME}' must stay what it is in the predicates that name keys.
    "spark.sql.variable.substitute": "false",
    "spark.sql.legacy.charVarcharAsString": "true",
    # The default INT96 counts nanoseconds, which other readers overflow outside 1677-2262.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.databricks.delta.properties.defaults.enableDeletionVectors": "false",
}

# Speed of small batches, most of which is planning and scheduling.
SMALL_BATCHES = {
    "spark.sql.shuffle.partitions": "4",
    "spark.default.parallelism": "4",
    "spark.databricks.delta.snapshotPartitions": "1",
    # The frame that replaces the rows of these keys was made from these very keys.
    "spark.databricks.delta.replaceWhere.constraintCheck.enabled": "false",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # It notes the call site of every column expression.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    "spark.cleaner.periodicGC.interval": "5min",
    "spark.scheduler.mode": "FAIR",
}

REBUILD_POOL = "rebuild"
"""What loads beside runs in this pool, and batches in the default one: neither waits for all of the other's tasks."""

MADE_BETWEEN_LOOKS = 10_000
"""A chunk of records at most. What stands for an object of the JVM may be in a cycle, and should not wait for long."""
CODE_CACHE = "512m"
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"

QUIET = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.eventLog.enabled": "false",
}


def spark_session(settings: Settings, app_name: str) -> SparkSession:
    """The process's session, made on first use; `apply.spark` overrides everything here."""
    folder = (settings.data / "spark").absolute()
    folder.mkdir(parents=True, exist_ok=True)
    os.environ["JAVA_HOME"] = spark_java_home()
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    share_arenas()
    look_seldom(MADE_BETWEEN_LOOKS)
    # A SPARK_HOME of another Spark would start that one.
    os.environ.pop("SPARK_HOME", None)
    # pyspark logs every failed query with its message, which may quote a row; jobs.failures says it without.
    logging.getLogger("SQLQueryContextLogger").disabled = True
    builder = SparkSession.Builder().master(settings.apply.master).appName(app_name)
    for name, value in _options(settings, folder).items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def _options(settings: Settings, folder: Path) -> dict[str, str]:
    local = settings.apply.master.startswith("local")
    ours = {
        **SEMANTICS,
        **SMALL_BATCHES,
        **QUIET,
        **(_on_this_machine() if local else {}),
        **_of_the_jvm(folder),
        "spark.driver.memory": settings.apply.driver_memory,
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
    }
    # The JVM's options are added to ours, which keep row values out of the log.
    both = " ".join(filter(None, (ours[_JAVA_OPTIONS], settings.apply.spark.get(_JAVA_OPTIONS))))
    return {**ours, **settings.apply.spark, _JAVA_OPTIONS: both}


def _of_the_jvm(folder: Path) -> dict[str, str]:
    # Spark's own loggers print the messages of failed tasks, and a failed cast's message quotes the value: they are
    # off, and jobs.failures says what went wrong instead.
    log4j = folder / "log4j2.properties"
    log4j.write_text(LOG4J)
    jars = spark_classpath()
    # Spark compiles each new query; where the cache for that is full, the JVM stops compiling, and in the end itself.
    cache = f'"-XX:ReservedCodeCacheSize={CODE_CACHE}"'
    java = f'{cache} "-Dlog4j2.configurationFile={log4j.as_uri()}" "-Dderby.system.home={folder}"'
    return {
        "spark.driver.extraClassPath": jars,
        "spark.executor.extraClassPath": jars,
        _JAVA_OPTIONS: java,
    }


def _on_this_machine() -> dict[str, str]:
    return {
        # Re-planning between stages costs more than it saves when the shuffle partitions already fit the cores.
        "spark.sql.adaptive.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
    }
