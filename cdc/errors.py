"""What can go wrong, as types: each error says what happened, its remedy and a stable code for the runbook.

CdcError
 |- ConfigError     the configuration is wrong; raised before any connection (exit 2)
 |- TransientError  try again from the same position, with backoff
 |- RecordError     one record cannot be taken; sinks dead-letter it, capture halts
 |- OperatorError   a person is needed: slot lost, publication missing; stop and keep the slot (exit 3)
 `- ProtocolError   the stream is malformed; halt
"""

from __future__ import annotations


class CdcError(Exception):
    """Base of every error that Afterimage raises on purpose; never raised itself."""

    exit_code = 1
    default_code = "ERROR"

    def __init__(self, message: str, hint: str | None = None, *, code: str | None = None) -> None:
        if type(self) is CdcError:
            raise TypeError("raise one of CdcError's children")
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.code = code or self.default_code


class ConfigError(CdcError):
    """The configuration or the command line is wrong."""

    exit_code = 2
    default_code = "CONFIG"


class TransientError(CdcError):
    """A server is away or overloaded: nothing is wrong with the data or the position."""

    default_code = "UNAVAILABLE"


class RecordError(CdcError):
    """One record cannot be represented or is refused by a sink."""

    default_code = "RECORD"


class OperatorError(CdcError):
    """The pipeline must stop until a person has acted; the hint says how."""

    exit_code = 3
    default_code = "OPERATOR"


class ProtocolError(CdcError):
    """Bytes that the protocol does not allow."""

    default_code = "PROTOCOL"
