"""Values by example: what Postgres prints, the JSON that docs/FORMATS.md promises, and the way back."""

from __future__ import annotations

import json

import pytest

from cdc import oids
from cdc.arrays import print_array
from cdc.values import decode_json, encoder

DATE, TIME, INTERVAL, UUID, JSONB, MONEY, VARCHAR, ENUM = 1082, 1083, 1186, 2950, 3802, 790, 1043, 16500

EXAMPLES = [
    (oids.BOOL, "t", "true"),
    (oids.BOOL, "f", "false"),
    (oids.INT2, "-32768", "-32768"),
    (oids.INT4, "0", "0"),
    (oids.INT8, "9223372036854775807", "9223372036854775807"),
    (oids.OID, "4294967295", "4294967295"),
    (oids.FLOAT4, "1.1", "1.1"),
    (oids.FLOAT4, "1e+06", "1e+06"),
    (oids.FLOAT4, "3.4028235e+38", "3.4028235e+38"),
    (oids.FLOAT8, "123456.789", "123456.789"),
    (oids.FLOAT8, "1e+15", "1e+15"),
    (oids.FLOAT8, "100000000000000", "100000000000000"),
    (oids.FLOAT8, "1e-05", "1e-05"),
    (oids.FLOAT8, "0.0001", "0.0001"),
    (oids.FLOAT8, "5e-324", "5e-324"),
    (oids.FLOAT8, "-1.7976931348623157e+308", "-1.7976931348623157e+308"),
    (oids.FLOAT8, "0", "0"),
    (oids.FLOAT8, "-0", "-0.0"),
    (oids.FLOAT8, "NaN", '"NaN"'),
    (oids.FLOAT4, "Infinity", '"Infinity"'),
    (oids.FLOAT8, "-Infinity", '"-Infinity"'),
    (oids.NUMERIC, "1.10", '"1.10"'),
    (oids.NUMERIC, "NaN", '"NaN"'),
    (oids.NUMERIC, "9" * 400, f'"{"9" * 400}"'),
    (oids.BYTEA, "\\x", '""'),
    (oids.BYTEA, "\\x00ff10", '"AP8Q"'),
    (oids.TIMESTAMP, "2026-11-18 10:40:13.5", '"2026-11-18T10:40:13.5"'),
    (oids.TIMESTAMP, "294276-12-31 23:59:59.999999", '"294276-12-31T23:59:59.999999"'),
    (oids.TIMESTAMP, "infinity", '"infinity"'),
    (oids.TIMESTAMP, "-infinity", '"-infinity"'),
    (oids.TIMESTAMP, "0044-03-15 12:00:00 BC", '"0044-03-15 12:00:00 BC"'),
    (oids.TIMESTAMPTZ, "2026-11-18 10:40:13.5+00", '"2026-11-18T10:40:13.5Z"'),
    (oids.TIMESTAMPTZ, "infinity", '"infinity"'),
    (oids.TIMESTAMPTZ, "0044-03-15 12:00:00+00 BC", '"0044-03-15 12:00:00+00 BC"'),
    (oids.TEXT, 'a "b" \\ \n\t\x01é\U0001f600\u2028', '"a \\"b\\" \\\\ \\n\\t\\u0001é\U0001f600\u2028"'),
    (oids.TEXT, "", '""'),
    (VARCHAR, "NULL", '"NULL"'),
    (DATE, "0044-03-15 BC", '"0044-03-15 BC"'),
    (TIME, "24:00:00", '"24:00:00"'),
    (INTERVAL, "1 year 2 mons -3 days", '"1 year 2 mons -3 days"'),
    (UUID, "8f14e45f-ceea-467f-a0e6-000000000000", '"8f14e45f-ceea-467f-a0e6-000000000000"'),
    (JSONB, '{"a": 1.00}', '"{\\"a\\": 1.00}"'),
    (MONEY, "-$1,000.00", '"-$1,000.00"'),
    (ENUM, "sad", '"sad"'),
    (1007, "{}", "[]"),
    (1007, "{1,NULL,-3}", "[1,null,-3]"),
    (1007, "{{1,2},{3,4}}", "[[1,2],[3,4]]"),
    (1007, "[0:1]={1,2}", '"[0:1]={1,2}"'),
    (1000, "{t,f,NULL}", "[true,false,null]"),
    (1001, '{"\\\\x00ff",NULL}', '["AP8=",null]'),
    (1022, "{1.5,NaN,-0,-Infinity,1e+20}", '[1.5,"NaN",-0.0,"-Infinity",1e+20]'),
    (1231, "{1.10,NaN}", '["1.10","NaN"]'),
    (1115, '{"2026-11-18 10:40:13.5",infinity}', '["2026-11-18T10:40:13.5","infinity"]'),
    (1185, '{"2026-11-18 10:40:13.5+00"}', '["2026-11-18T10:40:13.5Z"]'),
    (1009, '{a,"b c","","NULL",NULL,"x\\"y\\\\z","{","a,b"}', '["a","b c","","NULL",null,"x\\"y\\\\z","{","a,b"]'),
    (1009, '{{a,"b c"},{NULL,null2}}', '[["a","b c"],[null,"null2"]]'),
    (1009, '[2:2]={"a b"}', '"[2:2]={\\"a b\\"}"'),
    (1020, "{(1,1),(0,0);(2,2),(1,1)}", '["(1,1),(0,0)","(2,2),(1,1)"]'),
    (16501, "{sad,ok}", '"{sad,ok}"'),
]


@pytest.mark.parametrize(("oid", "text", "fragment"), EXAMPLES)
def test_a_value_and_its_way_back(oid, text, fragment):
    assert encoder(oid)(text) == fragment
    assert decode_json(oid, json.loads(fragment)) == text


def test_null_is_null():
    assert decode_json(oids.TEXT, None) is None


@pytest.mark.parametrize(
    ("oid", "text"),
    [
        (oids.BOOL, "true"),
        (oids.BYTEA, "abc\\000"),
        (oids.BYTEA, "\\xabc"),
        (oids.TIMESTAMPTZ, "2026-11-18 11:40:13.5+01"),
        (1000, "{true}"),
        (1009, "a"),
        (1009, '{"a}'),
        (1009, '{"a"'),
        (1009, '{"a"}}'),
        (1009, '{"a"}{b}'),
        (1009, '{ "a" }'),
        (1009, '{"a" "b"}'),
        (1009, '{"unquoted"}'),
        (1009, '{{{{{{{"a b"}}}}}}}'),
    ],
)
def test_what_a_type_does_not_print_is_refused(oid, text):
    with pytest.raises(ValueError):  # noqa: PT011  the table's encoder names table and column
        encoder(oid)(text)


def test_array_delimiters():
    assert print_array(["a;b", "c,d"], ";") == '{"a;b";c,d}'
