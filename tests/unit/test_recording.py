"""A store that is looked at while nothing happens: as it was left, emptied, or written by somebody else."""

from __future__ import annotations

import pytest

from cdc.errors import TransientError
from jobs.batch import Target
from jobs.recording import require_kept
from tests.fakes.memory_sink import MemorySink

TARGET = Target("orders", "search", "shop.public.orders")


def test_a_store_as_it_was_left_is_fine():
    require_kept(TARGET, MemorySink(lsn=100), 100)


@pytest.mark.parametrize(("lsn", "code"), [(None, "SINK_LOST"), (99, "SINK_LOST"), (101, "SINK_OVERTAKEN")])
def test_any_other_is_looked_at_anew(lsn: int | None, code: str):
    with pytest.raises(TransientError) as caught:
        require_kept(TARGET, MemorySink(lsn=lsn), 100)

    assert caught.value.code == code
    assert "orders" in caught.value.message
