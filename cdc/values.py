"""Column values: the text that Postgres prints to the JSON of docs/FORMATS.md, and back to that very text.

In: a type's OID (domains: their base type's) and a text. Out: a JSON fragment; or, from parsed JSON, the text.
Keeps true: decode_json(oid, json.loads(encoder(oid)(text))) == text; a text that its type cannot print is a ValueError.
"""

from __future__ import annotations

import binascii
from collections.abc import Callable
from json.encoder import encode_basestring
from typing import Any, Final

from cdc.arrays import Nested, has_bounds, parse_array, print_array
from cdc.floats import print_float
from cdc.oids import (
    BOOL,
    BOX,
    BYTEA,
    ELEMENT_OF,
    FLOAT4,
    FLOAT8,
    INT2,
    INT4,
    INT8,
    OID,
    TIMESTAMP,
    TIMESTAMPTZ,
)

Encode = Callable[[str], str]
Decode = Callable[[Any], str]

PASSED_THROUGH: Final = frozenset((INT2, INT4, INT8, OID))
"""Types whose text is their JSON as it stands."""

_UTC: Final = "+00"


def encoder(oid: int) -> Encode:
    """What turns a text of this type into a JSON fragment."""
    element = ELEMENT_OF.get(oid)
    if element is not None:
        return _array_encoder(element)
    return _ENCODERS.get(oid, encode_basestring)


def decode_json(oid: int, value: Any) -> str | None:
    """The text that Postgres printed, from the parsed JSON value; None for null."""
    return None if value is None else decoder(oid)(value)


def decoder(oid: int) -> Decode:
    """What turns a parsed JSON value of this type, not null, into the text that Postgres printed."""
    element = ELEMENT_OF.get(oid)
    if element is not None:
        return _array_decoder(element)
    return _DECODERS.get(oid, str)


def _encode_bool(text: str) -> str:
    if text == "t":
        return "true"
    if text == "f":
        return "false"
    raise ValueError("a boolean prints as t or f")


def _encode_float(text: str) -> str:
    # `NaN`, `Infinity` and `-Infinity` end in a letter, numbers never do.
    if not text[-1:].isdigit():
        return encode_basestring(text)
    # JSON readers take -0 for an integer and drop the sign.
    return "-0.0" if text == "-0" else text


def _encode_bytea(text: str) -> str:
    if not text.startswith("\\x"):
        raise ValueError("a bytea is not in hex: the session needs bytea_output=hex")
    return f'"{binascii.b2a_base64(binascii.unhexlify(text[2:]), newline=False).decode("ascii")}"'


def _encode_timestamp(text: str) -> str:
    if text.endswith(("y", "C")):  # infinity, -infinity and years BC have no ISO form
        return f'"{text}"'
    return f'"{text.replace(" ", "T", 1)}"'


def _encode_timestamptz(text: str) -> str:
    if text.endswith(_UTC):
        return f'"{text[:-3].replace(" ", "T", 1)}Z"'
    if text.endswith(("y", _UTC + " BC")):
        return f'"{text}"'
    raise ValueError("a timestamptz is not in UTC: the session needs TimeZone=UTC")


def _encode_integers(text: str) -> str:
    """Arrays of integers need no parsing: their elements are never quoted."""
    if has_bounds(text):
        return encode_basestring(text)
    return text.replace("{", "[").replace("}", "]").replace("NULL", "null")


def _array_encoder(element_oid: int) -> Encode:
    if element_oid in PASSED_THROUGH:
        return _encode_integers
    encode = encoder(element_oid)
    delimiter = _delimiter(element_oid)

    def nested(elements: Nested) -> str:
        return f"[{','.join(map(fragment, elements))}]"

    def fragment(element: str | Nested | None) -> str:
        if element is None:
            return "null"
        return nested(element) if isinstance(element, list) else encode(element)

    def encode_array(text: str) -> str:
        return encode_basestring(text) if has_bounds(text) else nested(parse_array(text, delimiter))

    return encode_array


def _array_decoder(element_oid: int) -> Decode:
    decode = decoder(element_oid)
    delimiter = _delimiter(element_oid)

    def texts(elements: list[Any]) -> Nested:
        return [
            None if element is None else texts(element) if isinstance(element, list) else decode(element)
            for element in elements
        ]

    def decode_array(value: Any) -> str:
        return value if isinstance(value, str) else print_array(texts(value), delimiter)

    return decode_array


def _delimiter(element_oid: int) -> str:
    return ";" if element_oid == BOX else ","


def _decode_timestamp(value: str) -> str:
    return value.replace("T", " ", 1)


def _decode_timestamptz(value: str) -> str:
    return value[:-1].replace("T", " ", 1) + _UTC if value.endswith("Z") else value


def _decode_bytea(value: str) -> str:
    return "\\x" + binascii.a2b_base64(value).hex()


def _decode_bool(value: bool) -> str:
    return "t" if value else "f"


def _decode_float4(value: str | float) -> str:
    return value if isinstance(value, str) else print_float(value, is_double=False)


def _decode_float8(value: str | float) -> str:
    """A number, as json.loads makes it; a text is NaN or an infinity."""
    return value if isinstance(value, str) else print_float(value, is_double=True)


_ENCODERS: Final[dict[int, Encode]] = {
    **dict.fromkeys(PASSED_THROUGH, str),
    BOOL: _encode_bool,
    FLOAT4: _encode_float,
    FLOAT8: _encode_float,
    BYTEA: _encode_bytea,
    TIMESTAMP: _encode_timestamp,
    TIMESTAMPTZ: _encode_timestamptz,
}
_DECODERS: Final[dict[int, Decode]] = {
    BOOL: _decode_bool,
    FLOAT4: _decode_float4,
    FLOAT8: _decode_float8,
    BYTEA: _decode_bytea,
    TIMESTAMP: _decode_timestamp,
    TIMESTAMPTZ: _decode_timestamptz,
}
