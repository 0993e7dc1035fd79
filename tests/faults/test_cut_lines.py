"""The lines between capture and its servers cut, held up, torn and slowed: afterwards the topics are the tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest

from cdc.settings import Kafka, Settings
from cdc.stack.server import Endpoint
from tests.support.capturing import RunningCapture, insert_lsn
from tests.support.equal import Copies
from tests.support.load import Load
from tests.support.pipelines import fill
from tests.support.processes import Command, write_config
from tests.support.proxy import Proxy, ends_transaction, kafka_through
from tests.support.wait import wait_until

KEEPALIVE_S = 3
LOST = "capture starts over"
SLOW_BYTES_PER_S = 1_000
CRAWL_TRANSACTIONS = 100
# So that a broker that says nothing is noticed within the test's time; a user may set the same.
IMPATIENT = {"socket.timeout.ms": "8000", "reconnect.backoff.max.ms": "200"}


@dataclass
class Lines:
    """A running capture behind two proxies, and the same source without them.

    Capture has a process of its own: libpq connects with Python's lock held, and the proxies want to run meanwhile.
    """

    direct: Settings
    admin: psycopg.Connection[Any]
    postgres: Proxy
    kafka: Proxy
    capture: Command
    copies: Copies

    def strike(self, fault: Callable[[], None], *, heal: Proxy, noticed: str | None = None) -> None:
        """The fault under load until capture has said that word; then everything must be equal again."""
        happened, said = heal.faults, self.said(noticed)
        with Load(self.direct, seed=happened, pause_s=0.001):
            fault()
            wait_until(lambda: heal.faults > happened, what="the fault", timeout_s=60)
            if noticed is not None:
                wait_until(lambda: self.said(noticed) > said, what="capture to notice it", timeout_s=90)
        heal.heal()
        self.require_equal()

    def said(self, word: str | None) -> int:
        return self.capture.text().count(word) if word else 0

    def require_equal(self) -> None:
        RunningCapture(self.direct).wait_for(insert_lsn(self.admin), timeout_s=120)
        assert self.copies.differences() == []
        assert self.capture.alive, self.capture.text()[-3000:]


@pytest.fixture
def lines(source: Settings, kafka: Endpoint, admin: psycopg.Connection[Any], tmp_path: Path) -> Iterator[Lines]:
    fill(admin)
    at = source.source
    with ExitStack() as stack:
        postgres = stack.enter_context(Proxy(at.host, at.port))
        broker = stack.enter_context(kafka_through(kafka.host, kafka.port))
        direct = source.model_copy(update={"kafka": Kafka(bootstrap=kafka.address, partitions=2)})
        limits = {"transaction_timeout_s": 20, "keepalive_s": KEEPALIVE_S}
        behind = direct.model_copy(
            update={
                "source": at.model_copy(update={"host": "127.0.0.1", "port": postgres.port}),
                "kafka": Kafka(bootstrap=f"127.0.0.1:{broker.port}", partitions=2, properties=IMPATIENT),
                "capture": direct.capture.model_copy(update=limits),
            }
        )
        capture = Command(write_config(behind, tmp_path), ("capture",), tmp_path / "capture.log").start()
        stack.callback(capture.kill)
        RunningCapture(direct).wait_for(insert_lsn(admin))
        made = Lines(direct, admin, postgres, broker, capture, Copies(direct))
        made.require_equal()
        yield made


@pytest.mark.parametrize(("server", "noticed"), [("postgres", LOST), ("kafka", None)])
def test_a_line_may_be_cut_and_torn(lines: Lines, server: str, noticed: str | None) -> None:
    """Kafka's client mends its lines by itself, in silence."""
    proxy: Proxy = getattr(lines, server)
    lines.strike(proxy.cut, heal=proxy, noticed=noticed)
    lines.strike(lambda: proxy.tear(answer=False, after_bytes=7), heal=proxy, noticed=noticed)
    lines.strike(lambda: proxy.tear(answer=True, after_bytes=7), heal=proxy, noticed=noticed)


def test_a_half_open_line_to_postgres_is_given_up(lines: Lines) -> None:
    lines.strike(lines.postgres.stall, heal=lines.postgres, noticed=LOST)


def test_a_half_open_line_to_kafka_is_given_up(lines: Lines) -> None:
    lines.strike(lines.kafka.stall, heal=lines.kafka, noticed=LOST)


def test_a_commit_whose_answer_is_lost_counts_once(lines: Lines) -> None:
    for _ in range(3):
        # The client asks again by itself, and the broker knows that it has committed.
        lines.strike(lambda: lines.kafka.lose_answer(ends_transaction), heal=lines.kafka)


@pytest.mark.parametrize("server", ["postgres", "kafka"])
def test_a_slow_line_only_slows(lines: Lines, server: str) -> None:
    proxy: Proxy = getattr(lines, server)
    with Load(lines.direct, seed=1, pause_s=0.001) as load:
        proxy.crawl(SLOW_BYTES_PER_S)
        wait_until(lambda: load.transactions > CRAWL_TRANSACTIONS, what="load on a slow line")
    assert proxy.faults
    proxy.heal()
    lines.require_equal()
