"""`make demo`: the whole of Afterimage in a few minutes, on a sample shop under load.

In: a configuration with embedded servers. Out: exit code 0 only if every step held. Everything that it starts is
stopped again, whatever happens.
"""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from rich.console import Group
from rich.live import Live
from rich.markup import escape
from rich.rule import Rule

from cdc.cli.bringing_up import bring_down, prepare_source, start_servers
from cdc.cli.proving import Wanted, prove_views, show, watched
from cdc.cli.rebuilding import rebuild_view
from cdc.cli.report import Report
from cdc.cli.screen import out
from cdc.cli.services import Service, services
from cdc.cli.standing import Observer
from cdc.cli.status import screen
from cdc.cli.views import live_named_views
from cdc.configuration import load_settings
from cdc.demo.shop import admin_connection
from cdc.demo.summary import Chapter, Summary
from cdc.demo.workload import Workload
from cdc.errors import OperatorError, TransientError
from cdc.lsn import format_lsn, parse_lsn
from jobs.query import run_query
from jobs.query.render import as_table

REBUILT_VIEW: Final = "open_orders"
QUERY: Final = "SELECT status, count(*) AS orders, sum(total) AS total FROM open_orders GROUP BY status ORDER BY status"
_CATCH_UP_S: Final = 180.0
_LOOK_EVERY_S: Final = 0.5


def run_demo(config: Path) -> int:
    """Tell the story; 0 only if all of it held."""
    data = load_settings(config).data
    with suppress(FileNotFoundError, OSError):
        bring_down(config, out)
    shutil.rmtree(data, ignore_errors=True)
    summary = Summary()
    try:
        _Story(config, summary).tell()
    finally:
        out.print(Rule("Stopping everything", style="dim"))
        bring_down(config, out)
    summary.show(out)
    return 0 if summary.held else 1


class _Story:
    def __init__(self, config: Path, summary: Summary) -> None:
        self._config = config
        self._summary = summary
        self._settings = load_settings(config)

    def tell(self) -> None:
        """Chapter by chapter; the first one that fails ends it."""
        self._chapter("Starting Postgres, Kafka, OpenSearch and Valkey", self._start)
        self._workload = Workload(self._settings).start()
        self._observer = Observer(self._settings)
        try:
            self._chapter("Capturing the shop while it is being written to", self._capture)
            self._chapter("Killing capture and apply (SIGKILL), then starting them again", self._kill)
            self._chapter(f"Rebuilding {REBUILT_VIEW} from offset zero", self._rebuild)
            self._chapter("Reading your own write from a Delta table", self._query)
            self._chapter("Proving every view in every sink equal to Postgres", self._prove)
        finally:
            self._observer.close()
            self._workload.stop()
        self._summary.wrote(self._workload.counts)

    def _chapter(self, title: str, tell: Callable[[], str]) -> None:
        out.print(Rule(title, align="left"))
        began_s = time.monotonic()
        said = tell()
        self._summary.add(Chapter(title, said, time.monotonic() - began_s))
        out.print(f"[green]✓[/] {escape(said)}\n")

    @property
    def _services(self) -> list[Service]:
        return services(self._settings, self._config)

    def _start(self) -> str:
        self._settings = start_servers(self._config, out, short_lived=True)
        prepare_source(self._settings, out)
        return "four servers, without Docker and without root"

    def _capture(self) -> str:
        for service in self._services:
            service.start()
        report = self._watch_until_caught_up()
        return f"{len(report.views)} views in Delta, search and cache have reached {format_lsn(_reached(report))}"

    def _kill(self) -> str:
        before = self._workload.committed
        for service in reversed(self._services):
            process = service.running()
            if process is None:
                raise OperatorError(f"{service.name} does not run", f"see {service.log}", code="DEMO")
            os.kill(process.pid, signal.SIGKILL)
            out.print(f"  killed {service.name} (process {process.pid})")
        for service in self._services:
            _await_end(service)
        for service in self._services:
            out.print(f"  started {service.name} again as process {service.start().pid}")
        report = self._watch_until_caught_up()
        meanwhile = self._workload.committed - before
        return f"caught up to {format_lsn(_reached(report))}; {meanwhile} transactions were committed meanwhile"

    def _rebuild(self) -> str:
        answer = rebuild_view(self._settings, REBUILT_VIEW)
        return f"rebuilt in every sink and swapped at {format_lsn(answer.lsn or 0)}"

    def _query(self) -> str:
        with admin_connection(self._settings.source) as connection:
            connection.execute("UPDATE orders SET note = 'written just now' WHERE id = 1")
        token = self._source_lsn()
        began_s = time.monotonic()
        answer = run_query(self._settings, QUERY, wait_lsn=token, timeout_s=_CATCH_UP_S)
        took_s = time.monotonic() - began_s
        out.print(f"  [dim]{QUERY}[/]")
        out.print(as_table(answer.table))
        at, written = format_lsn(answer.cut.lsn), format_lsn(token)
        return f"answered at {at}, which covers the write at {written}, in {took_s:.1f} s"

    def _prove(self) -> str:
        specs = live_named_views(self._settings, [])
        before = self._workload.committed
        with watched() as on_progress:
            proofs = prove_views(self._settings, specs, on_progress, Wanted())
        show(proofs)
        if not all(proof.holds for proof in proofs):
            raise OperatorError("a view differs from Postgres", "see above", code="NOT_EQUAL")
        rows = sum(proof.rows for proof in proofs)
        return (
            f"{len(proofs)} copies with {rows:,} rows equal Postgres, row by row, while "
            f"{self._workload.committed - before} transactions went on"
        )

    def _watch_until_caught_up(self) -> Report:
        """The live screen, until every view has reached what is in the source's log now."""
        token = self._source_lsn()
        deadline = time.monotonic() + _CATCH_UP_S
        with Live(console=out, auto_refresh=False, transient=False) as live:
            while True:
                report = self._observer.look()
                live.update(Group(screen(self._settings, report, self._services)), refresh=True)
                if report.views and all(view.lsn is not None and view.lsn >= token for view in report.views):
                    return report
                for service in self._services:
                    service.require_alive()
                if time.monotonic() > deadline:
                    raise TransientError(
                        f"the views have not reached {format_lsn(token)} within {_CATCH_UP_S:.0f} s",
                        f"see the logs in {self._settings.data / 'logs'}",
                        code="DEMO_SLOW",
                    )
                time.sleep(_LOOK_EVERY_S)

    def _source_lsn(self) -> int:
        with admin_connection(self._settings.source) as connection:
            row = connection.execute("SELECT pg_catalog.pg_current_wal_insert_lsn()::text").fetchone()
        assert row is not None
        return parse_lsn(row[0])


def _reached(report: Report) -> int:
    """Where all views have been; in the middle of a batch some are further."""
    return min(view.lsn or 0 for view in report.views)


def _await_end(service: Service) -> None:
    deadline = time.monotonic() + 30
    while service.running() is not None and time.monotonic() < deadline:
        time.sleep(0.05)
