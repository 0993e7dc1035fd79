"""The keys that topics hold and a digest of each one's row, on disk: a topic's state may be as large as its table.

In: images in the order of the log, then keys as the source has them. Out: what differs. Keeps true: memory stays within
the cache's size; the file has no name once it is open, so no crash leaves it behind.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from cdc.errors import OperatorError
from cdc.recover.image import Absence, Image

_CACHE_KIB: Final = 48 << 10
_VARIABLES_MAX: Final = 500

Bucket = tuple[str, int]
"""A topic and one of its partitions."""


class HeldKeys:
    """Fold first, compare then; each key is compared once."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / "recover.sqlite"
        with _translated(folder):
            path.unlink(missing_ok=True)
            self._store = sqlite3.connect(path, isolation_level=None)
            self._store.execute("PRAGMA journal_mode = OFF")
            self._store.execute("PRAGMA synchronous = OFF")
            self._store.execute("PRAGMA temp_store = MEMORY")
            self._store.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
            self._store.execute("CREATE TABLE opened (x)")
        path.unlink()
        self._folder = folder
        self._tables: dict[Bucket, str] = {}

    def close(self) -> None:
        """Give the disk back."""
        self._store.close()

    def fold(self, bucket: Bucket, images: Sequence[tuple[bytes, Image]]) -> None:
        """Take some records of one partition, in their order."""
        table = self._table(bucket)
        newest: dict[bytes, Image] = {}
        with self._writing():
            for key, image in images:
                if image is Absence.EMPTIED:
                    newest.clear()
                    self._store.execute(f"DELETE FROM {table}")  # noqa: S608  a name made here
                else:
                    newest[key] = image
            present = [(key, image) for key, image in newest.items() if not isinstance(image, Absence)]
            gone = [(key,) for key, image in newest.items() if image is Absence.GONE]
            self._store.executemany(f"INSERT OR REPLACE INTO {table} VALUES (?, ?)", present)  # noqa: S608
            self._store.executemany(f"DELETE FROM {table} WHERE key = ?", gone)  # noqa: S608

    def take(self, bucket: Bucket, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        """The digests that are held of these keys, which are thereby seen."""
        table = self._table(bucket)
        found: dict[bytes, bytes] = {}
        with self._writing():
            for at in range(0, len(keys), _VARIABLES_MAX):
                some = keys[at : at + _VARIABLES_MAX]
                marks = ",".join("?" * len(some))
                query = f"DELETE FROM {table} WHERE key IN ({marks}) RETURNING key, digest"  # noqa: S608
                found.update(self._store.execute(query, some).fetchall())
        return found

    def left(self, topic: str, batch_keys: int) -> Iterator[list[bytes]]:
        """The keys that nobody has taken: the source does not have them."""
        for bucket, table in self._tables.items():
            if bucket[0] != topic:
                continue
            with _translated(self._folder):
                cursor = self._store.execute(f"SELECT key FROM {table} ORDER BY key")  # noqa: S608
                while rows := cursor.fetchmany(batch_keys):
                    yield [key for (key,) in rows]

    def _table(self, bucket: Bucket) -> str:
        name = self._tables.get(bucket)
        if name is None:
            name = self._tables[bucket] = f"held{len(self._tables)}"
            with _translated(self._folder):
                self._store.execute(f"CREATE TABLE {name} (key BLOB PRIMARY KEY, digest BLOB) WITHOUT ROWID")
        return name

    @contextmanager
    def _writing(self) -> Iterator[None]:
        with _translated(self._folder):
            self._store.execute("BEGIN")
            yield
            self._store.execute("COMMIT")


@contextmanager
def _translated(folder: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise OperatorError(
            f"cannot keep the topics' keys under {folder}: {error}",
            "recover needs some 50 bytes and the key for each row: free space there, or point `data` elsewhere",
            code="DISK_FULL",
        ) from error
