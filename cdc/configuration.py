"""Reads the configuration: YAML, then what the embedded stack chose, then the environment over both.

In: a path. Out: Settings, or a ConfigError that names file, key and the nearest right key. Opens no connection.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict, SettingsError

from cdc import variables
from cdc.errors import ConfigError
from cdc.nearest import suggestion
from cdc.settings import Settings, Source
from cdc.stack.state import StackState, read
from cdc.variables import keys_of
from cdc.yaml_file import YamlFile

SEARCHED: Final = (Path("afterimage.yml"), Path("config/afterimage.yml"))
PREFIX: Final = "AFTERIMAGE_"
_ROLES: Final = {name: {"user": Source.model_fields[name].default.user} for name in ("stream", "read")}
"""So that a password alone may be given, in the file or in the environment."""
_SERVERS: Final = frozenset({"postgres", "kafka", "opensearch", "valkey"})


class _Layered(Settings, BaseSettings):
    """Settings whose fields the environment may override: AFTERIMAGE_SOURCE__HOST and so on."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        env_nested_delimiter="__",
        extra="forbid",
        frozen=True,
        hide_input_in_errors=True,
        nested_model_default_partial_update=True,
    )

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """The environment first, the file (given as init values) second."""
        return env_settings, init_settings


def find_config(path: Path | None) -> Path:
    """The file that was named, or the first of the usual ones."""
    candidates = (path,) if path is not None else SEARCHED
    for candidate in candidates:
        if candidate.is_file():
            return candidate
    raise ConfigError(
        f"no configuration: {' or '.join(map(str, candidates))} is not there",
        "name one with --config, or copy config/afterimage.yml and change it",
        code="NO_CONFIG",
    )


def load_settings(path: Path | None = None) -> Settings:
    """The pipeline's settings."""
    file = YamlFile(find_config(path))
    settings = _layered(file, file.body)
    return _layered(file, _over(file.body, _embedded(settings.data))) if settings.embedded else settings


def _layered(file: YamlFile, body: dict[str, Any]) -> Settings:
    variables.refuse_unknown(PREFIX)
    if private := [key for key in body if key.startswith("_")]:  # pydantic-settings would take them for its own
        raise ConfigError(f"{file.at(private)}: {private[0]}: unknown key", "remove it")
    try:
        layered = _Layered(**variables.without_overruled(PREFIX, _over({"source": _ROLES}, body)))
    except ValidationError as error:
        raise _explained(file, error) from None
    except SettingsError:
        raise variables.not_json(PREFIX) from None
    return Settings.model_validate(layered.model_dump())


def _embedded(data: Path) -> dict[str, Any]:
    """Where the embedded servers are, once they run; without them the preferred ports stand."""
    state = _state(data / "stack.json")
    secrets = data / "secrets"
    roles = {
        "stream": {"user": "afterimage_stream", "password_file": str(secrets / "stream")},
        "read": {"user": "afterimage_read", "password_file": str(secrets / "read")},
    }
    return {"source": roles} if state is None else _over({"source": roles}, _endpoints(state))


def _state(path: Path) -> StackState | None:
    try:
        state = read(path)
        if state is None or state.servers.keys() >= _SERVERS:
            return state
    except ValidationError:
        pass
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be read: {error.strerror}", "run as the user who started the servers", code="STACK_STATE"
        ) from error
    raise ConfigError(
        f"{path} is not this version's note of which servers run",
        f"rm {path}, then: afterimage up, which finds servers that still run",
        code="STACK_STATE",
    )


def _endpoints(state: StackState) -> dict[str, Any]:
    postgres, valkey, search = state.postgres, state.valkey, state.opensearch
    admin = {"user": postgres.user, "password_file": str(postgres.password_file)}
    return {
        "source": {"host": postgres.host, "port": postgres.port, "admin": admin, "sslmode": "disable"},
        "kafka": {"bootstrap": state.kafka.address},
        "search": {"url": f"http://{search.address}"},
        "cache": {"url": f"redis://{valkey.address}/0", "password_file": str(valkey.password_file)},
    }


def _over(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(below)
    for key, value in above.items():
        old = merged.get(key)
        merged[key] = _over(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return merged


def _explained(file: YamlFile, error: ValidationError) -> ConfigError:
    problems = error.errors(include_input=False, include_url=False, include_context=False)
    lines = [f"{_place(file, problem['loc'])}: {_said(problem)}" for problem in problems]
    hints = [hint for problem in problems if (hint := _hint(problem))]
    return ConfigError("; ".join(lines), "; ".join(hints) or "docs/CONFIGURATION.md says what each key takes")


def _place(file: YamlFile, loc: Sequence[int | str]) -> str:
    """The variable that a value came from, else the file's line and the key."""
    found = variables.named(PREFIX, loc)
    return found or f"{file.at(loc)}: {'.'.join(map(str, loc))}".removesuffix(": ")


def _said(problem: Any) -> str:
    said = {"extra_forbidden": "unknown key", "missing": "is missing"}.get(problem["type"], str(problem["msg"]))
    return said.removeprefix("Value error, ")


def _hint(problem: Any) -> str | None:
    if problem["type"] != "extra_forbidden":
        return None
    *section, key = problem["loc"]
    return suggestion(str(key), keys_of(section), what="keys")
