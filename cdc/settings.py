"""The configuration: one YAML file, environment variables over it, each component owning its own small section.

In: a file, AFTERIMAGE_* variables, and what the embedded stack chose. Out: frozen, validated sections, or a
ConfigError that names the key and the nearest right one. No connection is opened here; secrets are SecretStr.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, Literal

from pydantic import Field, field_validator, model_validator

from cdc.history_settings import History
from cdc.sections import Protected, Section, read_secret
from cdc.source_settings import EXCLUDE, HASH, MASK, Mask, Role, Source

__all__ = [
    "EXCLUDE",
    "HASH",
    "MASK",
    "Apply",
    "Cache",
    "Capture",
    "Delta",
    "History",
    "Kafka",
    "Mask",
    "Metrics",
    "Prove",
    "Role",
    "Search",
    "Settings",
    "Snapshot",
    "Source",
    "Stack",
]

_UNITS_S: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_AUTHORITY: Final = "the authority that signed its certificate, in PEM; else those that this machine trusts"


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
        return {**self.properties, **{name: read_secret(file) for name, file in self.property_files.items()}}


class Capture(Section):
    """How capture batches: one Kafka transaction ends at whichever limit is reached first."""

    flush_interval_s: float = Field(default=0.005, gt=0, description="the longest that a change waits for others")
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
    deletion_vectors: bool = Field(
        default=False,
        description="small batches mark the rows that they replace instead of writing files anew: several times as "
        "fast; only for readers that know deletion vectors, and a local path",
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


class Prove(Section):
    """How proofs read, and how often apply proves all views by itself."""

    chunk_rows: int = Field(
        default=50_000,
        gt=0,
        description="a view with about more rows is proved in chunks of its key, each at one LSN; apply is held, and a "
        "transaction open on the source, for no longer than a chunk takes",
    )
    rows_per_s: int | None = Field(
        default=None, gt=0, description="the rate over all chunks, by pauses between them; else no limit"
    )
    every: str | None = Field(
        default=None,
        pattern=r"^[1-9]\d{0,5}[smhd]$",
        description="how often the running apply proves every view: `30m`, `1h`, `1d`; none: only when asked",
    )
    repair: bool = Field(default=False, description="whether these proofs mend what differs, and prove that again")

    @property
    def every_s(self) -> float | None:
        """`every` in seconds."""
        return int(self.every[:-1]) * _UNITS_S[self.every[-1]] if self.every is not None else None


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
    history: History = History()
    search: Search = Search()
    cache: Cache = Cache()
    apply: Apply = Apply()
    prove: Prove = Prove()
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
