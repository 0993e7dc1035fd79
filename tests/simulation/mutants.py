"""Small breakages of the protocol's rules, one at a time, in the code under test or in the models' drivers.

Each replaces one piece of one function's text; the simulation has to notice. A mutant whose text is gone no longer fits the
code and fails by name.
"""

from __future__ import annotations

import __future__

import inspect
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, Final

import pytest

import cdc.machine
import cdc.progress
import jobs.batch
import jobs.machine
from tests.simulation import applying, broker, capturing, sinks, stores, views

MACHINE: Final = cdc.machine.CaptureMachine


@dataclass(frozen=True, slots=True)
class Edit:
    """In the function `name` of `owner`, `old` (which is there once) becomes `new`."""

    owner: Any
    name: str
    old: str
    new: str

    def apply(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Put the edited function in the place of the real one."""
        held = inspect.getattr_static(self.owner, self.name)
        function = held.fget if isinstance(held, property) else held
        source = textwrap.dedent(inspect.getsource(function))
        assert source.count(self.old) == 1, f"{self.name} does not hold {self.old!r} once"
        made: dict[str, Any] = {}
        code = compile(source.replace(self.old, self.new), "<mutant>", "exec", __future__.annotations.compiler_flag)
        exec(code, function.__globals__, made)
        monkeypatch.setattr(self.owner, self.name, made[self.name])


@dataclass(frozen=True, slots=True)
class Mutant:
    """One broken rule; `faults` are made more likely where it shows only with them."""

    rule: str
    edits: tuple[Edit, ...]
    faults: Mapping[str, float] = field(default_factory=dict)


def broken(rule: str, owner: Any, name: str, old: str, new: str, **faults: float) -> Mutant:
    """A mutant of one edit; faults are given with _ for a space."""
    named = {kind.replace("_", " "): rate for kind, rate in faults.items()}
    return Mutant(rule, (Edit(owner, name, old, new),), named)


CAPTURE: Final = (
    broken(
        "confirm only after the commit",
        MACHINE, "_commit", "yield Commit(self.progress)", "yield Confirm(self.progress.lsn); yield Commit(self.progress)",
    ),
    broken(
        "confirm what is committed, not what was received",
        MACHINE, "_take", "yield Confirm(self.progress.lsn)", "yield Confirm(message.end_lsn)",
    ),
    broken("skip what the topics hold", MACHINE, "_take", "transaction.commit_lsn >= self.progress.lsn", "True"),
    broken("skip no more than that", MACHINE, "_take", ">= self.progress.lsn", "> self.progress.lsn"),
    broken(
        "take no keepalive's position inside a transaction",
        MACHINE, "_take", "not self._assembler.in_transaction", "True",
    ),
    broken(
        "never go back to an older position",
        MACHINE, "_take", "max(self._batch.reached, message.end_lsn)", "message.end_lsn", capture_killed=0.05,
    ),
    broken("skip the changes of a part", MACHINE, "_take_part", "return part.changes", "return 0"),
    broken("skip no change behind a part", MACHINE, "_publish", "if index < done", "if done and index <= done"),
    broken("say in the record that it is a part", MACHINE, "_next", "part=part", "part=None"),
    broken(
        "write no boundary before a transaction begun is whole",
        MACHINE, "_due", " and self._part is None", "",
    ),
    broken("write down an idle position", MACHINE, "_due", "moved = ", "return False\n    moved = "),
    broken(
        "count every chunk",
        MACHINE, "_flush", "add_checksums(self._batch.checksum, checksum(self._batch.buffer))", "checksum(self._batch.buffer)",
    ),
    broken("keep the ends of what was not touched", cdc.machine, "_merged", "new.get(partition, end)", "new.get(partition, 0)"),
    broken(
        "announce a shape before its rows",
        MACHINE, "_encoder", "self._announced.get(relation.oid) != relation", "False",
    ),
    broken("a part is no boundary", cdc.progress.Progress, "is_boundary", "Kind.IDLE)", "Kind.IDLE, Kind.PART)"),
    broken(
        "a snapshot's piece is no boundary",
        cdc.progress.Progress, "is_boundary", "Kind.IDLE)", "Kind.IDLE, Kind.SNAPSHOT)",
    ),
    broken(
        "take an interrupted snapshot again",
        capturing, "decide_start", "return Start.SNAPSHOT_AGAIN", "return Start.STREAM",
    ),
    broken(
        "empty the topics before a snapshot is taken again",
        capturing.CaptureProcess, "_recreate_topics", "self._broker.recreate_tables()", "pass",
    ),
    broken("fence older producers", broker.Broker, "take_over", "self._epoch += 1", "pass", commit_request_late=0.2),
    broken(
        "abort what a dead producer left open",
        broker.Broker, "take_over", "self._open is not None", "False",
    ),
    broken(
        "read the progress after taking over",
        capturing.CaptureProcess, "_session",
        "yield from self._take_over()\n    progress = self._newest()",
        "progress = self._newest()\n    yield from self._take_over()",
        commit_markers_late=0.5,
    ),
    broken(
        "throw a producer away whose commit timed out",
        capturing.CaptureProcess, "_commit",
        "self._publisher.commit(KafkaRecord(PROGRESS, 0, PROGRESS_KEY, progress.to_bytes()))",
        "record = KafkaRecord(PROGRESS, 0, PROGRESS_KEY, progress.to_bytes())\n"
        "    try:\n        self._publisher.commit(record)\n"
        "    except TransientError:\n        self._publisher.forget()",
    ),
    broken(
        "keep the progress record in the transaction",
        broker.SimulatedPublisher, "commit",
        "self._queue.append(progress)",
        "self.forget(); self._queue.append(progress)",
    ),
)

APPLY: Final = (
    broken(
        "leave the offsets where they are short of the boundary",
        jobs.batch, "_position", "end if ceiling_lsn == boundary.lsn else start", "end", hold_asked=0.2,
    ),
    broken("replace from offset zero", jobs.batch, "_replace", "start = (0,) * len(end)", "start = tuple(e // 2 for e in end)"),
    broken("replace what is stale", jobs.batch, "_is_stale", "> STALE_US", "> 1 << 60",
           half_a_day_passes=0.1, records_compacted=0.3),
    broken("go on from each sink's own position", applying, "apply_machine", "dict((yield Locate()))",
           "dict((yield Locate())); "
           "positions = dict.fromkeys(positions, max(positions.values(), key=lambda p: p.lsn if p else 0))"),
    broken("record a batch when it is done", applying, "apply_machine",
           "yield Run(tasks)\n", "yield Record({t.target: t.position for t in tasks}, {})\n            yield Run(tasks)\n"),
    broken("hold only what is settled", jobs.machine, "_ceiling", " or not settled", "", hold_asked=0.2),
    broken("take all sinks to one LSN", jobs.machine, "plan", "position.lsn < ceiling_lsn",
           "position.lsn < ceiling_lsn and target.sink != 'search'"),
    broken("end at the boundary's offsets", applying.ApplyProcess, "_newest_boundary",
           "return self._boundary",
           "return self._boundary and __import__('dataclasses').replace(self._boundary, ends=self._broker.ends())"),
    broken("read nothing beyond the boundary", views.Range, "holds",
           "(record.lsn < self.ceiling or (snapshot and record.lsn == self.ceiling))", "True", hold_asked=0.2),
    broken("read committed records only", broker.Partition, "committed", "entry.transaction.committed", "True"),
    broken("wait until the range is stable", applying, "read_changes", "partition.stable_end < wanted.end[number]", "False",
           commit_markers_late=0.6),
    broken("let a truncate empty a view", applying.ApplyProcess, "_task", " or read.truncated", ""),
    broken("write the rows before the position", sinks.VersionedSink, "write",
           "yield from self._put_all(generation, changes)",
           "self._move(generation, read, position)\n    yield from self._put_all(generation, changes)"),
    broken("switch to a generation when it is loaded", sinks.VersionedSink, "replace",
           "yield from self._put_all(generation, rows)",
           "self._stores.switch(self._target, generation, position)\n    yield from self._put_all(generation, rows)"),
    broken("compare versions of rows", stores.Stores, "put", "lsn >= held.rows[key][0]", "True",
           store_request_repeated=0.1, store_request_late=0.1),
    broken("leave a tombstone", stores.Stores, "put", "held.rows[key] = (lsn, row)",
           "held.rows.update({key: (lsn, row)}) if row is not None else held.rows.pop(key, None)",
           store_request_repeated=0.1, store_request_late=0.1),
    broken("compare the position before it is moved", stores.Stores, "move", " or store.standing != read", "",
           store_request_late=0.1),
    broken("write only to the generation that was located", sinks.VersionedSink, "_require",
           "generation, standing = self._known", "generation, standing = self._known = self._store.live, self._store.standing",
           apply_frozen_while_another_takes_over=0.02),
    broken("pass over a Delta commit that was made", sinks.DeltaSink, "_is_done",
           "base is None or base.ids.get(generation, -1) < position.lsn", "True", apply_frozen_while_another_takes_over=0.02),
    broken("write only to the Delta table that was located", sinks.DeltaSink, "write",
           " or base.generation != self._generation", "", apply_frozen_while_another_takes_over=0.02),
    broken("commit on the Delta version that was read", sinks.DeltaSink, "_commit",
           "latest is not base or", "", apply_frozen_while_another_takes_over=0.02),
)  # fmt: skip
