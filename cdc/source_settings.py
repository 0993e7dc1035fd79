"""The configuration's section on the source: how to reach Postgres, as whom, and what is captured of it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import Field, SecretStr, ValidationError, ValidatorFunctionWrapHandler, WrapValidator

from cdc.errors import ConfigError
from cdc.retention import Bounds
from cdc.sections import Protected, Section, read_secret

_HASH_KEY_MIN: Final = 16

EXCLUDE: Final = "exclude"
HASH: Final = "hash"
MASK: Final = "mask"


class Mask(Section):
    """A column whose every value, but NULL, is published as this text."""

    mask: str = Field(description="the text that stands for every value")


def _rule_or_why(value: Any, read: ValidatorFunctionWrapHandler) -> Any:
    try:
        return read(value)
    except ValidationError:  # of each form that it might have had
        raise ValueError("a column's rule is exclude, hash, mask or {mask: text}") from None


ColumnRule = Annotated[Literal["exclude", "hash", "mask"] | Mask, WrapValidator(_rule_or_why)]


class Role(Protected):
    """A Postgres login."""

    user: str = Field(description="the role's name")
    sslcert: Path | None = Field(default=None, description="its client certificate, where the server asks for one")
    sslkey: Path | None = Field(default=None, description="the certificate's key, readable by this user alone")


class Source(Section):
    """The Postgres database, its two roles, and what is captured of it."""

    host: str = Field(
        default="127.0.0.1", description="the primary, or a standby from 16 on; never a connection pooler"
    )
    port: int = Field(default=5432, description="its port")
    database: str = Field(description="the database to capture; a pipeline captures one")
    sslmode: Literal["disable", "prefer", "require", "verify-ca", "verify-full"] = Field(
        default="prefer", description="as libpq's; `verify-full` outside a private network"
    )
    sslrootcert: Path | None = Field(default=None, description="the certificate authority, for the verify modes")
    stream: Role = Field(
        default=Role(user="afterimage_stream"), description="reads the log: LOGIN REPLICATION, nothing else"
    )
    read: Role = Field(
        default=Role(user="afterimage_read"), description="reads tables: SELECT on those captured, nothing else"
    )
    admin: Role | None = Field(
        default=None, description="used by `check --fix` and the first capture alone; take it out afterwards"
    )
    tables: tuple[str, ...] = Field(
        min_length=1, description="what to capture: `schema.table`, where `*` and `?` match within a name"
    )
    exclude: tuple[str, ...] = Field(default=(), description="what not to, in the same patterns; it wins")
    columns: dict[str, dict[str, ColumnRule]] = Field(
        default_factory=dict,
        description="columns that must not leave as they are, by table pattern: "
        "`{public.users: {ssn: exclude, email: hash, phone: mask, name: {mask: someone}}}`; see PRIVACY.md",
    )
    hash_key: SecretStr | None = Field(
        default=None, description="the key of `hash`; a file or the environment is the better place"
    )
    hash_key_file: Path | None = Field(default=None, description="a file that holds it, and it goes before `hash_key`")
    publication: str | None = Field(default=None, description="its name; else `afterimage_<pipeline>`")
    slot: str | None = Field(default=None, description="the replication slot's name; else `afterimage_<pipeline>`")
    failover: bool = Field(default=True, description="on 17 and newer, make a slot that standbys can keep a copy of")
    standbys: tuple[Annotated[str, Field(pattern=r"^.+:\d{1,5}$")], ...] = Field(
        default=(), description="`host:port` of standbys that may take over: `check` looks whether they are ready"
    )
    wal_kept_warning_bytes: int = Field(
        default=1 << 30, gt=0, description="a warning when the slot keeps more WAL than this on the server"
    )
    wal_kept_max_bytes: int = Field(
        default=10 << 30, gt=0, description="an alarm when it keeps more than this; what the server's disk can spare"
    )

    @property
    def wal_bounds(self) -> Bounds:
        """When the WAL that the slot keeps is a danger."""
        return Bounds(self.wal_kept_warning_bytes, self.wal_kept_max_bytes)

    def hash_secret(self) -> str | None:
        """The key of hashed columns; a short one is refused, since it could be guessed."""
        given = self.hash_key.get_secret_value() if self.hash_key else None
        key = given if self.hash_key_file is None else read_secret(self.hash_key_file)
        if key is not None and len(key) < _HASH_KEY_MIN:
            raise ConfigError(
                f"the hash key has fewer than {_HASH_KEY_MIN} characters: who guesses it can undo the hashes",
                "make one: openssl rand -hex 32",
                code="HASH_KEY",
            )
        return key
