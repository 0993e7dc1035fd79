"""Which declarations are live and which are coming, by files, kept texts and what sinks hold."""

from __future__ import annotations

from collections.abc import Mapping

from jobs.control import Kind as Asked
from jobs.control import Request
from jobs.declarations import chosen, declared_otherwise
from jobs.rebuild.wishes import Wish, wishes
from sinks.spec import Kind, SinkOptions, ViewSpec

RELATIONS: Mapping[str, tuple[str, ...]] = {"above": ("below",), "beside": ("orders",)}


def spec(
    name: str, print_: str, *, sinks: tuple[str, ...] = ("delta",), reads: tuple[str, ...] | None = None
) -> ViewSpec:
    relations = RELATIONS.get(name, ()) if reads is None else reads
    kind = Kind.MIRROR if name == "orders" else Kind.QUERY if relations else Kind.ROWWISE
    options = tuple(SinkOptions(each) for each in sinks)
    return ViewSpec(name, kind, "", "", ("id",), (), ("id",), "", "", options, print_, relations=relations)


def specs(**prints: str) -> dict[str, ViewSpec]:
    return {name: spec(name, print_) for name, print_ in prints.items()}


def prints(live: Mapping[str, ViewSpec]) -> dict[str, str]:
    return {name: each.fingerprint for name, each in live.items()}


FORMER = specs(orders="1", below="1", above="1", beside="1")


def test_a_changed_view_is_coming_and_its_former_declaration_is_live():
    live, groups = chosen(specs(orders="1", below="1", above="1", beside="2"), FORMER, lambda _: True)

    assert prints(live) == {"orders": "1", "below": "1", "above": "1", "beside": "1"}
    assert groups == (("beside",),)


def test_views_that_read_each_other_are_coming_together():
    live, groups = chosen(specs(orders="1", below="2", above="2", beside="2"), FORMER, lambda _: True)

    assert set(prints(live).values()) == {"1"}
    assert sorted(groups) == [("above", "below"), ("beside",)]


def test_what_a_changed_view_reads_for_the_first_time_is_of_its_group_and_so_is_what_reads_it():
    filed = specs(orders="1", below="2", above="1", beside="1") | {
        "above": spec("above", "2", reads=("beside",)),
        "beside": spec("beside", "2"),
        "new": spec("new", "1", reads=("below",)),
    }

    live, groups = chosen(filed, FORMER, lambda _: True)

    assert groups == (("above", "below", "beside", "new"),)
    assert "new" not in live


def test_rows_that_are_of_no_former_declaration_are_replaced_at_once():
    filed = specs(orders="1", below="2", above="2", beside="2")

    live, groups = chosen(filed, FORMER, lambda each: each.name != "below")

    assert prints(live) == {"orders": "1", "below": "2", "above": "2", "beside": "1"}
    assert groups == (("beside",),)


def test_what_has_nothing_beside_is_replaced_at_once():
    filed = FORMER | {"beside": spec("beside", "2", sinks=("kafka",))}

    live, groups = chosen(filed, FORMER, lambda _: True)

    assert live["beside"].fingerprint == "2"
    assert groups == ()


def test_where_a_file_is_wrong_the_former_declaration_goes_on_and_so_do_those_that_read_it():
    live, groups = chosen(specs(orders="1", below="2", beside="1"), FORMER, lambda _: True)

    assert prints(live) == {"orders": "1", "below": "1", "above": "1", "beside": "1"}
    assert groups == ()


def test_a_new_view_is_coming_beside_those_that_are_live():
    filed = FORMER | {"new": spec("new", "1", reads=("below",)), "newer": spec("newer", "1", reads=("new",))}

    live, groups = chosen(filed, FORMER, lambda _: True, {"new", "newer"})

    assert live == FORMER
    assert groups == (("new", "newer"),)


def test_a_new_view_that_live_rows_are_computed_from_is_loaded_at_once():
    """Its rows and its text were lost; those of the view that reads it were not."""
    former = {name: each for name, each in FORMER.items() if name != "below"}

    live, groups = chosen(FORMER, former, lambda _: True, {"below"})

    assert live == FORMER
    assert groups == ()


def test_a_new_view_is_coming_even_where_what_it_reads_is_replaced_at_once():
    """The rows of the changed view were lost, or it was shown before apply was killed."""
    filed = specs(orders="1", below="2", above="2", beside="1")
    filed |= {"new": spec("new", "1", reads=("below",)), "newer": spec("newer", "1", reads=("new", "above"))}

    live, groups = chosen(filed, FORMER, lambda each: each.name != "below", {"new", "newer"})

    assert prints(live) == {"orders": "1", "below": "2", "above": "2", "beside": "1"}
    assert groups == (("new", "newer"),)


def test_a_new_view_that_has_nothing_beside_is_loaded_at_once():
    filed = FORMER | {"new": spec("new", "1", sinks=("kafka",))}

    assert chosen(filed, FORMER, lambda _: True, {"new"}) == (filed, ())


def test_sinks_alone_are_no_other_declaration():
    filed = FORMER | {"beside": spec("beside", "1", sinks=("delta", "cache"))}

    live, groups = chosen(filed, FORMER, lambda _: True)

    assert [option.name for option in live["beside"].sinks] == ["delta", "cache"]
    assert groups == ()


def test_what_is_declared_otherwise_by_now_is_proved_again():
    assert declared_otherwise(specs(a="1", b="1").values(), specs(a="1", b="2", c="1").values()) == [spec("b", "2")]
    moved = spec("b", "1", sinks=("delta", "cache"))
    assert declared_otherwise(specs(a="1", b="1").values(), [*specs(a="1").values(), moved]) == [moved]


def request(name: str, view: str, *, prove: bool = False) -> Request:
    return Request(name, Asked.REBUILD, 0, 60, "test", view=view, prove=prove)


def test_whoever_asks_for_a_changed_view_waits_for_the_change():
    one, two, three = request("r1", "a"), request("r2", "c"), request("r3", "b", prove=True)

    found = wishes([one, two, three], [("a", "b"), ("d",)])

    change = Wish("changed a b", ("a", "b"), (one, three), is_change=True)
    assert list(found.values()) == [change, Wish("r2", ("c",), (two,)), Wish("changed d", ("d",), is_change=True)]
    assert change.prove
