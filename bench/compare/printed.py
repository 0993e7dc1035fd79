"""Values as Debezium writes them, brought into the form that Afterimage writes: so that only what was lost differs.

In: a JSON value of the peer, of a type. Out: what Afterimage writes if nothing was lost. A value that is not of the
form that is expected raises ValueError.
"""

from __future__ import annotations

import json
import re
from base64 import b64decode
from datetime import time, timedelta
from decimal import Decimal

_ISO = re.compile(r"([+-]?)(\d+)-(\d\d-\d\d)(?:T(\d\d:\d\d:\d\d)(?:\.(\d+))?)?Z")
_PAIR = re.compile(r'"((?:[^"\\]|\\.)*)"=>(?:"((?:[^"\\]|\\.)*)"|NULL)')
_SPAN = re.compile(r"([+-]?\d+) (year|mon|day)s?|([+-]?)(\d+):(\d\d):(\d\d(?:\.\d+)?)")
_ISO_SPAN = re.compile(r"P(-?\d+)Y(-?\d+)M(-?\d+)DT(-?\d+)H(-?\d+)M(-?[\d.]+)S")
Span = tuple[int, int, float]
"""Months, days, seconds."""


def moment(kind: str, text: str) -> str:
    """A date, timestamp or timestamptz of `time.precision.mode=isostring`."""
    match = _ISO.fullmatch(text)
    if match is None:
        raise ValueError("no date in ISO's form")
    sign, year, day, clock, fraction = match.groups()
    number = int(f"{sign}{year}")
    is_before = number <= 0
    shown = f"{1 - number if is_before else number:04}-{day}"
    if clock is not None:
        digits = (fraction or "").rstrip("0")
        zone = "" if kind == "timestamp" else "+00" if is_before else "Z"
        shown += f"{' ' if is_before else 'T'}{clock}{'.' if digits else ''}{digits}{zone}"
    return shown + (" BC" if is_before else "")


def utc(text: str) -> str:
    """A timetz as Postgres prints it, moved to UTC."""
    match = re.fullmatch(r"(\d\d:\d\d:\d\d(?:\.\d+)?)([+-])(\d\d)(?::(\d\d))?(?::(\d\d))?", text)
    if match is None:
        raise ValueError("no timetz")
    clock, sign, *offset = match.groups()
    at = time.fromisoformat(clock)  # refuses 24:00:00
    hours, minutes, seconds = (int(each or 0) for each in offset)
    ahead = timedelta(hours=hours, minutes=minutes, seconds=seconds) * (-1 if sign == "-" else 1)
    day = timedelta(days=1)
    there = timedelta(hours=at.hour, minutes=at.minute, seconds=at.second, microseconds=at.microsecond)
    moved = (there - ahead) % day
    whole = moved - timedelta(microseconds=moved.microseconds)
    fraction = f".{moved.microseconds:06}".rstrip("0").rstrip(".")
    return f"{str(whole).zfill(8)}{fraction}Z"


def interval(text: str) -> Span:
    """An interval as Postgres prints it."""
    months, days, seconds = 0, 0, 0.0
    if _SPAN.sub("", text).strip():
        raise ValueError("no interval")
    for number, unit, sign, *clock in _SPAN.findall(text):
        if unit:
            months += int(number) * {"year": 12, "mon": 1}.get(unit, 0)
            days += int(number) if unit == "day" else 0
        else:
            hours, minutes, rest = clock
            seconds = (int(hours) * 3600 + int(minutes) * 60 + float(rest)) * (-1 if sign == "-" else 1)
    return months, days, seconds


def iso_interval(text: str) -> Span:
    """An interval of `interval.handling.mode=string`."""
    match = _ISO_SPAN.fullmatch(text)
    if match is None:
        raise ValueError("no interval in ISO's form")
    years, months, days, hours, minutes = (int(each) for each in match.groups()[:5])
    return years * 12 + months, days, hours * 3600 + minutes * 60 + float(match[6])


def hstore(text: str) -> dict[str, str | None]:
    """An hstore as Postgres prints it."""

    def plain(quoted: str) -> str:
        return re.sub(r"\\(.)", r"\1", quoted)

    return {plain(each[1]): None if each[2] is None else plain(each[2]) for each in _PAIR.finditer(text)}


def bits(text: str) -> int:
    """The number that the bytes of a bit string hold; its length is not in them."""
    return int.from_bytes(b64decode(text, validate=True), "little")


def text_of(encoded: str) -> str:
    """A type that Debezium does not know: its text's bytes."""
    return b64decode(encoded, validate=True).decode()


def parsed(data: bytes | None) -> object:
    """JSON with numbers to the digit."""
    return None if data is None else json.loads(data, parse_float=Decimal)
