"""A view's rows in a Delta table that no reader sees, and how they become the live table's in one commit.

In: a table beside the live one. Out: its files under the live table's folder, and a commit that names them alone, with
the view's stamp and turn. Keeps true: until that commit nothing is seen of it; whoever is killed before leaves files
that tidying removes, and a table beside that the next load removes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from cdc.settings import Delta
from sinks.delta.commit import NTZ_FEATURE, ROWS_PER_FILE_MAX, Mark
from sinks.delta.direct import refused, taken_turn
from sinks.delta.entries import Entry, actions_of, take
from sinks.delta.removal import remove_table
from sinks.standing import new_generation

if TYPE_CHECKING:
    import pyarrow as pa

FOLDER: Final = "_next"
"""Where such tables lie, under the pipeline's folder: no mirror's or view's folder begins so."""
KEPT_WHOLE: Final = {"delta.logRetentionDuration": "interval 30 days"}
"""Every commit of its log is read at the swap."""


def folder_beside(view: str) -> str:
    """Where a view's table is loaded; each load has a folder of its own, which no other process ever writes to."""
    return f"{FOLDER}/{view}/{new_generation([])}"


def remove_beside(settings: Delta, pipeline: str, view: str) -> None:
    """Remove what loads have left."""
    remove_table(_root(settings, pipeline), f"{FOLDER}/{view}", settings.storage_options)


def load_rows(
    shares: Iterable[pa.Table],
    commit: Mark,
    key: Sequence[str],
    properties: Mapping[str, str],
    storage_options: Mapping[str, str],
) -> int:
    """Make the rows a new table, as a load by Spark would: in files of neighbouring keys. The last commit is ours.

    How many rows there are is the answer.
    """
    from deltalake import DeltaTable, write_deltalake
    from deltalake.exceptions import DeltaError

    options, pieces, count = dict(storage_options) or None, _pieces(shares, key), 0
    first = next(pieces)
    piece: pa.Table | None = first
    try:
        table = DeltaTable.create(commit.path, first.schema, configuration={**properties}, storage_options=options)
        while piece is not None:
            following = next(pieces, None)
            stamped = taken_turn(table, commit) if following is None else None
            write_deltalake(table, piece, mode="append", commit_properties=stamped)
            count, piece = count + piece.num_rows, following
    except (DeltaError, OSError) as error:
        raise refused(commit.stamp.view, error) from None  # its message may quote a row
    return count


def _pieces(shares: Iterable[pa.Table], key: Sequence[str]) -> Iterator[pa.Table]:
    """A file's rows each, sorted; a first one without rows where the first share has none."""
    import pyarrow.compute as pc

    for number, rows in enumerate(shares):
        order = pc.sort_indices(rows, [(name, "ascending") for name in key])
        for start in range(0, max(rows.num_rows, number == 0), ROWS_PER_FILE_MAX):
            yield rows.take(order.slice(start, ROWS_PER_FILE_MAX))


def adopt_files(settings: Delta, pipeline: str, folder: str, commit: Mark, properties: Mapping[str, str]) -> None:
    """Make the files of the table in the folder all that the live table has, in one commit; there may be none yet."""
    from deltalake import DeltaTable, TableFeatures
    from deltalake.exceptions import DeltaError
    from deltalake.fs import DeltaStorageHandler

    view = commit.stamp.view
    root, options = _root(settings, pipeline), dict(settings.storage_options) or None
    try:
        files = DeltaStorageHandler(root, options)
        staged = DeltaTable(f"{root}/{folder}", storage_options=options)
        if not DeltaTable.is_deltatable(commit.path, options):
            DeltaTable.create(commit.path, staged.schema(), configuration={**properties}, storage_options=options)
        live = DeltaTable(commit.path, storage_options=options)
        if NTZ_FEATURE in _features(staged) - _features(live):
            live.alter.add_feature(TableFeatures.TimestampWithoutTimezone, allow_protocol_versions_increase=True)
        stamped = taken_turn(live, commit)
        actions = _adds(files, folder, staged.version())
        for action in actions:
            files.move(f"{folder}/{action.path}", f"{view}/{action.path}")
        live.create_write_transaction(actions, "overwrite", staged.schema(), commit_properties=stamped)
    except (DeltaError, OSError) as error:
        raise refused(view, error) from None


def _adds(files: Any, folder: str, version: int) -> list[Any]:
    """The files that the table has, with the statistics that its log gives them."""
    from deltalake.transaction import AddAction

    live: dict[str, Entry] = {}
    for number in range(version + 1):
        with files.open_input_file(f"{folder}/_delta_log/{number:020d}.json") as log:
            text = log.read().decode()
        take(live, actions_of(text))
    return [
        AddAction(path, add["size"], {}, add["modificationTime"], True, add.get("stats") or "{}")
        for path, add in live.items()
    ]


def _features(table: Any) -> frozenset[str]:
    return frozenset(table.protocol().writer_features or ())


def _root(settings: Delta, pipeline: str) -> str:
    return f"{settings.path.rstrip('/')}/{pipeline}"
