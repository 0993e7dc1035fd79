"""Deletion vectors as Delta's protocol writes them: which rows of a data file are not there any more.

In: positions of rows in files. Out: one file of vectors, and for each the descriptor that a log entry carries. Keeps
true: a vector is whole before any log names it, and a name is never used twice.
"""

from __future__ import annotations

import json
import re
import struct
import uuid
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit
from urllib.request import url2pathname

from sinks.delta.entries import Unreadable, live_files

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyroaring import BitMap

FEATURE: Final = "deletionVectors"
PROPERTY: Final = "delta.enableDeletionVectors"
PREFIX: Final = "deletion_vector_"
_FORMAT: Final = b"\x01"
_MAGIC: Final = 1681511377
_LETTERS: Final = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
"""Z85."""


def write_vectors(folder: str, vectors: Mapping[str, BitMap]) -> dict[str, dict[str, Any]]:
    """All of them in one new file of the table's folder; the descriptors by the same names."""
    if not vectors:
        return {}
    name = uuid.uuid4()
    parts, descriptors = [_FORMAT], {}
    offset = len(_FORMAT)
    for path, rows in vectors.items():
        body = _encoded(rows)
        part = struct.pack(">i", len(body)) + body + struct.pack(">I", zlib.crc32(body))
        descriptors[path] = {
            "storageType": "u",
            "pathOrInlineDv": z85(name.bytes),
            "offset": offset,
            "sizeInBytes": len(body),
            "cardinality": len(rows),
        }
        parts.append(part)
        offset += len(part)
    Path(folder, f"{PREFIX}{name}.bin").write_bytes(b"".join(parts))
    return descriptors


def dead_rows(table: DeltaTable) -> dict[str, BitMap]:
    """The rows of each file that are marked as deleted."""
    if not is_enabled(table):
        return {}
    if table.table_uri.startswith("file://"):
        folder = url2pathname(urlsplit(table.table_uri).path)
        try:
            files = live_files(folder, table.version())
            marked = {path: vector for path, entry in files.items() if (vector := entry.get("deletionVector"))}
            return read_vectors(folder, marked)
        except Unreadable:
            pass
    return expanded(table)


def read_vectors(folder: str, descriptors: Mapping[str, Mapping[str, Any]]) -> dict[str, BitMap]:
    """The vectors of these descriptors, by the same names; Unreadable where they are not such as we write."""
    found, contents = {}, dict[str, bytes]()
    for path, descriptor in descriptors.items():
        name = file_of(descriptor)
        if name is None:
            raise Unreadable
        try:
            if name not in contents:
                contents[name] = Path(folder, name).read_bytes()
            found[path] = _decoded(contents[name], descriptor["offset"], descriptor["sizeInBytes"])
        except (OSError, ValueError, struct.error) as error:
            raise Unreadable from error
    return found


def expanded(table: DeltaTable) -> dict[str, BitMap]:
    """As delta-rs says it, a truth value for each row."""
    import numpy as np
    import pyarrow as pa
    from pyroaring import BitMap

    found: dict[str, BitMap] = {}
    for batch in map(pa.record_batch, table.deletion_vectors()):
        kept = batch.column("selection_vector")
        for at, uri in enumerate(map(str, batch.column("filepath").to_pylist())):
            is_live = kept[at].values.to_numpy(zero_copy_only=False)
            found[uri.rsplit("/", 1)[-1]] = BitMap(np.flatnonzero(~is_live).astype(np.uint32))
    return found


def is_enabled(table: DeltaTable) -> bool:
    """Whether readers of the table have to know of them."""
    return FEATURE in (table.protocol().reader_features or ())


def enable(table: DeltaTable) -> None:
    """From here on, readers have to."""
    from deltalake import TableFeatures

    if not is_enabled(table):
        table.alter.add_feature(TableFeatures.DeletionVectors, allow_protocol_versions_increase=True)
    if table.metadata().configuration.get(PROPERTY) != "true":
        table.alter.set_table_properties({PROPERTY: "true"})


def widened(stats: str | None) -> str:
    """A file's statistics once rows of it are marked: its bounds may be those of rows that are gone.

    As text: numbers must stay what they are to the last digit.
    """
    known = json.loads(stats or "{}")
    if "tightBounds" in known:
        return re.sub(r'("tightBounds"\s*:\s*)true', r"\1false", stats or "")
    return (stats or "{}").rstrip().removesuffix("}") + (',"tightBounds":false}' if known else '"tightBounds":false}')


def file_of(descriptor: Mapping[str, Any]) -> str | None:
    """The file in the table's folder that has the vector; None where it lies elsewhere."""
    if descriptor["storageType"] != "u":
        return None
    *folder, name = descriptor["pathOrInlineDv"][:-20], descriptor["pathOrInlineDv"][-20:]
    return "/".join([*filter(None, folder), f"{PREFIX}{uuid.UUID(bytes=from_z85(name))}.bin"])


def _encoded(rows: BitMap) -> bytes:
    # One bitmap of 32 bits for each value of the upper half: no file has so many rows that there is a second.
    return struct.pack("<iqI", _MAGIC, 1, 0) + rows.serialize()


def _decoded(content: bytes, offset: int, size: int) -> BitMap:
    from pyroaring import BitMap

    body = content[offset + 4 : offset + 4 + size]
    [checksum] = struct.unpack_from(">I", content, offset + 4 + size)
    magic, bitmaps, upper = struct.unpack_from("<iqI", body)
    if (magic, bitmaps, upper) != (_MAGIC, 1, 0) or checksum != zlib.crc32(body):
        raise Unreadable
    return BitMap.deserialize(body[struct.calcsize("<iqI") :])


def z85(data: bytes) -> str:
    """Bytes, four at a time, as five letters each."""
    return "".join(
        _LETTERS[int.from_bytes(data[at : at + 4], "big") // 85**power % 85]
        for at in range(0, len(data), 4)
        for power in (4, 3, 2, 1, 0)
    )


def from_z85(text: str) -> bytes:
    """And back."""
    groups = (text[at : at + 5] for at in range(0, len(text), 5))
    return b"".join(
        sum(_LETTERS.index(letter) * 85 ** (4 - place) for place, letter in enumerate(group)).to_bytes(4, "big")
        for group in groups
    )
