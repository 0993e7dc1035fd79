"""What an assembler makes of payloads, for tests about rows."""

from __future__ import annotations

from collections.abc import Iterable

from cdc.assembler import Assembler
from cdc.changes import Change
from cdc.transaction import Transaction


def transactions(assembler: Assembler, payloads: Iterable[bytes]) -> list[Transaction]:
    """The transactions that these messages complete; nothing else may come of them."""
    fed = [assembler.feed(payload) for payload in payloads]
    done = [transaction for transaction in fed if isinstance(transaction, Transaction)]
    assert len(done) == sum(each is not None for each in fed)
    return done


def row_changes(transaction: Transaction) -> list[Change]:
    """Its changes, without logical messages."""
    return [change for change in transaction.changes if isinstance(change, Change)]
