"""Rules for columns: what they publish, where they are refused, and that no encoder lets a concealed value through."""

from __future__ import annotations

import hashlib
import hmac
import json
from dataclasses import replace
from typing import Any

import pytest
from pydantic import SecretStr, ValidationError

from cdc.changes import UNCHANGED, Change, Op, Origin
from cdc.envelope import TableEncoder
from cdc.errors import ConfigError, OperatorError, RecordError
from cdc.privacy import Privacy
from cdc.relations import selected
from cdc.schema_record import SchemaRecord
from cdc.settings import Mask, Source
from tests.support import frames

KEY = "k" * 32
NUMERIC_2 = (12 << 16 | 2) + 4
COLUMNS = [
    ("id", 23),
    ("ssn", 25),
    ("email", 1043),
    ("phone", 25),
    ("born", 1082),
    ("pay", 1700),
    ("ok", 16),
    ("n", 25),
]
USERS = frames.table("users", COLUMNS)
USERS = replace(
    USERS,
    columns=tuple(
        replace(column, type_mod=NUMERIC_2, type_name="numeric(12,2)") if column.name == "pay" else column
        for column in USERS.columns
    ),
)
RULES: dict[str, dict[str, str | Mask]] = {
    "public.users": {
        "ssn": "exclude",
        "email": "hash",
        "phone": "mask",
        "born": "mask",
        "pay": "mask",
        "ok": Mask(mask="perhaps"),
    }
}
PRIVACY = Privacy(RULES, KEY)
ROW = ("7", "123-45", "a@b.c", "+49 1", "1984-05-06", "1234.50", "t", "plain")
ORIGIN = Origin(100, 1, 0)
HASH = hmac.new(KEY.encode(), b"a@b.c", hashlib.sha256).hexdigest()
PUBLISHED = {
    "id": 7,
    "email": HASH,
    "phone": "***",
    "born": "1970-01-01",
    "pay": "0.00",
    "ok": "perhaps",
    "n": "plain",
}


def encoder(privacy=PRIVACY, table=USERS):
    return TableEncoder("shop", "db", table, 1, privacy.treatments(table))


def afters(change):
    return [json.loads(record.value)["after"] for record in encoder().change_records(change, ORIGIN, 1, 0)]


def test_snapshot_and_stream_publish_the_same():
    assert json.loads(encoder().read_record(ROW, ORIGIN, 0).value)["after"] == PUBLISHED
    assert afters(Change(Op.CREATE, USERS, None, ROW)) == [PUBLISHED]


def test_the_old_row_is_concealed_as_well():
    (record,) = encoder().change_records(Change(Op.UPDATE, USERS, ROW, (*ROW[:-1], "new")), ORIGIN, 1, 0)
    assert json.loads(record.value)["before"] == PUBLISHED
    event, tombstone = encoder().change_records(Change(Op.DELETE, USERS, ROW, None), ORIGIN, 1, 0)
    assert json.loads(event.value)["before"] == PUBLISHED
    assert tombstone.value is None


def test_null_stays_null():
    row = ("7", *[None] * 7)
    assert afters(Change(Op.CREATE, USERS, None, row)) == [{"id": 7, **dict.fromkeys([*PUBLISHED][1:])}]


def test_a_hashed_key_is_hashed_in_key_and_row():
    table = frames.table("users", [("id", 23), ("email", 25)], ["email"])
    (record,) = encoder(Privacy({"public.*": {"email": "hash"}}, KEY), table).change_records(
        Change(Op.CREATE, table, None, ("7", "a@b.c")), ORIGIN, 1, 0
    )
    assert record.key.decode() == f'{{"email":"{HASH}"}}'
    assert json.loads(record.value)["after"] == {"id": 7, "email": HASH}


def test_a_value_that_is_not_published_need_not_be_in_the_log():
    row = ("7", UNCHANGED, "a@b.c", UNCHANGED, UNCHANGED, UNCHANGED, UNCHANGED, "plain")
    assert afters(Change(Op.UPDATE, USERS, None, row)) == [PUBLISHED]


def test_a_hash_needs_its_value():
    with pytest.raises(RecordError, match="email"):
        afters(Change(Op.UPDATE, USERS, None, ("7", UNCHANGED, UNCHANGED, *ROW[3:])))


def test_the_source_is_asked_for_no_more_than_is_published():
    masked = [f"CASE WHEN \"{name}\" IS NOT NULL THEN '' END" for name in ("phone", "born", "pay", "ok")]
    assert selected(USERS, PRIVACY) == ['"id"', "NULL", '"email"', *masked, '"n"']


def test_what_is_published_describes_itself():
    published = PRIVACY.published(USERS)
    told = [(column.name, column.type_name, column.base_oid, column.rule) for column in published.columns]
    assert told == [
        ("id", "23", 23, None),
        ("email", "text", 25, "hash"),
        ("phone", "text", 25, "mask"),
        ("born", USERS.columns[4].type_name, 1082, "mask"),
        ("pay", "numeric(12,2)", 1700, "mask"),
        ("ok", "text", 25, "mask"),
        ("n", "25", 25, None),
    ]
    assert PRIVACY.published(published) == published
    record = SchemaRecord(1, published, "t", 1, PRIVACY.fingerprint("public", "users"))
    assert SchemaRecord.from_value(record.value()) == record
    assert b"ssn" not in record.value()
    assert KEY.encode() not in record.value()


def test_a_published_relation_is_concealed_in_the_same_way():
    """Capture goes on from the relations that the schema topic has."""
    published = PRIVACY.published(USERS)
    row = tuple(value for value, column in zip(ROW, USERS.columns, strict=True) if column.name != "ssn")
    assert json.loads(encoder(table=published).read_record(row, ORIGIN, 0).value)["after"] == PUBLISHED


def test_a_domain_may_forbid_a_zero_so_it_becomes_text():
    column = replace(USERS.columns[4], type_oid=99_999)
    assert PRIVACY.treatment(column, "mask").constant == "***"


@pytest.mark.parametrize(
    ("rules", "said"),
    [
        ({"public.user": {"ssn": "exclude"}}, "no captured table matches public.user"),
        ({"public.users": {"sn": "exclude"}}, "has no column sn"),
        ({"public.users": {"id": "exclude"}}, "primary key"),
        ({"public.*": {"id": "mask"}}, "primary key"),
        ({"public.users": {"id": Mask(mask="x")}}, "primary key"),
    ],
)
def test_a_rule_that_fits_nothing_is_refused(rules, said):
    with pytest.raises(ConfigError, match=said) as caught:
        Privacy(rules).require_fits([USERS])
    assert caught.value.code == "COLUMN_RULE"


def test_rules_that_fit_pass():
    PRIVACY.require_fits([USERS])
    Privacy({"public.*": {"id": "hash", "email": "exclude"}}, KEY).require_fits([USERS])


def test_other_rules_or_another_key_are_noticed():
    told = PRIVACY.fingerprint("public", "users")
    PRIVACY.require_unchanged(USERS, told)
    Privacy({"public.*": RULES["public.users"]}, KEY).require_unchanged(USERS, told)
    Privacy().require_unchanged(USERS, None)
    fewer: dict[str, dict[str, str | Mask]] = {
        "public.users": {name: rule for name, rule in RULES["public.users"].items() if name != "ssn"}
    }
    for other in (Privacy(RULES, "l" * 32), Privacy(fewer, KEY), Privacy()):
        with pytest.raises(OperatorError) as caught:
            other.require_unchanged(USERS, told)
        assert caught.value.code == "RULES_CHANGED"


def test_a_column_that_may_have_been_renamed_stops_its_table():
    renamed = replace(USERS, columns=tuple(replace(c, name="ssn2") if c.name == "ssn" else c for c in USERS.columns))
    trouble = PRIVACY.renamed(renamed, PRIVACY.published(USERS), renamed)
    assert trouble is not None
    assert trouble.code == "RULE_RENAMED"


def test_a_dropped_column_or_a_new_one_does_not():
    known = PRIVACY.published(USERS)
    dropped = replace(USERS, columns=tuple(column for column in USERS.columns if column.name != "ssn"))
    assert PRIVACY.renamed(dropped, known, dropped) is None
    wider = replace(USERS, columns=(*USERS.columns, replace(USERS.columns[-1], name="more")))
    assert PRIVACY.renamed(wider, known, wider) is None
    # A publication that leaves it out: the table still has it.
    hidden = replace(wider, columns=tuple(column for column in wider.columns if column.name != "ssn"))
    assert PRIVACY.renamed(hidden, known, wider) is None


def test_hashing_needs_a_key_that_cannot_be_guessed(tmp_path):
    with pytest.raises(ConfigError) as caught:
        Privacy({"public.users": {"email": "hash"}})
    assert caught.value.code == "HASH_KEY"
    rules = {"public.users": {"email": "hash"}}
    given: dict[str, Any] = {"database": "db", "tables": ["public.*"], "columns": rules}
    with pytest.raises(ConfigError) as caught:
        Privacy.of(Source(**given, hash_key=SecretStr("short")))
    assert caught.value.code == "HASH_KEY"
    file = tmp_path / "key"
    file.write_text(KEY + "\n")
    privacy = Privacy.of(Source(**given, hash_key_file=file))
    assert privacy.fingerprint("public", "users") == Privacy(rules, KEY).fingerprint("public", "users")


@pytest.mark.parametrize("rule", ["exlude", {"msk": "x"}, 7])
def test_a_misspelt_rule_is_explained_in_one_sentence(rule):
    with pytest.raises(ValidationError, match="a column's rule is exclude, hash, mask or") as caught:
        Source(database="db", tables=("public.*",), columns={"public.users": {"ssn": rule}})
    assert caught.value.error_count() == 1
