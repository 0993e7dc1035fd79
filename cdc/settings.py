"""The configuration: one YAML file, environment variables over it, each component owning its own small section.

In: a file, AFTERIMAGE_* variables, and what the embedded stack chose. Out: frozen, validated sections, or a
ConfigError that names the key and the nearest right one. No connection is opened here; secrets are SecretStr.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator, model_validator


class Section(BaseModel):
    """Frozen, and unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Role(Section):
    """A Postgres login; the password comes from a file or the environment sooner than from the YAML."""

    user: str
    password: SecretStr | None = None
    password_file: Path | None = None

    def secret(self) -> str | None:
        """The password, read anew each time so that a rotated file is seen."""
        if self.password_file is not None:
            return self.password_file.expanduser().read_text().strip()
        return self.password.get_secret_value() if self.password else None


class Source(Section):
    """The Postgres database, its two roles, and what is captured of it."""

    host: str = "127.0.0.1"
    port: int = 5432
    database: str
    sslmode: Literal["disable", "prefer", "require", "verify-ca", "verify-full"] = "prefer"
    sslrootcert: Path | None = None
    stream: Role = Role(user="afterimage_stream")
    read: Role = Role(user="afterimage_read")
    admin: Role | None = Field(default=None, description="used by `check --fix` alone")
    tables: tuple[str, ...] = Field(min_length=1, description="schema.table, `*` and `?` match within a name")
    exclude: tuple[str, ...] = ()
    publication: str | None = None
    slot: str | None = None
    wal_kept_warning_bytes: int = Field(default=1 << 30, gt=0)


class Kafka(Section):
    """The broker and the shape of the topics."""

    bootstrap: str = "127.0.0.1:9092"
    partitions: int = Field(default=2, ge=1, le=1000)
    replication_factor: int = Field(default=1, ge=1)
    properties: dict[str, str] = Field(default_factory=dict, description="librdkafka properties: security.protocol..")


class Capture(Section):
    """How capture batches: one Kafka transaction ends at whichever limit is reached first."""

    flush_interval_s: float = Field(default=0.02, gt=0)
    batch_records_max: int = Field(default=50_000, gt=0)
    batch_bytes_max: int = Field(default=32 << 20, gt=0)
    transaction_timeout_s: float = Field(default=60, gt=0)
    spill_bytes: int = Field(default=64 << 20, gt=0, description="a transaction above this is buffered on disk")
    snapshot_readers: int = Field(default=2, ge=1, le=64)
    idle_interval_s: float = Field(default=0.5, gt=0)


class Delta(Section):
    """Where the Delta tables live."""

    path: str = "data/delta"
    storage_options: dict[str, str] = Field(default_factory=dict)


class Search(Section):
    """OpenSearch, if any view has the `search` sink."""

    url: str = "http://127.0.0.1:9200"
    user: str | None = None
    password: SecretStr | None = None
    password_file: Path | None = None
    gc_deletes: str = "1h"


class Cache(Section):
    """Valkey or Redis, if any view has the `cache` sink."""

    url: str = "redis://127.0.0.1:6379/0"
    password: SecretStr | None = None
    password_file: Path | None = None
    tombstone_ttl_s: int = Field(default=3600, gt=0)


class Apply(Section):
    """The PySpark side."""

    master: str = "local[*]"
    driver_memory: str = "1g"
    spark: dict[str, str] = Field(default_factory=dict, description="any Spark setting")
    interval_s: float = Field(default=0.2, ge=0, description="least time between two batches")
    dead_letters_max: int = Field(default=100, ge=0, description="a sink that rejects more rows than this stops")


class Stack(Section):
    """The embedded servers' preferred ports; another free one is taken when one is in use."""

    postgres: int = 15432
    kafka: int = 19092
    opensearch: int = 19200
    valkey: int = 16379
    postgres_version: Literal["14", "15", "16", "17", "18"] = "17"


class Settings(Section):
    """A pipeline: everything that one configuration file says."""

    pipeline: str = Field(pattern=r"^[a-z][a-z0-9_]{0,39}$")
    embedded: bool = Field(default=False, description="run the servers too, and take their addresses from them")
    data: Path = Path("data")
    views: Path = Path("config/views")
    source: Source
    kafka: Kafka = Kafka()
    capture: Capture = Capture()
    delta: Delta = Delta()
    search: Search = Search()
    cache: Cache = Cache()
    apply: Apply = Apply()
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
