"""OIDs of built-in types; they are the same in every Postgres (src/include/catalog/pg_type.dat).

Arrays of other types (enums, domains, extensions) have OIDs of their own in each database and travel as text.
"""

from __future__ import annotations

from typing import Final

BOOL: Final = 16
BYTEA: Final = 17
INT8: Final = 20
INT2: Final = 21
INT4: Final = 23
TEXT: Final = 25
OID: Final = 26
BOX: Final = 603
FLOAT4: Final = 700
FLOAT8: Final = 701
DATE: Final = 1082
TIMESTAMP: Final = 1114
TIMESTAMPTZ: Final = 1184
NUMERIC: Final = 1700
UUID: Final = 2950

ELEMENT_OF: Final[dict[int, int]] = {
    1000: BOOL,
    1001: BYTEA,
    1005: INT2,
    1007: INT4,
    1016: INT8,
    1028: OID,
    1021: FLOAT4,
    1022: FLOAT8,
    1231: NUMERIC,
    1115: TIMESTAMP,
    1185: TIMESTAMPTZ,
    143: 142,  # xml
    199: 114,  # json
    271: 5069,  # xid8
    629: 628,  # line
    651: 650,  # cidr
    719: 718,  # circle
    775: 774,  # macaddr8
    791: 790,  # money
    1002: 18,  # "char"
    1003: 19,  # name
    1006: 22,  # int2vector
    1008: 24,  # regproc
    1009: TEXT,
    1010: 27,  # tid
    1011: 28,  # xid
    1012: 29,  # cid
    1013: 30,  # oidvector
    1014: 1042,  # bpchar
    1015: 1043,  # varchar
    1017: 600,  # point
    1018: 601,  # lseg
    1019: 602,  # path
    1020: BOX,
    1027: 604,  # polygon
    1034: 1033,  # aclitem
    1040: 829,  # macaddr
    1041: 869,  # inet
    1182: 1082,  # date
    1183: 1083,  # time
    1187: 1186,  # interval
    1270: 1266,  # timetz
    1561: 1560,  # bit
    1563: 1562,  # varbit
    2201: 1790,  # refcursor
    2207: 2202,  # regprocedure
    2208: 2203,  # regoper
    2209: 2204,  # regoperator
    2210: 2205,  # regclass
    2211: 2206,  # regtype
    2949: 2970,  # txid_snapshot
    2951: 2950,  # uuid
    3221: 3220,  # pg_lsn
    3643: 3614,  # tsvector
    3645: 3615,  # tsquery
    3735: 3734,  # regconfig
    3770: 3769,  # regdictionary
    3807: 3802,  # jsonb
    3905: 3904,  # int4range
    3907: 3906,  # numrange
    3909: 3908,  # tsrange
    3911: 3910,  # tstzrange
    3913: 3912,  # daterange
    3927: 3926,  # int8range
    4073: 4072,  # jsonpath
    4090: 4089,  # regnamespace
    4097: 4096,  # regrole
    4192: 4191,  # regcollation
    5039: 5038,  # pg_snapshot
    6150: 4451,  # int4multirange
    6151: 4532,  # nummultirange
    6152: 4533,  # tsmultirange
    6153: 4534,  # tstzmultirange
    6155: 4535,  # datemultirange
    6157: 4536,  # int8multirange
}
