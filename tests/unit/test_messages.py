"""Logical messages as records: the documented form, text and bytes."""

from __future__ import annotations

import json

import pytest

from cdc import __version__
from cdc.changes import Origin
from cdc.messages import MessageEncoder
from cdc.pgoutput import LogicalMessage

ENCODER = MessageEncoder("shop", "db")


def test_the_documented_form():
    message = LogicalMessage(True, 90, "order placed", 'é"\n'.encode())
    record = ENCODER.record(message, Origin(100, 740, 5_000_999), 3, 77)
    assert (record.topic, record.partition, record.key) == ("shop._messages", 0, b'{"prefix":"order placed"}')
    assert json.loads(record.value) == {
        "op": "m",
        "ts_ms": 77,
        "source": {
            "version": __version__,
            "connector": "postgresql",
            "name": "shop",
            "ts_ms": 5000,
            "snapshot": "false",
            "db": "db",
            "schema": "",
            "table": "",
            "txId": 740,
            "lsn": 90,
            "commit_lsn": 100,
            "ordinal": 3,
        },
        "message": {"prefix": "order placed", "transactional": True, "content": 'é"\n', "encoding": "text"},
    }


def test_one_without_a_transaction():
    body = json.loads(ENCODER.record(LogicalMessage(False, 90, "", b""), None, None, 77).value)
    source = body["source"]
    assert (source["txId"], source["commit_lsn"], source["ordinal"], source["ts_ms"]) == (None, None, None, None)
    assert body["message"] == {"prefix": "", "transactional": False, "content": "", "encoding": "text"}


@pytest.mark.parametrize(
    ("content", "told", "encoding"),
    [(b"\xff", "/w==", "base64"), (b"\xed\xa0\x80", "7aCA", "base64"), (b"a\0b", "a\0b", "text")],
    ids=["no UTF-8", "half a surrogate pair", "NUL"],
)
def test_every_byte_arrives(content, told, encoding):
    message = json.loads(ENCODER.record(LogicalMessage(False, 90, "p", content), None, None, 0).value)["message"]
    assert (message["content"], message["encoding"]) == (told, encoding)
