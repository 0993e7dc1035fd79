"""What tells one declaration of a view from another.

In: all that its rows depend on. Out: a digest. Keeps true: it is the same for the same declaration, in any process.
"""

from __future__ import annotations

import hashlib
import json


def fingerprint(value: object) -> str:
    """The digest of a value that JSON can hold."""
    text = json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
