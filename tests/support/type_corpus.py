"""One table of Postgres's types with awkward values: what tests put into columns, and what of it Delta cannot hold.

In: nothing. Out: `CORPUS`, a row per type: literals that its Delta type holds, and `unfit` ones that it does not. Every
base type of the server is here or in NOT_STORABLE; a test asks the server.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

DIGITS_400: Final = "9" * 399 + "1"
LONG_NUMBER: Final = f"-{DIGITS_400}.{'7' * 30}10"
TEXT: Final = (
    "",
    "NULL",
    "null",
    "\\N",
    "\\.",
    " a \t\n\v\f\r b ",
    '"quoted", {braces} and \\ back',
    "\x01\x1f\x7f\u0085\u2028\u2029 é \U0001f600 \u202e",
    "infinity",
    "'; DROP TABLE x; --",
)


@dataclass(frozen=True)
class Case:
    """A type as a column would have it. `array` is whether columns of its array type are tried with the same values."""

    type: str
    literals: Sequence[str]
    unfit: Sequence[str] = ()
    array: bool = True
    arrays: Sequence[str] = ()
    """Literals of its array type, where the server's array functions do not take the type."""
    since: int = 0
    """The first major version that reads these literals."""


DDL: Final = """
CREATE EXTENSION hstore; CREATE EXTENSION citext; CREATE EXTENSION ltree; CREATE EXTENSION "uuid-ossp";
CREATE EXTENSION cube; CREATE EXTENSION seg; CREATE EXTENSION isn; CREATE EXTENSION intarray;
CREATE TYPE public.mood AS ENUM ('fine', 'so so', 'a,b', '"', '');
CREATE DOMAIN public.price AS numeric(10,2) CHECK (VALUE < 1000);
CREATE DOMAIN public.dear_price AS public.price CHECK (VALUE > 1);
CREATE DOMAIN public.day AS date;
CREATE DOMAIN public.numbers AS int[];
CREATE TYPE public.pair AS (a int, "b c" text);
CREATE TYPE public.nested AS (p public.pair, many public.pair[], at timestamptz, raw bytea, n numeric);
CREATE TYPE public.text_range AS RANGE (subtype = text);
CREATE DOMAIN public.good_mood AS public.mood CHECK (VALUE <> '');
CREATE DOMAIN public.whole_pair AS public.pair CHECK ((VALUE).a > 0);
CREATE DOMAIN public.span AS public.text_range;
CREATE DOMAIN public.labels AS public.hstore;
CREATE TYPE public.offer AS (price public.price, moods public.good_mood[], span public.span);
CREATE TYPE public.day_range AS RANGE (subtype = public.day);
"""
"""What the types of USER_DEFINED need."""

_LIMITS = {2: ("-32768", "32767", "0"), 4: ("-2147483648", "2147483647"), 8: (str(-(2**63)), str(2**63 - 1))}
_MOMENTS = ("1970-01-01 00:00:00", "0001-01-01 00:00:00.000001", "9999-12-31 23:59:59.999999", "2026-03-29 02:30:00.5")
_NO_MOMENTS = ("infinity", "-infinity", "0044-03-15 12:00:00 BC", "4713-01-01 00:00:00 BC")
_LAST_MOMENT = "294276-12-31 23:59:59.999999"
_LSN = ("0/0", "16/B374D848", "FFFFFFFF/FFFFFFFF")

BUILT_IN: Final = (
    Case("boolean", ("t", "f")),
    Case("smallint", _LIMITS[2]),
    Case("integer", _LIMITS[4]),
    Case("bigint", _LIMITS[8]),
    Case("oid", ("0", "4294967295")),
    Case("real", ("0.1", "-0", "NaN", "Infinity", "-Infinity", "1e-45", "3.4028235e38", "999999", "1e6", "1e-5")),
    Case(
        "double precision",
        ("0.1", "-0", "NaN", "Infinity", "5e-324", "1.7976931348623157e308", "1e15", "9007199254740993"),
    ),
    Case("numeric", ("NaN", "Infinity", "-Infinity", LONG_NUMBER, "0.00", "1e-300", "1e400", "-0.0")),
    Case("numeric(10,2)", ("0", "-99999999.99", "1.5"), unfit=("NaN",)),
    Case("numeric(38,10)", ("-1234567890123456789012345678.0123456789", "0"), unfit=("NaN",)),
    Case("numeric(38,0)", ("9" * 38, "-1"), unfit=("NaN",)),
    Case("numeric(40,2)", ("9" * 38 + ".99", "NaN")),
    Case("numeric(3,5)", ("0.00123", "NaN"), since=15),
    Case("numeric(5,-2)", ("1234567", "-50"), since=15),
    Case("money", ("-92233720368547758.08", "1234.5", "0")),
    Case("text", TEXT),
    Case("varchar(60)", TEXT),
    Case("char(5)", ("ab", "", "     ", "é")),
    Case('"char"', ("a", "", "\\377")),
    Case("name", ("x" * 63, "", 'a"b')),
    Case("bytea", ("\\x", "\\x00ff5c0a", "\\x" + "00" * 3000)),
    Case("bit(3)", ("101", "000")),
    Case("bit varying", ("", "1", "0101" * 40)),
    Case(
        "date",
        ("0001-01-01", "1582-10-10", "9999-12-31"),
        unfit=("infinity", "-infinity", "0044-03-15 BC"),
    ),
    Case("time", ("24:00:00", "00:00:00", "23:59:59.999999")),
    Case("timetz", ("24:00:00-15:59:59", "00:00:00+15:59", "10:00:00.1+02")),
    Case("timestamp", _MOMENTS, unfit=(*_NO_MOMENTS, _LAST_MOMENT)),
    Case("timestamptz", tuple(f"{each}+00" for each in _MOMENTS), unfit=(*_NO_MOMENTS, _LAST_MOMENT + "+00")),
    Case("timestamp(0)", ("2026-11-18 10:00:00.5",), unfit=("infinity",)),
    Case("interval", ("-1 year 2 days -00:00:01.5", "178000000 years", "0", "1 mon -1 days +25:00:00")),
    Case("interval day to second", ("3 days 04:05:06.789",)),
    Case("uuid", ("00000000-0000-0000-0000-000000000000", "8F14E45F-CEEA-467F-A0E6-000000000001")),
    Case("json", ('{"a":  1, "a": 2}', f'[{LONG_NUMBER}, 1e500, "\\u00e9\\n"]', "null", '"text"', " [] ")),
    Case("jsonb", ('{"b": [1.00, null], "a": ""}', f'{{"n": {LONG_NUMBER}}}', "null", "-0", '"\\u2028"')),
    Case("jsonpath", ("$.a[*] ? (@ > 1)", 'strict $."b c"')),
    Case("xml", ('<a b="1">é &lt;</a>', "plain <b/>", "")),
    Case("inet", ("::ffff:1.2.3.4/96", "10.0.0.1/8", "192.168.0.1", "::1")),
    Case("cidr", ("10.0.0.0/8", "2001:db8::/32", "::/0")),
    Case("macaddr", ("08:00:2b:01:02:03",)),
    Case("macaddr8", ("08:00:2b:01:02:03:04:05",)),
    Case("tsvector", ("a:1A,3 'b c':2B", "", "'it''s':1", "'\\\\back':5")),
    Case("tsquery", ("a & !b | 'c d':*AB", "a <-> b <2> c", "")),
    Case("point", ("(1.5,-2)", "(NaN,Infinity)", "(1e300,-0)")),
    Case("line", ("{1,-1,0}", "{0.1,1e-5,3}")),
    Case("lseg", ("[(0,0),(1,1.5)]",)),
    Case("box", ("(2,2),(1,1)", "(1e20,0.1),(0,0)")),
    Case("path", ("[(0,0),(1,1)]", "((0,0),(1,1),(2,0))")),
    Case("polygon", ("((0,0),(1,1),(2,0))",)),
    Case("circle", ("<(0,0),1.5>", "<(-1,1e10),0>")),
    Case("int4range", ("empty", "[1,5)", "(,)", "[,9]")),
    Case("int8range", ("[-9223372036854775808,9223372036854775807)", "empty")),
    Case("numrange", ("(-Infinity,NaN]", "[0.10,1.5)", "empty", f"[0,{DIGITS_400}]")),
    Case("tsrange", ("[2026-01-01 10:00:00.5,infinity)", '("0044-03-15 00:00:00 BC",]', "empty")),
    Case("tstzrange", ("[2026-01-01 10:00:00+02,2026-01-02 00:00:00+00)", "(,)")),
    Case("daterange", ("[0044-03-15 BC,2026-11-18)", "[,infinity]", "empty")),
    Case("int4multirange", ("{}", "{[1,3),[5,9)}", "{(,)}")),
    Case("int8multirange", ("{[1,2),[3,)}",)),
    Case("nummultirange", ("{[0.10,1.5),(2,NaN]}",)),
    Case("tsmultirange", ("{[2026-01-01 10:00:00.5,infinity)}",)),
    Case("tstzmultirange", ("{[2026-01-01 10:00:00+02,2026-01-02 00:00:00+00)}",)),
    Case("datemultirange", ("{[0044-03-15 BC,2026-11-18)}",)),
    Case("pg_lsn", _LSN),
    Case("pg_snapshot", ("10:20:10,14,15", "1:1:")),
    Case("txid_snapshot", ("10:20:10,14,15",)),
    Case("xid", ("0", "4294967295")),
    Case("xid8", ("18446744073709551615",)),
    Case("cid", ("7",)),
    Case("tid", ("(4294967295,65535)",)),
    Case("int2vector", ("1 2 3", ""), array=False, arrays=('{"1 2"}',)),
    Case("oidvector", ("1 4294967295", ""), array=False, arrays=('{"1 2",NULL}',)),
    Case("regclass", ("pg_catalog.pg_class", "-", "public.corpus")),
    Case("regtype", ("numeric", "pg_catalog.pg_class", "timestamp with time zone")),
    Case("regproc", ("pg_catalog.now", "-")),
    Case("regprocedure", ("pg_catalog.sum(integer)", "-")),
    Case("regoper", ("0",)),
    Case("regoperator", ("+(integer,integer)",)),
    Case("regconfig", ("english", "simple")),
    Case("regdictionary", ("simple",)),
    Case("regnamespace", ("pg_catalog", "public")),
    Case("regrole", ("pg_monitor", "-")),
    Case("regcollation", ('"C"', "default")),
    Case("refcursor", ("my cursor",)),
    Case("aclitem", ("pg_monitor=r*w/pg_monitor", "=X/pg_monitor")),
)
USER_DEFINED: Final = (
    Case("public.hstore", ('"a"=>"1", "b c"=>NULL, "quote"=>"\\"\\\\"', "")),
    Case("public.citext", ("Straße", "ABC", "")),
    Case("public.ltree", ("Top.Science.Astronomy", "")),
    Case("public.lquery", ("Top.*{1,2}.!b@|c%",)),
    Case("public.ltxtquery", ("a & !b@*",)),
    Case("public.cube", ("(1, 2.5),(3, 4)", "(0)")),
    Case("public.seg", ("1.5 .. 2.50", "<0.1", "5(+-)0.3")),
    Case("public.isbn13", ("978-0-393-04002-9",)),
    Case("public.query_int", ("1&(2|!3)",)),
    Case("public.mood", ("so so", "a,b", '"', "")),
    Case("public.price", ("7.5", "-0.01", "999.99")),
    Case("public.dear_price", ("1.01",)),
    Case("public.day", ("2026-11-18",), unfit=("infinity", "0044-03-15 BC")),
    Case("public.numbers", ("{1,NULL}", "[0:1]={5,6}", "{}"), array=False, arrays=('{"{1,NULL}","[0:1]={5,6}",NULL}',)),
    Case("public.pair", ('(1,"a ""b"", \\\\c")', "(,)", '(2,"")')),
    Case("public.nested", ('("(1,x)","{""(1,y)"",NULL}","0044-03-15 00:00:00+00 BC","\\\\x00ff",NaN)', "(,,,,)")),
    Case("public.text_range", ('["a b","c,d")', '("",]', "empty")),
    Case("public.text_multirange", ('{["a b","c,d"),[e,)}', "{}")),
    Case("public.good_mood", ("so so", '"')),
    Case("public.whole_pair", ('(1,"a, b")', "(2,)")),
    Case("public.span", ('["a b","c,d")', "empty")),
    Case("public.labels", ('"a"=>NULL', "")),
    Case("public.offer", ('(7.50,"{""so so"",NULL}","[a,b)")', "(,,)")),
    Case("public.day_range", ("[2026-11-18,infinity]", "(,)")),
)
SINCE_17: Final = (Case("interval", ("infinity", "-infinity"), since=17),)
CORPUS: Final = (*BUILT_IN, *USER_DEFINED, *SINCE_17)

NOT_STORABLE: Final = frozenset(
    {
        "ghstore",
        "gtsvector",
        "ltree_gist",
        "pg_brin_bloom_summary",
        "pg_brin_minmax_multi_summary",
        "pg_dependencies",
        "pg_mcv_list",
        "pg_ndistinct",
        "pg_node_tree",
    }
)
"""Base types whose input function refuses every text: indexes and the catalogue alone make them."""


def corpus(major: int) -> tuple[Case, ...]:
    """The cases that a server of this version takes."""
    return tuple(case for case in CORPUS if case.since <= major)
