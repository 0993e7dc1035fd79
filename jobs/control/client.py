"""The commands' side of the control topic: ask, keep asking while it matters, and hear the answers.

In: settings and requests. Out: answers. Keeps true: a request is renewed for as long as its client lives, and
withdrawn when the client is done; a client that is killed falls silent and its request expires.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Collection
from dataclasses import replace
from types import TracebackType
from typing import Final

from confluent_kafka import Consumer, TopicPartition

from cdc.errors import CdcError, OperatorError, ProtocolError, TransientError
from cdc.kafka_clients import END_OF_PARTITION, consumer, extent, translate, translated
from cdc.log import get
from cdc.settings import Settings
from jobs.control.group import this_process
from jobs.control.records import Answer, Kind, Request, State, Withdrawn, decode
from jobs.control.topic import TIMEOUT_S, Publisher, ensure_topic

_log = get(__name__)

TTL_S: Final = 15.0


class ControlClient:
    """Answers are heard from the moment it is made; one thread awaits at a time."""

    def __init__(self, settings: Settings) -> None:
        self._topic = ensure_topic(settings)
        self._publisher = Publisher(settings, self._topic)
        self._consumer: Consumer = consumer(settings.kafka, "control-client")
        _, end = extent(self._consumer, self._topic, "reading the control topic", TIMEOUT_S)
        with translated("reading the control topic"):
            self._consumer.assign([TopicPartition(self._topic, 0, end)])

    def __enter__(self) -> ControlClient:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Stop listening."""
        self._consumer.close()
        self._publisher.close()

    def send(self, request: Request) -> None:
        """Put a request on the topic, as it is."""
        self._publisher.publish(request)

    def withdraw(self, request_id: str) -> None:
        """Say that nobody waits for this request any more."""
        self._publisher.publish(Withdrawn(request_id))

    def keep(
        self,
        kind: Kind,
        *,
        lsn: int | None = None,
        view: str | None = None,
        prove: bool = False,
        ttl_s: float = TTL_S,
    ) -> KeptRequest:
        """Send a request and renew it until the `with` ends."""
        wanted = Request("", kind, 0, ttl_s, this_process(), lsn, view, prove)
        return KeptRequest(self, wanted)

    def await_answer(
        self,
        request_id: str,
        states: Collection[State],
        timeout_s: float,
        on_progress: Callable[[Answer], None] | None = None,
        on_wait: Callable[[], None] | None = None,
    ) -> Answer:
        """The first answer in one of `states`; others go to `on_progress` and start the time-out anew.

        `on_wait` is called several times a second, and may raise.
        """
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            answer = self._next_answer(request_id, min(0.2, timeout_s))
            if answer is None:
                if on_wait is not None:
                    on_wait()
                continue
            if answer.state in states:
                return answer
            if answer.state in (State.REFUSED, State.FAILED):
                raise _refused(answer)
            deadline = time.monotonic() + timeout_s
            if on_progress is not None:
                on_progress(answer)
        raise TransientError(
            f"the apply process has not answered for {timeout_s:g} s",
            "is it in the middle of a large batch? `afterimage status` shows; then try again",
            code="CONTROL_TIMEOUT",
        )

    def _next_answer(self, request_id: str, timeout_s: float) -> Answer | None:
        message = self._consumer.poll(timeout_s)
        if message is None:
            return None
        error = message.error()
        if error is not None:
            if error.code() != END_OF_PARTITION:
                raise translate(error, "reading the control topic")
            return None
        key = message.key()
        try:
            record = decode(key.encode() if isinstance(key, str) else key, message.value())
        except ProtocolError:
            return None
        return record if isinstance(record, Answer) and record.id == request_id else None


class KeptRequest:
    """A request in force for the length of a `with`; `change` replaces what it asks for under the same id."""

    def __init__(self, client: ControlClient, wanted: Request) -> None:
        self._client = client
        self._lock = threading.Lock()
        self._done = threading.Event()
        self._request = _now(replace(wanted, id=secrets.token_hex(8)))
        self._thread = threading.Thread(target=self._renew, name="control-renewal", daemon=True)

    @property
    def id(self) -> str:
        """The request's id, for `await_answer`."""
        return self._request.id

    def __enter__(self) -> KeptRequest:
        self._client.send(self._request)
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, at: TracebackType | None) -> None:
        self._done.set()
        self._thread.join()
        try:
            self._client.withdraw(self.id)
        except CdcError as error:
            _log.warning("request not withdrawn, it expires", error=error.code)

    def change(self, kind: Kind, *, lsn: int | None = None) -> None:
        """Ask for something else from now on."""
        with self._lock:
            self._request = _now(replace(self._request, kind=kind, lsn=lsn))
            self._client.send(self._request)

    def _renew(self) -> None:
        while not self._done.wait(self._request.ttl_s / 3):
            try:
                with self._lock:
                    self._request = _now(self._request)
                    self._client.send(self._request)
            except CdcError as error:
                _log.warning("request not renewed", error=error.code)


def _refused(answer: Answer) -> OperatorError:
    """The error of apply as the command's own."""
    message = f"apply {answer.state.value} the request: {answer.message or 'no reason given'}"
    hint = answer.hint or "see the log of the apply process"
    if answer.code is None:
        return OperatorError(message, hint, code="CONTROL_REFUSED")
    return OperatorError(message, hint, code=answer.code)


def _now(request: Request) -> Request:
    return replace(request, sent_ts_ms=time.time_ns() // 1_000_000)
