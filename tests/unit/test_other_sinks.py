"""Which sinks go on, and which are loaded beside, where a view's header names others."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from jobs.batch import Target
from jobs.machine import Rebuild
from jobs.other_sinks import live_sinks
from jobs.pipeline import held_tables
from jobs.rebuild.unshown import declared
from jobs.twins import twin_name
from sinks.delta import DeltaSink
from sinks.history.sink import HistorySink
from sinks.spec import Kind, SinkOptions, ViewSpec

TABLE, SEARCH, CACHE, TOPIC = (SinkOptions(name) for name in ("delta", "search", "cache", "kafka"))
MAPPED = SinkOptions("search", {"mapping": '{"status": {"type": "keyword"}}'})
EXPIRING = SinkOptions("cache", {"ttl": "60"})
SHORT = SinkOptions("cache", {"ttl": "5"})


def view(*sinks: SinkOptions) -> ViewSpec:
    return ViewSpec("v", Kind.ROWWISE, "", "", ("id",), (), ("id",), "", "", sinks, "1")


def live(filed: tuple[SinkOptions, ...], former: tuple[SinkOptions, ...], hold: Collection[SinkOptions]) -> set[str]:
    found = live_sinks(view(*filed), view(*former), lambda _, option: option in hold)
    return {f"{each.name}{dict(each.options)}" if each.options else each.name for each in found}


def test_a_sink_more_is_loaded_beside_and_the_others_go_on():
    assert live((TABLE, SEARCH, CACHE), (TABLE, SEARCH), [TABLE, SEARCH]) == {"delta", "search"}


def test_a_changed_option_leaves_the_former_one_live():
    assert live((TABLE, EXPIRING), (TABLE, CACHE), [TABLE, CACHE]) == {"delta", "cache"}


def test_what_the_file_says_is_live_where_its_rows_are_there():
    """Apply was killed between the swaps of two sinks."""
    assert live((TABLE, MAPPED, EXPIRING), (TABLE, SEARCH, CACHE), [TABLE, MAPPED, CACHE]) == {
        "delta",
        f"search{dict(MAPPED.options)}",
        "cache",
    }


def test_a_sink_less_is_gone_at_once_and_nothing_is_looked_at():
    def stands(_: ViewSpec, option: SinkOptions) -> bool:
        raise AssertionError(option)

    filed = view(TABLE)
    assert live_sinks(filed, view(TABLE, SEARCH), stands) == filed.sinks


def test_a_sink_in_the_place_of_another_is_shown_when_that_one_goes():
    assert live((SEARCH,), (CACHE,), [CACHE]) == {"cache"}


def test_where_the_table_is_lost_all_is_loaded_at_once():
    assert live((TABLE, SEARCH, CACHE), (TABLE, SEARCH), [SEARCH]) == {"delta", "search", "cache"}
    assert live((MAPPED,), (SEARCH,), []) == {f"search{dict(MAPPED.options)}"}


def test_a_table_more_is_loaded_beside():
    assert live((TABLE, SEARCH), (SEARCH,), [SEARCH]) == {"search"}


def test_a_topic_is_the_files_at_once():
    assert live((TABLE, TOPIC), (TABLE,), [TABLE]) == {"delta", "kafka"}
    assert live((TABLE, CACHE, TOPIC), (TABLE,), [TABLE]) == {"delta", "kafka"}


def test_what_was_never_shown_leaves_what_was():
    """The option was edited twice before anything was shown of it."""
    assert live((TABLE, SHORT), (TABLE, CACHE), [TABLE, CACHE]) == {"delta", "cache"}
    assert live((TABLE, SHORT), (TABLE, CACHE), [TABLE, EXPIRING]) == {"delta"}


@pytest.mark.parametrize("kind", ["row-wise", "query"])
def test_a_twin_of_a_sink_alone_follows_the_live_table(kind: str):
    level = 2 if kind == "query" else 0
    table = Target("v", "delta", "", max(level - 1, 0), ("t",), ("orders",) if level else ())
    index = Target("v", "search", "", level, ("t",), ("v",) if level else ())
    wanted = Rebuild("v", becomes=(table, index), stays=frozenset({table}))

    [(live_one, twin)] = wanted.twins([]).items()

    assert live_one == index
    assert (twin.view, twin.reads) == (twin_name("v"), index.reads)
    assert set(Rebuild("v", becomes=(table, index)).twins([])) == {table, index}


def test_a_history_is_not_taken_for_its_table():
    table, log = DeltaSink.__new__(DeltaSink), HistorySink.__new__(HistorySink)

    assert held_tables({Target("orders", "delta", "t"): table, Target("orders", "history", "t"): log}) == {
        "orders": table
    }


def test_another_option_is_another_declaration_to_try():
    assert declared([view(TABLE, SHORT)]) != declared([view(TABLE, EXPIRING)])
