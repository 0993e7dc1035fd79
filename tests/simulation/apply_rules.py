"""The rules of apply and of its sinks, broken."""

from __future__ import annotations

from typing import Final

import jobs.batch
import jobs.machine
from tests.simulation import applying, broker, sinks, stores, views
from tests.simulation.mutants import broken

APPLY: Final = (
    broken(
        "leave the offsets where they are short of the boundary",
        jobs.batch,
        "_position",
        "end if ceiling_lsn == boundary.lsn else start",
        "end",
        hold_asked=0.6,
    ),
    broken(
        "replace from offset zero",
        jobs.batch,
        "_replace",
        "start = (0,) * len(end)",
        "start = tuple(at // 2 for at in end)",
    ),
    broken(
        "replace what is stale",
        jobs.batch,
        "_is_stale",
        "> STALE_US",
        "> 1 << 60",
        the_night_passes=0.3,
        records_compacted=0.9,
    ),
    broken(
        "go on from each sink's own position",
        applying,
        "apply_machine",
        "state = _State(dict((yield Locate())))",
        "state = _State(dict((yield Locate()))); furthest = lambda p: p.lsn if p else 0; state.positions = "
        "dict.fromkeys(state.positions, max(state.positions.values(), key=furthest, default=None))",
    ),
    broken(
        "record a batch when it is done",
        applying,
        "apply_machine",
        "yield from _run(state, tasks)\n",
        "yield Record({t.target: t.position for t in tasks}, {}); yield from _run(state, tasks)\n",
    ),
    broken("hold only what is settled", jobs.machine, "_ceiling", " or not settled", "", hold_asked=0.5),
    broken(
        "take all sinks to one LSN",
        jobs.machine,
        "plan",
        "position.lsn < ceiling_lsn",
        "position.lsn < ceiling_lsn and target.sink != 'search'",
    ),
    broken(
        "end at the boundary's offsets",
        applying.ApplyProcess,
        "_newest_boundary",
        "return self._boundary",
        "return self._boundary and __import__('dataclasses').replace(self._boundary, ends=self._broker.ends())",
    ),
    broken(
        "read nothing beyond the boundary",
        views.Range,
        "holds",
        "record.lsn < self.ceiling",
        "True",
        hold_asked=0.2,
    ),
    broken("read committed records only", broker.Partition, "committed", "entry.transaction.committed", "True"),
    broken(
        "wait until the range is stable",
        applying,
        "read_changes",
        "partition.stable_end < wanted.end[number]",
        "False",
        commit_markers_late=0.6,
    ),
    broken("let a truncate empty a view", applying.ApplyProcess, "_task", " or read.truncated", ""),
    broken(
        "write the rows before the position",
        sinks.VersionedSink,
        "write",
        "yield from self._put_all(generation, changes)",
        "self._move(generation, read, position)\n    yield from self._put_all(generation, changes)",
    ),
    broken(
        "switch to a generation when it is loaded",
        sinks.VersionedSink,
        "replace",
        "yield from self._put_all(generation, rows)",
        "self._stores.switch(self._target, generation, position, self._declared)\n"
        "    yield from self._put_all(generation, rows)",
    ),
    broken(
        "compare versions of rows",
        stores.Stores,
        "put",
        "lsn >= held.rows[key][0]",
        "True",
        store_request_repeated=0.1,
        store_request_late=0.1,
    ),
    broken(
        "leave a tombstone",
        stores.Stores,
        "put",
        "held.rows[key] = (lsn, row)",
        "held.rows.update({key: (lsn, row)}) if row is not None else held.rows.pop(key, None)",
        store_request_repeated=0.1,
        store_request_late=0.1,
    ),
    broken(
        "compare the position before it is moved",
        stores.Stores,
        "move",
        " or store.standing != read",
        "",
        store_request_late=0.4,
    ),
    broken(
        "write only to the generation that was located",
        sinks.VersionedSink,
        "_require",
        "generation, standing = self._known",
        "generation, standing = self._known = (self._store.live, self._store.standing)",
        apply_frozen_while_another_takes_over=0.02,
    ),
    broken(
        "take a Delta table's turn once",
        sinks.DeltaSink,
        "_commit",
        "base is not None and base.turn > self._turn",
        "False",
        apply_frozen_while_another_takes_over=0.02,
    ),
    broken(
        "commit on the Delta version that was read",
        sinks.DeltaSink,
        "_commit",
        "latest is not base or",
        "",
        apply_frozen_while_another_takes_over=0.02,
    ),
)
