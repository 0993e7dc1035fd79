"""The lock files under config/locks: which artifacts a server is made of, and their sha256 and size.

In: the name of a lock. Out: its artifacts for this platform. Nothing that is not listed there is ever run, and
no registry's host is named: artifacts are coordinates.
"""

from __future__ import annotations

import hashlib
import platform
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

import cdc
from cdc.errors import ConfigError, OperatorError

PLATFORMS = {
    ("linux", "x86_64"): "linux-amd64",
    ("linux", "aarch64"): "linux-arm64v8",
    ("darwin", "x86_64"): "darwin-amd64",
    ("darwin", "arm64"): "darwin-arm64v8",
}


class Artifact(BaseModel):
    """One file of a lock: `coordinates` are group:artifact:version[:classifier][:packaging]."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    coordinates: str = Field(pattern=r"^[\w.\-]+:[\w.\-]+:[\w.\-]+(:[\w.\-]*)?(:[\w.]+)?$")
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    size: int = Field(gt=0)
    dest: str | None = None
    """Its place under the server's home, where that matters."""
    platform: str | None = None
    major: int | None = None

    @property
    def parts(self) -> tuple[str, str, str, str, str]:
        """Group, artifact, version, classifier ('' if none) and packaging."""
        group, name, version, classifier, packaging = (*self.coordinates.split(":"), "", "")[:5]
        return group, name, version, classifier, packaging or "jar"

    @property
    def version(self) -> str:
        return self.parts[2]

    @property
    def filename(self) -> str:
        _, name, version, classifier, packaging = self.parts
        return f"{name}-{version}{f'-{classifier}' if classifier else ''}.{packaging}"

    @property
    def path(self) -> Path:
        """Where it lies under the cache's artifact folder."""
        group, name, version, _, _ = self.parts
        return Path(*group.split("."), name, version, self.filename)


class Lock(BaseModel):
    """One lock file."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    what: str
    requires: dict[str, str] = Field(default_factory=dict)
    """Python packages whose installed version these artifacts belong to."""
    artifacts: tuple[Artifact, ...]

    @property
    def digest(self) -> str:
        """Changes with any artifact, so that what was unpacked from an older lock is not used."""
        return hashlib.sha256("".join(artifact.sha256 for artifact in self.artifacts).encode()).hexdigest()[:12]


def config_folder() -> Path:
    """The project's data files, in an installed wheel or in a checkout."""
    package = Path(cdc.__file__).parent
    bundled = package / "_config"
    return bundled if bundled.is_dir() else package.parent / "config"


def lock_path(name: str) -> Path:
    """The lock file `name`."""
    return config_folder() / "locks" / f"{name}.json"


def load(name: str) -> Lock:
    """Read and validate one lock file."""
    path = lock_path(name)
    try:
        return Lock.model_validate_json(path.read_bytes())
    except FileNotFoundError as error:
        raise ConfigError(f"lock file {path} is missing", "restore it from the repository", code="LOCK") from error
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        hint = f"restore it, or make it again with: python -m cdc.stack.relock {name}"
        raise ConfigError(f"lock file {path} is not valid at {where}: {first['msg']}", hint, code="LOCK") from error


def this_platform() -> str:
    """This machine's name in the lock files."""
    key = (platform.system().lower(), platform.machine().lower())
    try:
        return PLATFORMS[key]
    except KeyError as error:
        raise OperatorError(
            f"no server binaries are known for {key[0]} on {key[1]}",
            f"run on one of {', '.join(PLATFORMS.values())}, or point the configuration at servers of your own",
            code="PLATFORM",
        ) from error
