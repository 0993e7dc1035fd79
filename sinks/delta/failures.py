"""Exceptions of Spark and of Delta's JVM side, translated: what they mean for whoever writes a table.

In: what pyspark or py4j raised. Out: a CdcError. Keeps true: no row value gets out. Spark's messages quote values, so
only conditions and class names are passed on.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from delta.exceptions import (
    ConcurrentAppendException,
    ConcurrentDeleteDeleteException,
    ConcurrentDeleteReadException,
    ConcurrentTransactionException,
    ConcurrentWriteException,
    DeltaConcurrentModificationException,
    MetadataChangedException,
    ProtocolChangedException,
)
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException

from cdc.errors import CdcError, OperatorError, TransientError
from sinks.delta.direct import FULL

CAUSES_MAX: Final = 20
FRAMES_MAX: Final = 20
# They have no ancestor of their own in Python.
_CONFLICTS: Final = (
    ConcurrentAppendException,
    ConcurrentDeleteDeleteException,
    ConcurrentDeleteReadException,
    ConcurrentTransactionException,
    ConcurrentWriteException,
    DeltaConcurrentModificationException,
    MetadataChangedException,
    ProtocolChangedException,
)
_CONFLICT = re.compile(r"\.delta\..*(Concurrent\w*|MetadataChanged|ProtocolChanged)Exception$")
_CONDITION = re.compile(r"\[([A-Z][A-Z_.0-9]+)\]")
_DAMAGED: Final = ("FileNotFoundException", "DeltaFileNotFoundException")


@dataclass(frozen=True, slots=True)
class Cause:
    """One Java exception of the chain; its message may quote a row."""

    name: str
    message: str


@contextmanager
def translated(doing: str) -> Iterator[None]:
    """Turn Delta's failures into ours; any other is the frame's own, and whoever made the frame translates it."""
    try:
        yield
    except (PySparkException, Py4JError) as error:
        meaning = translate(error, doing)
        if meaning is None:
            raise
        # Not chained: the traceback in a log would print Spark's message.
        raise meaning from None


def translate(error: Exception, doing: str) -> CdcError | None:
    """What an exception means for a table; None when it is about something else."""
    found = causes(error)
    meanings = (decide(error, found, doing) for decide in (_conflict, _of_storage, _of_the_jvm))
    return next((meaning for meaning in meanings if meaning is not None), None)


def causes(error: Exception) -> list[Cause]:
    """The Java exceptions behind an exception, outermost first."""
    java: Any = _java(error)
    found: list[Cause] = []
    try:
        while java is not None and len(found) < CAUSES_MAX:
            found.append(Cause(java.getClass().getName(), str(java.getMessage())))
            java = java.getCause()
    except Py4JError:  # the JVM went away meanwhile: what is known so far has to do
        pass
    return found


def thrown_at(error: Exception) -> list[str]:
    """Where the innermost Java exception was thrown: classes, methods and lines, which never hold data."""
    java: Any = _java(error)
    try:
        while java is not None and (cause := java.getCause()) is not None:
            java = cause
        trace = list(java.getStackTrace())[:FRAMES_MAX] if java is not None else []
        return [f"{each.getClassName()}.{each.getMethodName()}:{each.getLineNumber()}" for each in trace]
    except Py4JError:
        return []


def condition(error: Exception) -> str:
    """Spark's name for the error, which never holds data."""
    if isinstance(error, PySparkException):
        return error.getCondition() or ""
    match = next((match for cause in causes(error) if (match := _CONDITION.match(cause.message))), None)
    return match[1] if match else ""


def _java(error: Exception) -> Any:
    return getattr(error, "_origin", None) or getattr(error, "java_exception", None)


def _conflict(error: Exception, found: list[Cause], doing: str) -> CdcError | None:
    if not isinstance(error, _CONFLICTS) and not any(_CONFLICT.search(cause.name) for cause in found):
        return None
    return TransientError(
        f"{doing}: another writer committed to the Delta table at the same time",
        "it is tried again; if it goes on, stop the other writer: a view's table belongs to one apply process",
        code="DELTA_CONFLICT",
    )


def _of_storage(error: Exception, found: list[Cause], doing: str) -> CdcError | None:
    if any(words in cause.message.lower() for words in FULL for cause in found):
        hint = "free some space under delta.path and the data folder; it is tried again"
        return TransientError(f"{doing}: the disk is full", hint, code="DISK_FULL")
    denied = any("Permission denied" in cause.message or "AccessDenied" in cause.name for cause in found)
    if denied or "CANNOT_CREATE_LOG_PATH" in condition(error):
        return OperatorError(
            f"{doing}: the folder of the Delta table cannot be written",
            "check who owns delta.path and whether its file system is read-only",
            code="DELTA_UNWRITABLE",
        )
    if any(cause.name.endswith(_DAMAGED) for cause in found) or "FILE_NOT_EXIST" in condition(error):
        return OperatorError(
            f"{doing}: files of the Delta table are missing",
            "were they deleted by hand, or by a VACUUM without retention? rebuild the view",
            code="DELTA_DAMAGED",
        )
    return None


def _of_the_jvm(error: Exception, found: list[Cause], doing: str) -> CdcError | None:
    if any(cause.name.endswith("OutOfMemoryError") for cause in found):
        return OperatorError(f"{doing}: Spark ran out of memory", "raise apply.driver_memory", code="SPARK_MEMORY")
    if isinstance(error, Py4JError) and not isinstance(error, Py4JJavaError):
        return OperatorError(
            f"{doing}: Spark's JVM is gone",
            "was it killed, or out of memory? start apply again; it goes on from where the views stand",
            code="SPARK_GONE",
        )
    return None
