"""What the renderers print is what Postgres prints, asked over COPY under the session settings of every connection."""

from __future__ import annotations

import datetime as dt
import math
import random
import struct
from collections.abc import Callable, Iterator
from decimal import Context, Decimal
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg import sql

from cdc.postgres import SESSION
from jobs.prove.render import renderer
from tests.support.servers import PostgresServer

Printed = Callable[[str, list[Any]], list[tuple[Any, str | None]]]
ROUNDS = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(scope="module")
def connection(postgres: PostgresServer) -> Iterator[psycopg.Connection[Any]]:
    options = " ".join(f"-c {name}={value}" for name, value in SESSION.items())
    with postgres.database().connect(options=options) as opened:
        yield opened


@pytest.fixture(scope="module")
def printed(connection: psycopg.Connection[Any]) -> Printed:
    """What we print and what Postgres prints, for native values of one type."""

    def both(type_name: str, values: list[Any]) -> list[tuple[Any, str | None]]:
        array = sql.SQL(f"{type_name}[]")
        ask = sql.SQL("SELECT v::{} FROM unnest({}::{}) WITH ORDINALITY u(v, n) ORDER BY n").format(
            sql.SQL(type_name), sql.Literal(values), array
        )
        with connection.cursor() as cursor:
            cursor.execute(sql.SQL("SELECT NULL::{}").format(sql.SQL(type_name)))
            result = cursor.pgresult
            assert result is not None
            render = renderer(result.ftype(0), result.fmod(0))
            with cursor.copy(sql.SQL("COPY ({}) TO STDOUT").format(ask)) as copy:
                theirs = [row[0] for row in copy.rows()]
        assert len(theirs) == len(values)
        return list(zip((render(value) for value in values), theirs, strict=True))

    return both


def same(pairs: list[tuple[Any, str | None]]) -> None:
    assert [ours for ours, _ in pairs] == [theirs for _, theirs in pairs]


def single(bits: int) -> float:
    number: float = struct.unpack("<f", struct.pack("<I", bits & 0xFFFFFFFF))[0]
    return number


def single_near(number: float) -> float:
    return single(struct.unpack("<I", struct.pack("<f", number))[0])


def double(bits: int) -> float:
    number: float = struct.unpack("<d", struct.pack("<Q", bits & 0xFFFFFFFFFFFFFFFF))[0]
    return number


@ROUNDS
@given(values=st.lists(st.floats(), min_size=1, max_size=50))
def test_doubles(printed: Printed, values: list[float]) -> None:
    same(printed("float8", values))


@ROUNDS
@given(values=st.lists(st.floats(width=32), min_size=1, max_size=50))
def test_reals(printed: Printed, values: list[float]) -> None:
    same(printed("float4", values))


def test_reals_and_doubles_at_every_power_of_two_and_beside_it(printed: Printed) -> None:
    doubles = [math.ldexp(1, e) for e in range(-1074, 1024)]
    around = [step for x in doubles for step in (math.nextafter(x, 0), x, math.nextafter(x, math.inf))]
    same(printed("float8", around))
    same(printed("float4", [single(bits) for e in range(255) for bits in (e << 23, (e << 23) + 1, (e << 23) - 1)]))


def test_doubles_whose_shortest_decimal_lies_on_a_border(printed: Printed) -> None:
    # Halfway between two neighbours beyond 2^53 may lie a round decimal: Python's repr takes it, Postgres does not.
    rng = random.Random(17)
    on_border: list[float] = []
    while len(on_border) < 300:
        number = math.ldexp(rng.getrandbits(52) | 1 << 52, rng.randint(3, 12))
        taken = int(Decimal(repr(number)))
        if abs(taken - int(number)) * 2 == int(math.ulp(number)):
            on_border.append(number)
    same(printed("float8", on_border))


def test_many_random_bit_patterns(printed: Printed) -> None:
    rng = random.Random(4)
    same(printed("float8", [double(rng.getrandbits(64)) for _ in range(20_000)]))
    same(printed("float4", [single(rng.getrandbits(32)) for _ in range(20_000)]))
    same(printed("float8", [float(rng.getrandbits(rng.randint(50, 100))) for _ in range(20_000)]))
    same(printed("float4", [single_near(rng.uniform(0, 10 ** rng.randint(-4, 7))) for _ in range(20_000)]))
    same(printed("float8", [rng.randint(-(10**6), 10**6) / 100 for _ in range(5_000)]))


def test_special_floats(printed: Printed) -> None:
    values = [
        0.0,
        -0.0,
        math.nan,
        math.inf,
        -math.inf,
        1e15,
        1e14,
        999999999999999.9,
        1e-4,
        1e-5,
        0.1,
        123456.0,
        5e-324,
    ]
    same(printed("float8", values))
    same(printed("float4", [0.0, -0.0, math.nan, math.inf, -math.inf, 1e5, 999999.0, 1e6, 1e-4, 1e-5, single(1)]))


@ROUNDS
@given(values=st.lists(st.decimals(allow_infinity=True, allow_nan=True), min_size=1, max_size=30))
def test_numerics_without_a_scale(printed: Printed, values: list[Decimal]) -> None:
    finite = [value for value in values if value.is_finite() and abs(value.adjusted()) <= 900]
    infinite = [value for value in values if value.is_infinite()]
    same(printed("numeric", [*finite, *infinite, Decimal("NaN")]))


@ROUNDS
@given(
    scale=st.integers(0, 18),
    units=st.lists(st.integers(-(10**38) + 1, 10**38 - 1), min_size=1, max_size=30),
)
def test_decimals_with_their_scale(printed: Printed, scale: int, units: list[int]) -> None:
    values = [Decimal((unit < 0, tuple(map(int, str(abs(unit)))), -scale)) for unit in units]
    same(printed(f"numeric(38,{scale})", values))
    stripped = [value.normalize(Context(prec=60)) for value in values]
    same(printed(f"numeric(38,{scale})", stripped))


@ROUNDS
@given(values=st.lists(st.datetimes(), min_size=1, max_size=50))
def test_timestamps(printed: Printed, values: list[dt.datetime]) -> None:
    same(printed("timestamp", values))


@ROUNDS
@given(
    values=st.lists(
        st.datetimes(
            min_value=dt.datetime.fromisoformat("0001-01-02T00:00"),
            max_value=dt.datetime.fromisoformat("9999-12-30T00:00"),
            timezones=st.sampled_from([dt.UTC, dt.timezone(dt.timedelta(hours=-9, minutes=-30))]),
        ),
        min_size=1,
        max_size=50,
    )
)
def test_instants(printed: Printed, values: list[dt.datetime]) -> None:
    same(printed("timestamptz", values))


@ROUNDS
@given(values=st.lists(st.dates(), min_size=1, max_size=50))
def test_dates(printed: Printed, values: list[dt.date]) -> None:
    same(printed("date", values))


@ROUNDS
@given(values=st.lists(st.binary(), min_size=1, max_size=30))
def test_bytes(printed: Printed, values: list[bytes]) -> None:
    same(printed("bytea", values))


@ROUNDS
@given(values=st.lists(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])), min_size=1))
def test_texts(printed: Printed, values: list[str]) -> None:
    same(printed("text", values))


def test_integers_booleans_and_null(printed: Printed) -> None:
    same(printed("int2", [-32768, 0, 32767, None]))
    same(printed("int4", [-(2**31), 0, 2**31 - 1, None]))
    same(printed("int8", [-(2**63), 0, 2**63 - 1, None]))
    same(printed("oid", [0, 2**32 - 1]))
    same(printed("bool", [True, False, None]))
    same(printed("float8", [None]))
    same(printed("numeric(6,2)", [None]))


def test_text_types_keep_what_copy_prints(printed: Printed) -> None:
    # COPY keeps the padding that a cast to text would cut off, and capture sees the same output function.
    assert printed("char(4)", ["ab"]) == [("ab", "ab  ")]
