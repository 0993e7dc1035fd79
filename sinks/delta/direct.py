"""A small batch merged by delta-rs, in this process: a twentieth of what the same commit costs as Spark jobs.

In: the batch as an Arrow table, a Commit. Out: one Delta commit with the same stamp and turn. Keeps true: delta-rs does
not look at turns, so they are compared first; any other commit on the version that was looked at is an error.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from cdc.errors import CdcError, OperatorError, TransientError
from sinks.delta.commit import Commit, Mark
from sinks.delta.opened import newest
from sinks.protocol import DELETE, OP, UPSERT
from sinks.standing import overtaken

if TYPE_CHECKING:
    from deltalake import CommitProperties, DeltaTable

FULL: Final = ("no space left on device", "disk quota exceeded", "file too large")
"""What the system says of a disk, a quota or a limit that is used up."""
TABLE_BYTES_MAX: Final = 256 << 20
"""delta-rs rewrites whole files in memory; a larger table is Spark's."""


def merge_directly(rows: Any, commit: Commit, key: Sequence[str], storage_options: Mapping[str, str]) -> None:
    """MERGE by key, NULL being a value; `rows` has the table's columns and OP."""
    values = {_quoted(name): f"s.{_quoted(name)}" for name in rows.column_names if name != OP}
    # Without a NULL in sight, plain equality: files are left out by that alone.
    equals = "IS NOT DISTINCT FROM" if any(rows.column(name).null_count for name in key) else "="
    # Without parentheses, the second operand of the first comparison would be all that follows.
    same = " AND ".join(f"(t.{_quoted(name)} {equals} s.{_quoted(name)})" for name in key)
    with refusals(commit.stamp.view), newest(commit.path, storage_options) as (table, _):
        properties = taken_turn(table, commit)
        (
            table.merge(rows, same, source_alias="s", target_alias="t", commit_properties=properties)
            .when_matched_delete(f"s.{_quoted(OP)} = '{DELETE}'")
            .when_matched_update(values)
            .when_not_matched_insert(values, f"s.{_quoted(OP)} = '{UPSERT}'")
            .execute()
        )


def taken_turn(table: DeltaTable, commit: Mark) -> CommitProperties:
    """What any commit by delta-rs carries; the turn must still be free, and no other commit may come in between."""
    from deltalake import CommitProperties, Transaction

    if (table.transaction_version(commit.app_id) or 0) >= commit.turn:
        raise overtaken("Delta", commit.stamp.view)
    return CommitProperties(
        custom_metadata={"userMetadata": commit.stamp.to_json()},
        app_transactions=[Transaction(commit.app_id, commit.turn)],
        max_commit_retries=0,
    )


@contextmanager
def refusals(view: str) -> Iterator[None]:
    """What goes wrong with a commit, as our errors."""
    import pyarrow as pa
    from deltalake.exceptions import DeltaError

    try:
        yield
    except FileExistsError:
        raise overtaken("Delta", view) from None
    except (DeltaError, OSError, pa.ArrowException) as error:
        raise refused(view, error) from None  # its message may quote a row


def refused(view: str, error: Exception) -> CdcError:
    from deltalake.exceptions import CommitFailedError

    doing, text = f"view {view} into delta", str(error).lower()
    if any(words in text for words in FULL):
        return TransientError(
            f"{doing}: the disk is full", "free some space; the batch is tried again", code="DISK_FULL"
        )
    if isinstance(error, CommitFailedError):
        return TransientError(
            f"{doing}: another writer has committed to the table meanwhile",
            "is something else writing there? the batch is tried again",
            code="DELTA_CONFLICT",
        )
    if isinstance(error, FileNotFoundError) or "not found" in text or "no such file" in text:
        return OperatorError(
            f"{doing}: files of the table are gone", f"run: afterimage rebuild {view}", code="DELTA_DAMAGED"
        )
    return OperatorError(
        f"{doing}: delta-rs refuses the batch ({type(error).__name__})",
        f"may the folder be written? else: afterimage rebuild {view}",
        code="DELTA_UNWRITABLE",
    )


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
