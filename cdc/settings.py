"""The configuration: one YAML file, environment variables over it, each component owning its own small section.

In: a file, AFTERIMAGE_* variables, and what the embedded stack chose. Out: frozen, validated sections, or a
ConfigError that names the key and the nearest right one. No connection is opened here; secrets are SecretStr.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    field_validator,
    model_validator,
)

from cdc.errors import ConfigError
from cdc.retention import Bounds

_GIVEN = "its password; a file or the environment is the better place"
_HASH_KEY_MIN: Final = 16
_GIVEN_BY_FILE = "a file that holds the password; read at each login, and it goes before `password`"
_AUTHORITY = "the authority that signed its certificate, in PEM; else those that this machine trusts"


class Section(BaseModel):
    """Frozen, and unknown keys are refused."""

    # No value in any error: it may be a password.
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


class Protected(Section):
    """What is reached with a password; a file or the environment is a better place for it than the YAML."""

    password: SecretStr | None = Field(default=None, description=_GIVEN)
    password_file: Path | None = Field(default=None, description=_GIVEN_BY_FILE)

    def secret(self) -> str | None:
        """The password, read anew each time so that a rotated file is seen."""
        if self.password_file is None:
            return self.password.get_secret_value() if self.password else None
        return _read_secret(self.password_file)


def _read_secret(path: Path) -> str:
    try:
        return path.expanduser().read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"cannot read the password file {path}: {getattr(error, 'strerror', 'not text')}",
            "make it readable for this user, or name another one in the configuration",
            code="PASSWORD_FILE",
        ) from error


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
        key = given if self.hash_key_file is None else _read_secret(self.hash_key_file)
        if key is not None and len(key) < _HASH_KEY_MIN:
            raise ConfigError(
                f"the hash key has fewer than {_HASH_KEY_MIN} characters: who guesses it can undo the hashes",
                "make one: openssl rand -hex 32",
                code="HASH_KEY",
            )
        return key


class Kafka(Section):
    """The broker and the shape of the topics."""

    bootstrap: str = Field(default="127.0.0.1:9092", description="`host:port`, several between commas")
    partitions: int = Field(
        default=2, ge=1, le=1000, description="of each table's topic; fixed once topics exist, since keys hash to them"
    )
    replication_factor: int = Field(default=1, ge=1, description="of new topics; 3 where there are three brokers")
    properties: dict[str, str] = Field(
        default_factory=dict,
        repr=False,
        description="librdkafka's properties: `security.protocol` and so on; apply translates them for Spark",
    )
    property_files: dict[str, Path] = Field(
        default_factory=dict,
        description="properties that are secrets, each in a file read at each connection: `{sasl.password: ..}`",
    )

    def client_properties(self) -> dict[str, str]:
        """librdkafka's properties, with the secrets that files hold; never logged."""
        return {**self.properties, **{name: _read_secret(file) for name, file in self.property_files.items()}}


class Capture(Section):
    """How capture batches: one Kafka transaction ends at whichever limit is reached first."""

    flush_interval_s: float = Field(default=0.02, gt=0, description="the longest that a change waits for others")
    batch_records_max: int = Field(default=50_000, gt=0, description="records in one Kafka transaction")
    batch_bytes_max: int = Field(default=32 << 20, gt=0, description="bytes in one Kafka transaction")
    transaction_timeout_s: float = Field(
        default=60, gt=0, description="Kafka aborts a transaction of a capture that died after so long"
    )
    keepalive_s: float = Field(
        default=10,
        gt=0,
        description="how often Postgres is asked for a sign of life; capture reconnects after twice as long without",
    )
    spill_bytes: int = Field(
        default=64 << 20,
        gt=0,
        description="what all open Postgres transactions together have above this is buffered on disk, under `data`",
    )
    messages: bool = Field(
        default=True,
        description="publish what applications write with `pg_logical_emit_message`, in `<pipeline>._messages`",
    )
    snapshot_readers: int = Field(default=2, ge=1, le=64, description="connections that read the first snapshot")
    idle_interval_s: float = Field(
        default=0.5, gt=0, description="how often the position is recorded while nothing that is captured changes"
    )
    lookout_interval_s: float = Field(
        default=5, gt=0, description="how often the catalogue is asked for changes of tables that the log does not tell"
    )


class Snapshot(Section):
    """How large tables are read: in chunks of their primary key, while the log is followed."""

    chunked_above_bytes: int = Field(
        default=1 << 30,
        ge=0,
        description="the first snapshot reads a larger table in chunks; smaller ones are read in one piece before the "
        "log is followed, and again from their beginning if capture dies meanwhile",
    )
    workers: int = Field(default=2, ge=1, le=64, description="connections that read chunks")
    chunk_rows: int = Field(default=20_000, gt=0, description="rows in a chunk, each read in its own transaction")
    chunk_bytes: int = Field(default=16 << 20, gt=0, description="about how large a chunk may be: fewer rows if wide")
    rows_per_s: int | None = Field(default=None, gt=0, description="the rate of all readers together; else no limit")


class Delta(Section):
    """Where the Delta tables live."""

    path: str = Field(default="data/delta", description="a folder; the tables lie under `<path>/<pipeline>/`")
    storage_options: dict[str, str] = Field(
        default_factory=dict,
        repr=False,
        description="for delta-rs where the path is not a local one; Spark takes its own from `apply.spark`",
    )


class Search(Protected):
    """OpenSearch, if any view has the `search` sink."""

    url: str = Field(default="http://127.0.0.1:9200", description="without a login in it")
    user: str | None = Field(default=None, description="its user, where there are users")
    ca_file: Path | None = Field(default=None, description=_AUTHORITY)
    gc_deletes: str = Field(
        default="1h", description="how long an index remembers deletes; longer than a batch may be repeated after"
    )


class Cache(Protected):
    """Valkey or Redis, if any view has the `cache` sink."""

    url: str = Field(
        default="redis://127.0.0.1:6379/0", repr=False, description="`redis://`, `rediss://`, `unix://`, `valkey://`"
    )
    ca_file: Path | None = Field(default=None, description=_AUTHORITY)
    tombstone_ttl_s: int = Field(
        default=3600, gt=0, description="how long deletes are remembered; longer than a batch may be repeated after"
    )


class Apply(Section):
    """The PySpark side."""

    master: str = Field(default="local[*]", description="the Spark master; `apply --master` overrides it")
    driver_memory: str = Field(default="1g", description="the heap of Spark's driver, as Spark writes sizes")
    spark: dict[str, str] = Field(
        default_factory=dict,
        repr=False,
        description="any Spark setting; it goes before our own, and JVM options are added to them",
    )
    interval_s: float = Field(default=0.2, ge=0, description="the least time between the starts of two batches")
    unfit_values: Literal["stop", "dead_letter"] = Field(
        default="stop",
        description="what a value that its Delta type cannot hold does: `stop` apply, or `dead_letter`: views "
        "that read it lack its row, and say so",
    )
    dead_letters_max: int = Field(
        default=100,
        ge=0,
        description="apply stops when a sink has refused, or a view lacks, more rows of a view than this",
    )


class Metrics(Section):
    """Prometheus metrics over HTTP, for those who ask for them; without a login, so on loopback."""

    host: str = Field(default="127.0.0.1", description="the address to listen on")
    capture_port: int | None = Field(
        default=None,
        ge=0,
        le=65535,
        description="capture's port; none: no metrics; 0: any free one, which the log names",
    )
    apply_port: int | None = Field(default=None, ge=0, le=65535, description="apply's port, in the same way")


class Stack(Section):
    """The embedded servers' preferred ports; another free one is taken when one is in use."""

    postgres: int = Field(default=15432, description="Postgres")
    kafka: int = Field(default=19092, description="Kafka; its controller takes the next one")
    opensearch: int = Field(default=19200, description="OpenSearch; its transport takes the next one")
    valkey: int = Field(default=16379, description="Valkey")
    postgres_version: Literal["14", "15", "16", "17", "18"] = Field(
        default="17", description="Postgres's major version"
    )


class Settings(Section):
    """A pipeline: everything that one configuration file says."""

    pipeline: str = Field(
        pattern=r"^[a-z][a-z0-9_]{0,39}$",
        description="its name: the prefix of topics, indexes and cache keys, and the folder of its Delta tables",
    )
    embedded: bool = Field(default=False, description="run the servers too, and take their addresses from them")
    data: Path = Field(
        default=Path("data"), description="where capture and apply write: buffers, logs, embedded servers"
    )
    views: Path = Field(default=Path("config/views"), description="the folder of view files, `*.sql`")
    source: Source
    kafka: Kafka = Kafka()
    capture: Capture = Capture()
    snapshot: Snapshot = Snapshot()
    delta: Delta = Delta()
    search: Search = Search()
    cache: Cache = Cache()
    apply: Apply = Apply()
    metrics: Metrics = Metrics()
    stack: Stack = Stack()

    @field_validator("data", "views")
    @classmethod
    def _expand(cls, path: Path) -> Path:
        return path.expanduser()

    @model_validator(mode="after")
    def _distinct_roles(self) -> Settings:
        if self.source.stream.user == self.source.read.user:
            raise ValueError("source.stream and source.read must be two roles: REPLICATION reads the whole cluster")
        return self

    @property
    def publication(self) -> str:
        """The publication's name."""
        return self.source.publication or f"afterimage_{self.pipeline}"

    @property
    def slot(self) -> str:
        """The slot's name."""
        return self.source.slot or f"afterimage_{self.pipeline}"

    @property
    def delta_root(self) -> str:
        """The folder of the pipeline's Delta tables."""
        return f"{self.delta.path.rstrip('/')}/{self.pipeline}"
