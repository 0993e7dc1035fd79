"""Whatever Postgres prints comes back from JSON as the same text."""

from __future__ import annotations

import json
import struct
from decimal import Decimal

from hypothesis import given, settings
from hypothesis import strategies as st

from cdc import oids
from cdc.arrays import parse_array, print_array
from cdc.floats import print_float
from cdc.values import decode_json, encoder

any_text = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20)
awkward_text = st.text(st.sampled_from('{}",\\; \t\n\v\fNULnulé='), max_size=10)
doubles = st.floats().map(lambda number: print_float(number, is_double=True))


def four_bytes(number: float) -> str:
    """A real as float4out prints it: the shortest decimal that reads back as the same four bytes."""
    wanted = struct.pack(">f", number)
    for digits in range(1, 10):
        shortest = float(f"{number:.{digits - 1}e}")
        if abs(shortest) <= 3.4028235677973366e38 and struct.pack(">f", shortest) == wanted:
            return print_float(shortest, is_double=False)
    return print_float(number, is_double=False)


@st.composite
def timestamps(draw, zone):
    if draw(st.integers(0, 9)) == 0:
        return draw(st.sampled_from(["infinity", "-infinity"]))
    year = draw(st.one_of(st.integers(1, 9999), st.integers(1, 294276)))
    month, day, hour = draw(st.integers(1, 12)), draw(st.integers(1, 31)), draw(st.integers(0, 23))
    minute, second = draw(st.integers(0, 59)), draw(st.integers(0, 59))
    text = f"{year:04d}-{month:02d}-{day:02d} {hour:02d}:{minute:02d}:{second:02d}"
    fraction = draw(st.integers(0, 999_999))
    if fraction:
        text += f".{fraction:06d}".rstrip("0")
    return text + zone + draw(st.sampled_from(["", "", " BC"]))


SCALARS = {
    oids.BOOL: st.sampled_from("tf"),
    oids.INT8: st.integers(-(2**63), 2**63 - 1).map(str),
    oids.FLOAT8: doubles,
    oids.FLOAT4: st.floats(width=32).map(four_bytes),
    oids.NUMERIC: st.one_of(st.just("NaN"), st.decimals(allow_nan=False, allow_infinity=False).map(lambda n: f"{n:f}")),
    oids.BYTEA: st.binary(max_size=20).map(lambda data: "\\x" + data.hex()),
    oids.TIMESTAMP: timestamps(""),
    oids.TIMESTAMPTZ: timestamps("+00"),
    oids.TEXT: st.one_of(any_text, awkward_text),
    oids.BOX: st.sampled_from(["(1,1),(0,0)", "(2.5,-1),(1e+20,-3)"]),
    16500: any_text,
}
ARRAY_OF = {element: array for array, element in oids.ELEMENT_OF.items()}


@st.composite
def arrays(draw, elements):
    """Rectangular, like Postgres's, of one to three dimensions; or empty."""
    lengths = draw(st.lists(st.integers(1, 2), max_size=3))

    def level(rest):
        if not rest:
            return draw(st.one_of(st.none(), elements))
        return [level(rest[1:]) for _ in range(rest[0])]

    return level(lengths) if lengths else []


scalars = st.sampled_from(sorted(SCALARS)).flatmap(lambda oid: st.tuples(st.just(oid), SCALARS[oid]))
array_literals = st.sampled_from(sorted(SCALARS.keys() & ARRAY_OF.keys())).flatmap(
    lambda oid: st.tuples(
        st.just(ARRAY_OF[oid]),
        arrays(SCALARS[oid]).map(lambda nested: print_array(nested, ";" if oid == oids.BOX else ",")),
    )
)


@given(scalars)
def test_scalars_round_trip(value):
    oid, text = value
    assert decode_json(oid, json.loads(encoder(oid)(text))) == text


@settings(max_examples=settings().max_examples // 2)
@given(array_literals)
def test_arrays_round_trip(value):
    oid, text = value
    fragment = encoder(oid)(text)
    assert isinstance(json.loads(fragment), list)
    assert decode_json(oid, json.loads(fragment)) == text


@settings(max_examples=settings().max_examples // 2)
@given(array_literals, st.integers(-5, 5).filter(lambda bound: bound != 1))
def test_arrays_with_bounds_stay_literals(value, bound):
    oid, text = value
    literal = f"[{bound}:{bound + 2}]={text}"
    assert decode_json(oid, json.loads(encoder(oid)(literal))) == literal


@given(arrays(st.one_of(any_text, awkward_text)), st.sampled_from(",;"))
def test_parsing_is_the_inverse_of_printing(nested, delimiter):
    assert parse_array(print_array(nested, delimiter), delimiter) == nested


@given(awkward_text)
def test_an_array_literal_is_read_exactly_or_refused(text):
    try:
        fragment = encoder(ARRAY_OF[oids.TEXT])("{" + text)
    except ValueError:
        return
    assert decode_json(ARRAY_OF[oids.TEXT], json.loads(fragment)) == "{" + text


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_printed_floats_read_back(number):
    text = print_float(number, is_double=True)
    assert struct.pack(">d", float(text)) == struct.pack(">d", number)
    assert len(Decimal(text).normalize().as_tuple().digits) <= 17
