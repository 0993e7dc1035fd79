"""What a record of a table's topic says about its key, without parsing its row.

In: a record's key and value as capture writes them. Out: a digest of the row's text, GONE, or EMPTIED. Keeps true: two
rows have one digest only if their JSON is the same text, so a difference in any value is seen.
"""

from __future__ import annotations

import enum
from hashlib import blake2b
from typing import Final

from cdc.envelope import TRUNCATE_KEY
from cdc.errors import OperatorError

_PLAIN: Final = b'{"before":null,"after":'
_BEFORE: Final = b'{"before":{'
# A row is flat and quotes inside its texts are escaped, so these stand at one place of an envelope alone.
_AFTER: Final = b'},"after":'
_SOURCE: Final = b',"source":{'
_NULL: Final = b"null"
_DIGEST_BYTES: Final = 16


class Absence(enum.Enum):
    """Records that leave no row behind."""

    GONE = "the key has no row"
    EMPTIED = "no key of the partition has one"


Image = bytes | Absence


def image_of(key: bytes, value: bytes | None) -> Image:
    """What holds for the key (for EMPTIED: for its whole partition) after this record."""
    if value is None:
        return Absence.GONE
    start = _start_of_after(value)
    end = value.rfind(_SOURCE)
    if start < 0 or end < start:
        raise _malformed()
    after = value[start:end]
    if after == _NULL:
        return Absence.EMPTIED if key == TRUNCATE_KEY else Absence.GONE
    return blake2b(after, digest_size=_DIGEST_BYTES).digest()


def _start_of_after(value: bytes) -> int:
    if value.startswith(_PLAIN):
        return len(_PLAIN)
    if not value.startswith(_BEFORE):
        return -1
    found = value.find(_AFTER)
    return found + len(_AFTER) if found >= 0 else -1


def _malformed() -> OperatorError:
    return OperatorError(
        "a record in a table's topic is not one that capture writes",
        "find out who writes there and forbid it by ACL; then capture anew under another pipeline name",
        code="RECORD_MALFORMED",
    )
