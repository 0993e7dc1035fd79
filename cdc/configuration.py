"""Reads the configuration: YAML, then what the embedded stack chose, then the environment over both.

In: a path. Out: Settings, or a ConfigError that names file, key and the nearest right key. Opens no connection.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, get_args

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from cdc.errors import ConfigError
from cdc.nearest import suggestion
from cdc.settings import Settings
from cdc.stack.state import StackState, read

SEARCHED: Final = (Path("afterimage.yml"), Path("config/afterimage.yml"))
PREFIX: Final = "AFTERIMAGE_"


class _Layered(Settings, BaseSettings):
    """Settings whose fields the environment may override: AFTERIMAGE_SOURCE__HOST and so on."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        env_nested_delimiter="__",
        extra="forbid",
        frozen=True,
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
    file = find_config(path)
    body = _read(file)
    if body.get("embedded"):
        body = _over(body, _embedded(Path(str(body.get("data", "data")))))
    try:
        layered = _Layered(**body)
    except ValidationError as error:
        raise _explained(file, error) from None
    return Settings.model_validate(layered.model_dump())


def _read(file: Path) -> dict[str, Any]:
    try:
        body = yaml.safe_load(file.read_text())
    except OSError as error:
        raise ConfigError(f"{file}: {error.strerror}", "make it readable") from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{file}:{mark.line + 1}:{mark.column + 1}" if mark is not None else str(file)
        raise ConfigError(f"{where}: not YAML: {getattr(error, 'problem', error)}", "check the indentation") from error
    if not isinstance(body, dict):
        raise ConfigError(
            f"{file}: the file must hold keys such as `pipeline` and `source`", "see config/afterimage.yml"
        )
    return body


def _embedded(data: Path) -> dict[str, Any]:
    """Where the embedded servers are, once they run; without them the preferred ports stand."""
    state = read(data / "stack.json")
    secrets = data / "secrets"
    roles = {
        "stream": {"user": "afterimage_stream", "password_file": str(secrets / "stream")},
        "read": {"user": "afterimage_read", "password_file": str(secrets / "read")},
    }
    return {"source": roles} if state is None else _over({"source": roles}, _endpoints(state))


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


def _explained(file: Path, error: ValidationError) -> ConfigError:
    problems = error.errors(include_input=False, include_url=False)
    lines = [f"{'.'.join(map(str, problem['loc'])) or 'configuration'}: {_said(problem)}" for problem in problems]
    hints = [hint for problem in problems if (hint := _hint(problem))]
    return ConfigError(f"{file}: {'; '.join(lines)}", "; ".join(hints) or "see docs/CONFIGURATION.md", code="CONFIG")


def _said(problem: Any) -> str:
    return "unknown key" if problem["type"] == "extra_forbidden" else str(problem["msg"])


def _hint(problem: Any) -> str | None:
    if problem["type"] != "extra_forbidden":
        return None
    *section, key = problem["loc"]
    return suggestion(str(key), _keys(section), what="keys")


def _keys(section: list[Any]) -> list[str]:
    model: type[BaseModel] = Settings
    for name in section:
        field = model.model_fields.get(str(name))
        found = [kind for kind in (field.annotation, *get_args(field.annotation)) if _is_model(kind)] if field else []
        if not found:
            return []
        model = found[0]
    return list(model.model_fields)


def _is_model(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)
