"""What apply writes down once a batch is done: where each sink stands, and what its rows are declared as.

In: the session's sinks, and the machine's positions. Out: the ledger, what the control topic keeps of views, metrics.
Keeps true: nothing is vouched for before it is durable; the ledger keeps the rows of views whose files are gone until
they are dropped; a live view's text is kept after the ledger that names its rows.
"""

from __future__ import annotations

from collections.abc import Mapping

from cdc import metrics
from cdc.settings import Settings
from jobs.batch import Target
from jobs.control import ControlServer
from jobs.control.declared import DeclaredViews
from jobs.control.stopped import StoppedViews
from jobs.ledger import Ledger, LedgerRow, LedgerState
from jobs.left_behind import tell_left
from jobs.pipeline import Pipeline
from jobs.recording import About, folders, recorded
from jobs.refresh.refresher import Refresher
from jobs.unfit import LackingRows
from jobs.view_files import undeclared
from sinks.protocol import Position


class Vouching:
    """Of one apply process; `begin` a session, or a pipeline that was swapped in."""

    def __init__(self, settings: Settings, control: ControlServer, ledger: Ledger, lacking: LackingRows) -> None:
        self._settings = settings
        self._control = control
        self._ledger = ledger
        self._lacking = lacking
        self._standing = StoppedViews(settings)
        self._declared = DeclaredViews(settings)
        self._undeclared: dict[str, LedgerRow] = {}
        self._session: tuple[Refresher, Pipeline] | None = None

    def begin(self, queries: Refresher, pipeline: Pipeline) -> None:
        """From here on these are vouched for."""
        self._session = queries, pipeline

    def located(self, ledger: LedgerState | None) -> None:
        """Know the rows of views that nothing declares any more."""
        _, pipeline = self._present
        self._undeclared = undeclared(folders(pipeline.sinks.values()), ledger)

    def dropped(self, view: str) -> None:
        """Nothing is left of it; or, of one that is live, of what its file names no more."""
        self._undeclared.pop(view, None)
        if self._session is None or view not in self._session[1].specs:
            metrics.dropped(view)
            self._declared.forget(view)

    def record(self, positions: Mapping[Target, Position]) -> int:
        """All sinks stand there; the LSN that they have got to."""
        queries, pipeline = self._present
        if any(target.is_derived for target in pipeline.sinks):
            self._standing.tell(self._control, queries.failing.troubles)
        self.vouch(positions)
        for target, position in self._marked(positions).items():
            metrics.VIEW_LSN.labels(target.view, target.sink).set(position.lsn)
            metrics.VIEW_UNFIT_ROWS.labels(target.view, target.sink).set(len(position.unfit))
        # First what was left behind: once the new text is kept, nothing tells of the former one.
        tell_left(self._settings, self._control, self._declared.former(pipeline.texts), pipeline.specs)
        self._declared.tell(self._control, pipeline.texts)
        return max((position.lsn for position in positions.values()), default=0)

    def vouch(self, positions: Mapping[Target, Position]) -> None:
        """The ledger names the versions that show these positions."""
        queries, pipeline = self._present
        refreshed = queries.refreshed
        about = {name: About(refreshed.get(name, ""), spec.postgres_sql) for name, spec in pipeline.specs.items()}
        rows = recorded(pipeline.sinks, self._marked(positions), about)
        if rows:
            known = {row.name for row in rows}
            self._ledger.write([*rows, *(row for name, row in self._undeclared.items() if name not in known)])

    def _marked(self, positions: Mapping[Target, Position]) -> dict[Target, Position]:
        """With what each lacks, and with what a query's rows were computed from."""
        queries, _ = self._present
        return {at: queries.marked(at, self._lacking.marked(at, position)) for at, position in positions.items()}

    @property
    def _present(self) -> tuple[Refresher, Pipeline]:
        assert self._session is not None
        return self._session
