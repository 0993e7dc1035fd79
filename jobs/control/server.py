"""Apply's side of the control topic: being the one apply process, hearing requests, answering them.

In: settings, and apply's position between two batches. Out: requests and the step that apply may take. Keeps true: one
process at a time owns the partition; one that lost it never owns it again and must stop.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, TopicPartition

from cdc.changes import Trouble
from cdc.errors import OperatorError, ProtocolError, TransientError
from cdc.kafka_clients import END_OF_PARTITION, consumer, translate, translated
from cdc.log import get
from cdc.lsn import format_lsn
from cdc.settings import Settings
from jobs.control.group import apply_group, apply_owner, this_process
from jobs.control.halt import InForce, Step, answers_due, next_step
from jobs.control.kept import Kept
from jobs.control.records import Answer, Request, State, Withdrawn, decode
from jobs.control.topic import Publisher, ensure_topic

_log = get(__name__)

SESSION_TIMEOUT_MS: Final = 6_000
BATCH_LIMIT_MS: Final = 86_400_000
RECORDS_PER_POLL_MAX: Final = 1_000
CONFIRM_ATTEMPTS: Final = 50
_REBALANCE_WAIT_S: Final = 0.1
_LOST: Final = {KafkaError.UNKNOWN_MEMBER_ID, KafkaError.ILLEGAL_GENERATION, KafkaError.FENCED_INSTANCE_ID}
_GROUP_OPTIONS: Final[dict[str, Any]] = {
    "group.protocol": "classic",
    # Sticky and cooperative: a second apply that joins waits, the owner keeps its partition and is not interrupted.
    "partition.assignment.strategy": "cooperative-sticky",
    "session.timeout.ms": SESSION_TIMEOUT_MS,
    "heartbeat.interval.ms": 1_000,
    "max.poll.interval.ms": BATCH_LIMIT_MS,
}


class ControlServer:
    """Use as a context manager; `acquire` first."""

    def __init__(self, settings: Settings, *, process: str | None = None) -> None:
        self._settings = settings
        self._in_force = InForce(time.time, time.monotonic)
        self._news: list[Request] = []
        self._told: set[tuple[object, ...]] = set()
        self._owns = self._lost = self._caught_up = False
        self._topic = ensure_topic(settings)
        self._publisher = Publisher(settings, self._topic)
        self._consumer: Consumer = consumer(
            settings.kafka,
            "apply",
            **{"group.id": apply_group(settings.pipeline), "client.id": process or this_process(), **_GROUP_OPTIONS},
        )

    def __enter__(self) -> ControlServer:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Leave the group, so that the next apply need not wait for a timeout."""
        self._owns = False
        self._lost = True
        self._consumer.close()
        self._publisher.close()

    def acquire(self, timeout_s: float, on_wait: Callable[[str | None, float], None] | None = None) -> None:
        """Become the apply process, and hear what is still asked; `on_wait(owner, waited_s)` is called every second."""
        self._consumer.subscribe(
            [self._topic], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._revoked
        )
        started = time.monotonic()
        told_s = 0
        while not (self._owns and self._caught_up):
            self._hear(self._consumer.poll(0.1))
            waited_s = time.monotonic() - started
            if waited_s > timeout_s:
                raise self._taken()
            if on_wait is not None and int(waited_s) > told_s:
                told_s = int(waited_s)
                on_wait(apply_owner(self._settings), waited_s)

    def poll(self, timeout_s: float = 0.0) -> list[Request]:
        """Requests that are new since the last call, renewals left out; waits `timeout_s` at most for a first one."""
        self._hear(message := self._consumer.poll(timeout_s))
        for _ in range(RECORDS_PER_POLL_MAX):
            if message is None:
                break
            self._hear(message := self._consumer.poll(0))
        in_force = {request.id for request in self.requests()}
        news, self._news = self._news, []
        return [request for request in news if request.id in in_force]

    def requests(self) -> tuple[Request, ...]:
        """Every request in force: neither expired, withdrawn, released nor finished."""
        return self._in_force.requests()

    def step(self, position: int) -> Step:
        """What apply may do, standing at `position` between two batches; who waits for that is answered."""
        in_force = {request.id: request for request in self.requests()}
        for name, state in answers_due(in_force.values(), position):
            fact = (name, in_force[name].kind, in_force[name].lsn, state, position)
            if fact not in self._told:
                reason = f"apply stands at {format_lsn(position)} already" if state is State.REFUSED else None
                self.answer(name, state, lsn=position, message=reason)
                self._told.add(fact)
        self._told = {fact for fact in self._told if fact[0] in in_force}
        return next_step(in_force.values(), position)

    def answer(
        self,
        request_id: str,
        state: State,
        *,
        lsn: int | None = None,
        progress: float | None = None,
        message: str | None = None,
    ) -> None:
        """Tell the client how its request stands; a final answer ends the request."""
        self.tell(Answer(request_id, state, time.time_ns() // 1_000_000, lsn, progress, message))

    def fail(self, request_id: str, why: Trouble) -> None:
        """It can't be done: the client is told what a person is to do."""
        now_ms = time.time_ns() // 1_000_000
        self.tell(Answer(request_id, State.FAILED, now_ms, message=why.message, code=why.code, hint=why.remedy or None))

    def tell(self, answer: Answer) -> None:
        """The same of an answer that is made already."""
        self._publisher.publish(answer)
        self._in_force.see(answer, live=True)

    def keep(self, record: Kept | Withdrawn) -> None:
        """Write down how a view stands, for whoever looks."""
        self._publisher.publish(record)

    def is_owner(self) -> bool:
        """Whether this is still the apply process, as far as the group has said; False is for ever."""
        if self._owns:
            self._hear(self._consumer.poll(0))
        return self._owns and not self._lost

    def require_owner(self) -> None:
        """Raise once this is not the apply process any more; it may become that again."""
        if not self.is_owner():
            raise TransientError(
                "this process was out of touch with Kafka and is no longer the one that applies",
                "it asks to be that again; where another one took over, it waits",
                code="APPLY_FENCED",
            )

    def confirm_owner(self) -> None:
        """Ask the broker; OperatorError if this process is a zombie. For the moment before a commit."""
        for _ in range(CONFIRM_ATTEMPTS):
            if not self.is_owner() or self._broker_confirms():
                break
        else:
            raise TransientError("the group of apply processes does not come to rest", "is the broker overloaded?")
        if not self._owns:
            raise OperatorError(
                "another process has taken over apply",
                "this one was silent for too long and stops; nothing is lost, the other carries on",
                code="APPLY_FENCED",
            )

    def _broker_confirms(self) -> bool:
        """A commit is taken from members of the group only; False while a rebalance decides who they are."""
        try:
            self._consumer.commit(offsets=[TopicPartition(self._topic, 0, 0)], asynchronous=False)
        except KafkaException as error:
            code = error.args[0].code()
            if code == KafkaError.REBALANCE_IN_PROGRESS:
                self._hear(self._consumer.poll(_REBALANCE_WAIT_S))
                return False
            if code not in _LOST:
                raise translate(error.args[0], "asking whether this is still the apply process") from error
            self._owns, self._lost = False, True
        return True

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        if partitions and not self._lost:
            self._owns = True
            consumer.incremental_assign([TopicPartition(p.topic, p.partition, OFFSET_BEGINNING) for p in partitions])

    def _revoked(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        if partitions and self._owns:
            self._owns, self._lost = False, True
            _log.warning("apply ownership lost", topic=self._topic)

    def _hear(self, message: Message | None) -> None:
        if message is None:
            return
        error = message.error()
        if error is not None:
            if error.code() != END_OF_PARTITION:
                raise translate(error, "reading the control topic")
            self._caught_up = True
            return
        key = message.key()
        try:
            record = decode(key.encode() if isinstance(key, str) else key, message.value())
        except ProtocolError:
            _log.warning("control record not understood", topic=self._topic, offset=message.offset())
            return
        news = self._in_force.see(record, live=self._caught_up)
        if news is not None:
            self._news.append(news)

    def _taken(self) -> OperatorError:
        with translated("waiting to become the apply process"):
            owner = apply_owner(self._settings)
        return OperatorError(
            f"apply of pipeline {self._settings.pipeline} runs already, as {owner or 'a process that just started'}",
            "one apply runs per pipeline: stop that one, or let it run",
            code="APPLY_RUNNING",
        )
