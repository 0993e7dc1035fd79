"""Exceptions of Spark while it reads topics and evaluates views, translated; what is Delta's own goes to the sink.

In: what pyspark or py4j raised. Out: a CdcError. Keeps true: a value that no type holds is named by its place in Kafka,
its table and its column, never by itself.
"""

from __future__ import annotations

import base64
import json
import re
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException, ParseException, PySparkException

from cdc.errors import CdcError, OperatorError, ProtocolError, TransientError
from cdc.log import get
from jobs.rows import UNFIT
from sinks.delta import failures as delta
from sinks.delta.failures import causes, condition, thrown_at

_log = get(__name__)

_MARKED = re.compile(r"\[afterimage:([\w=-]+):([^\]\s]+)\]")
_KAFKA: Final = ("org.apache.kafka.", "org.apache.spark.sql.kafka010.")
_LOST: Final = ("OffsetOutOfRangeException", "KafkaIllegalStateException")
_GONE: Final = ("UnknownTopicOrPartitionException", "InvalidTopicException")
_UNAUTHORISED = re.compile(r"(Authentication|Authorization)Exception$")
# SQLSTATE's classes 21 and 22 hold the errors that rows cause: a subquery with two of them, or a value.
_DATA_EXCEPTION = re.compile(r"\A\s*\[([A-Z][A-Z0-9_.]*)\].*?SQLSTATE: 2[12]", re.DOTALL)


@contextmanager
def translated(doing: str) -> Iterator[None]:
    """Turn Spark's exceptions into ours, saying what was being done."""
    try:
        yield
    except (PySparkException, Py4JError) as error:
        # Not chained: the traceback in a log would print Spark's message, which may quote a row.
        raise translate(error, doing) from None


def translate(error: Exception, doing: str) -> CdcError:
    """What an exception means."""
    meaning = _ours(error) or _of_kafka(error, doing) or delta.translate(error, doing) or _of_sql(error, doing)
    return meaning or _unknown(error, doing)


def where(error: BaseException) -> list[str]:
    """Through which functions an exception came, the innermost last; its message may quote a row, and is not told."""
    frames = traceback.extract_tb(error.__traceback__)
    return [f"{'/'.join(Path(each.filename).parts[-2:])}:{each.lineno} {each.name}" for each in frames]


def _unknown(error: Exception, doing: str) -> CdcError:
    names = [cause.name.rsplit(".", 1)[-1] for cause in causes(error)] or [type(error).__name__]
    _log.error("spark failed", doing=doing, causes=names, at=thrown_at(error))
    return OperatorError(
        f"{doing}: Spark failed with {', caused by '.join(names)} {condition(error)}".rstrip(),
        "the line `spark failed` of apply's log says where: report it; for more, set apply.spark: {spark.log.level: "
        "ERROR}, and mind that this may quote rows",
        code="SPARK",
    )


def _ours(error: Exception) -> CdcError | None:
    texts = [str(error), *(cause.message for cause in causes(error))]
    found = next((match for text in texts if (match := _MARKED.search(text))), None)
    if found is None:
        return None
    body = json.loads(base64.urlsafe_b64decode(found[1]))
    table, at = body["table"], found[2]
    if body["reason"] == UNFIT:
        kind = body["type"]
        return OperatorError(
            f"{at}: a value of {table}, column {body['column']} ({kind}), has no counterpart in its Delta type",
            "infinity, years BC and numeric NaN have none: correct the row and forbid the value by a CHECK, or make "
            "the column text, or set apply.unfit_values: dead_letter; then run apply again",
            code="VALUE_UNFIT",
        )
    return ProtocolError(
        f"{at}: the record is not an event of {table}",
        "did another program write to the topic? capture the table anew under another pipeline name",
        code="RECORD_MALFORMED",
    )


def _of_kafka(error: Exception, doing: str) -> CdcError | None:
    names = [cause.name.rsplit(".", 1)[-1] for cause in causes(error) if cause.name.startswith(_KAFKA)]
    if not names:
        return None
    if any(name in _LOST for name in names):
        return OperatorError(
            f"{doing}: Kafka does not have the records at the view's offsets ({names[-1]})",
            "was the topic deleted, or given a retention? rebuild the view, or capture the table anew",
            code="RECORDS_LOST",
        )
    if names[-1] in _GONE:
        return OperatorError(
            f"{doing}: the topic is gone ({names[-1]})",
            "who deleted it? start over under a new pipeline name, or restore the topic",
            code="TOPIC_MISSING",
        )
    if _UNAUTHORISED.search(names[-1]):
        return OperatorError(
            f"{doing}: Kafka refuses these credentials ({names[-1]})",
            "check kafka.properties (security.protocol, sasl.*) and the ACLs of the topics",
            code="KAFKA_UNAUTHORISED",
        )
    hint = "is Kafka up and reachable at kafka.bootstrap?"
    return TransientError(f"{doing}: Kafka does not answer ({names[-1]})", hint, code="KAFKA_UNAVAILABLE")


def _of_sql(error: Exception, doing: str) -> CdcError | None:
    if isinstance(error, AnalysisException | ParseException):
        return OperatorError(
            f"{doing}: Spark refuses the view's SQL ({condition(error)})",
            "`afterimage explain` shows what Spark is sent; rewrite the expression in another way",
            code="VIEW_REFUSED",
        )
    # A failed task arrives wrapped in as many exceptions as there are layers above it.
    found = next((match for cause in causes(error) if (match := _DATA_EXCEPTION.search(cause.message))), None)
    if found is None:
        return None
    return OperatorError(
        f"{doing}: the view's SQL fails on a row ({found[1]})",
        "Postgres fails on that row as well: make the expression total (NULLIF, CASE) or filter such rows out",
        code="VIEW_FAILED",
    )
