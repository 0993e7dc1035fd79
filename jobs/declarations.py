"""Which declaration each view's rows follow: its file's, or a former one until what the file says has been loaded.

In: view files, the texts kept of live views, the tables, and the sinks, which alone know whose rows they hold. Out:
specs that are live, and specs that are coming. Keeps true: a live query reads live views, a coming one of the same
group coming ones; what can't go on, or has nothing beside, is its file's at once, and is replaced inside a batch, as
everything is before the first batch.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from cdc.errors import ConfigError
from cdc.lsn import format_lsn
from cdc.schema_log import read_schemas
from cdc.settings import Settings
from jobs.batch import TABLE
from jobs.control.declared import declared_texts
from jobs.declare import OnError, declare_views, mirror_spec, view_texts, with_bodies
from jobs.declare.source import Source
from jobs.ledger import Ledger
from jobs.other_sinks import with_other_sinks
from jobs.tables import TableInfo
from jobs.twins import SINKS
from sinks.history.columns import HISTORY
from sinks.registry import make_sink
from sinks.spec import Kind, SinkOptions, ViewSpec

Tables = Mapping[tuple[str, str], TableInfo]
Specs = Mapping[str, ViewSpec]


@dataclass(frozen=True, slots=True)
class Declarations:
    """Mirrors and declared views, by name; `texts` are the files of the live ones, to the letter.

    `groups` are the views whose file's declaration is `coming`, those that read each other together. New ones among
    them are not live yet. Where only sinks are coming, the view is live with the others.
    """

    live: Specs
    texts: Mapping[str, str]
    coming: Specs = field(default_factory=dict)
    coming_texts: Mapping[str, str] = field(default_factory=dict)
    groups: tuple[tuple[str, ...], ...] = ()


def captured_tables(settings: Settings) -> dict[tuple[str, str], TableInfo]:
    """The tables that the topics hold, by schema and name."""
    schemas = read_schemas(settings.kafka, settings.pipeline)
    return {key: TableInfo.from_json(record.value()) for key, record in schemas.items()}


def declared(settings: Settings, tables: Tables, on_error: OnError | None = None) -> dict[str, ViewSpec]:
    """A mirror of every table and every declared view, by name, as the files say; nothing before anything is captured.

    With `on_error`, a view that is wrong is told and left out.
    """
    return _with_tables(_specs(settings, tables, _files(settings, tables, on_error), on_error)) if tables else {}


def live_views(settings: Settings, tables: Tables, on_error: OnError | None = None) -> dict[str, ViewSpec]:
    """The same as the rows in the sinks have it: what they can be compared with."""
    return dict(declarations(settings, tables, on_error).live)


def declared_otherwise(proved: Iterable[ViewSpec], now: Iterable[ViewSpec]) -> list[ViewSpec]:
    """Those whose rows follow another declaration by now, or are kept elsewhere."""
    known = {spec.name: _kept_as(spec) for spec in proved}
    return [spec for spec in now if known.get(spec.name, _kept_as(spec)) != _kept_as(spec)]


def _kept_as(spec: ViewSpec) -> tuple[str, dict[str, SinkOptions]]:
    return spec.fingerprint, {option.name: option for option in spec.sinks}


def declarations(
    settings: Settings, tables: Tables, on_error: OnError | None = None, *, as_filed: bool = False
) -> Declarations:
    """Both, by what the sinks hold; `as_filed` takes every file as it is."""
    if not tables:
        return Declarations({}, {})
    files = _files(settings, tables, on_error)
    filed = _specs(settings, tables, files, on_error)
    texts = {name: source.text for name, source in files.items() if name in filed}
    shown = {} if as_filed else declared_texts(settings)
    kept = {name: Source(files[name].name, text) for name, text in shown.items() if _is_other(files.get(name), text)}
    stands = partial(_stands, settings)
    new = set() if as_filed else new_views(_with_tables(filed), shown, stands, lambda: _are_live(settings))
    if not kept and not new:
        return Declarations(_with_tables(filed), texts)
    known = _former(settings, tables, {**files, **kept})
    former = _with_tables({name: spec for name, spec in known.items() if spec.file is None or name in shown})
    live, groups = chosen(_with_tables(filed), former, stands, new)
    told = {name: former[name] for name in kept if name in former}
    others = with_other_sinks(live, told, lambda spec, option: _holds(settings, spec, option))
    live, groups = live | others, (*groups, *((name,) for name in others))
    coming = {name: filed[name] for group in groups for name in group}
    read = {relation for spec in (*live.values(), *coming.values()) for relation in spec.relations}
    followed = {name: kept[name].text for name in kept if name in others or live.get(name) is former.get(name)}
    return Declarations(
        _with_tables(live, read),
        {name: text for name, text in {**texts, **followed}.items() if name in live},
        _with_tables(coming, read),
        {name: files[name].text for name in coming},
        groups,
    )


def chosen(
    filed: Specs, former: Specs, stands: Callable[[ViewSpec], bool], new: Collection[str] = ()
) -> tuple[dict[str, ViewSpec], tuple[tuple[str, ...], ...]]:
    """What is live, and the groups that are coming; nothing has ever been shown of the `new` ones."""
    going = [group for group in groups_of(filed, former, new) if _goes_on(group, filed, former, stands)]
    live = _beside(going, filed, former)
    # Where changed views are replaced at once, new ones that read them need not be.
    left = live.keys() & new
    rest = {name: spec for name, spec in live.items() if name not in left}
    apart = [group for group in groups_of(filed, rest, left) if group <= left]
    going += [group for group in apart if _goes_on(group, filed, rest, stands)]
    return _beside(going, filed, former), tuple(tuple(sorted(group)) for group in going if filed.keys() >= group)


def _beside(going: Iterable[Collection[str]], filed: Specs, former: Specs) -> dict[str, ViewSpec]:
    """What is live while these groups are coming."""
    is_former = {name for group in going for name in group}
    live = {name: spec for name, spec in filed.items() if name not in is_former}
    return live | {name: former[name] for name in is_former if name in former}


def new_views(
    filed: Specs, shown: Collection[str], stands: Callable[[ViewSpec], bool], are_live: Callable[[], bool]
) -> set[str]:
    """Those of which nothing has been shown yet, while others are live."""
    untold = [spec for name, spec in filed.items() if spec.kind is not Kind.MIRROR and name not in shown]
    return {spec.name for spec in untold if not stands(spec)} if untold and are_live() else set()


def groups_of(filed: Specs, former: Specs, new: Collection[str] = ()) -> list[frozenset[str]]:
    """The views whose declaration is another one now, or that are new, those together that read each other."""
    changed = {
        name
        for name, spec in former.items()
        if spec.kind is not Kind.MIRROR and (name not in filed or filed[name].fingerprint != spec.fingerprint)
    } | {*new}
    while more := {name for name in filed.keys() - former.keys() - changed if changed & {*filed[name].relations}}:
        changed |= more
    groups: list[frozenset[str]] = []
    for name in sorted(changed):
        read = {relation for specs in (filed, former) if name in specs for relation in specs[name].relations}
        linked = [group for group in groups if group & read or name in _readers(group, filed, former)]
        groups = [group for group in groups if group not in linked] + [frozenset({name}).union(*linked)]
    return groups


def _readers(group: Collection[str], filed: Specs, former: Specs) -> set[str]:
    """What the views of the group read."""
    return {each for specs in (filed, former) for name in group if name in specs for each in specs[name].relations}


def _goes_on(group: Collection[str], filed: Specs, former: Specs, stands: Callable[[ViewSpec], bool]) -> bool:
    """Whether the live rows of all of them follow the former declarations, and the new ones can be loaded beside."""
    loads = all(SINKS & {option.name for option in filed[name].sinks} for name in group if name in filed)
    # Rows that are live are computed from what they read, which has to be live too.
    is_unread = group - former.keys() <= filed.keys() - {*_relations(former)}
    return loads and is_unread and all(stands(former[name]) for name in group if name in former)


def _are_live(settings: Settings) -> bool:
    """Whether a batch has ended that loaded views."""
    return Ledger(settings.delta_root, settings.delta.storage_options).read() is not None


def _stands(settings: Settings, spec: ViewSpec) -> bool:
    """Whether the sink that leads the others holds rows of this declaration."""
    found = sorted(
        (each for each in spec.sinks if each.name in SINKS), key=lambda each: (each.name != TABLE, each.name)
    )
    return bool(found) and _holds(settings, spec, found[0])


def _holds(settings: Settings, spec: ViewSpec, option: SinkOptions) -> bool:
    """Whether this sink of the view holds rows of this declaration."""
    return make_sink(option, spec, settings).position() is not None


def _is_other(file: Source | None, text: str) -> bool:
    return file is not None and file.text != text


def _former(settings: Settings, tables: Tables, texts: Mapping[str, Source]) -> dict[str, ViewSpec]:
    """As they were declared; without those that today's tables, or this version, would refuse."""
    try:
        return _specs(settings, tables, texts, lambda *_: None)
    except ConfigError:
        return {}


def _files(settings: Settings, tables: Tables, on_error: OnError | None) -> dict[str, Source]:
    """The texts of the views, those that LIMIT is cut from among them."""
    return with_bodies(view_texts(settings.views, on_error), tables, on_error)


def _specs(
    settings: Settings, tables: Tables, texts: Mapping[str, Source], on_error: OnError | None
) -> dict[str, ViewSpec]:
    mirrors = [_with_history(mirror_spec(table), table, settings) for table in tables.values()]

    def check(option: SinkOptions, spec: ViewSpec) -> object:
        return make_sink(option, spec, settings)

    return {spec.name: spec for spec in (*mirrors, *declare_views(texts, tables, on_error, check=check))}


def _with_tables(specs: Specs, read: Collection[str] | None = None) -> dict[str, ViewSpec]:
    """A query's rows, and those that a query reads, are kept in Delta whatever other sinks there are."""
    relations = set(_relations(specs)) if read is None else read
    return {
        name: spec
        if any(option.name == TABLE for option in spec.sinks) or not (name in relations or spec.kind is Kind.QUERY)
        else replace(spec, sinks=(SinkOptions(TABLE), *spec.sinks))
        for name, spec in specs.items()
    }


def _relations(specs: Specs) -> Iterator[str]:
    return (relation for spec in specs.values() for relation in spec.relations)


def _with_history(spec: ViewSpec, table: TableInfo, settings: Settings) -> ViewSpec:
    """The mirror with one sink more, if the configuration wants a history of its table."""
    if not settings.history.covers(table.schema, table.table):
        return spec
    return replace(spec, sinks=(*spec.sinks, SinkOptions(HISTORY, {"shape_lsn": format_lsn(table.lsn)})))
