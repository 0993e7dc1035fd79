"""Secrets and certificates that are replaced while the pipeline runs.

In: an error of a pipeline that had worked until then. Out: whether it may heal by itself once files hold the new
secret. At a first start the same error stops the command: then nothing says that it was ever right.
"""

from __future__ import annotations

from typing import Final

from cdc.errors import CdcError

_REPLACED: Final = frozenset(
    {
        "PASSWORD",
        "PASSWORD_FILE",
        "KAFKA_UNAUTHORISED",
        "KAFKA_PROPERTIES",
        "SEARCH_UNAUTHORISED",
        "CACHE_UNAUTHORISED",
        "TLS_CLIENT",
        "TLS_EXPIRED",
        "TLS_FILE",
        "TLS_UNTRUSTED",
    }
)


def may_be_replaced(error: CdcError) -> bool:
    """Whether what is refused is a secret or a certificate, which somebody may be replacing right now."""
    return error.code in _REPLACED
