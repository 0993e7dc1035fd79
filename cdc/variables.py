"""Environment variables that name a key: AFTERIMAGE_SOURCE__READ__PASSWORD is source.read.password.

In: the environment and the shape of Settings. Out: which variable gave a key, and ConfigErrors about wrong ones. Keeps
true: no variable's value is quoted; a misspelt section is an error, since it would else change nothing in silence.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any, Final, get_args, get_origin

from pydantic import BaseModel

from cdc.errors import ConfigError
from cdc.nearest import suggestion
from cdc.settings import Settings

_NESTED: Final = "__"
_PAIRS: Final = (("password", "password_file"), ("hash_key", "hash_key_file"))
_EITHER: Final = {**dict(_PAIRS), **{file: given for given, file in _PAIRS}}


def named(prefix: str, keys: Sequence[Any]) -> str | None:
    """The variable that gives this key, if it is set."""
    wanted = prefix + _NESTED.join(str(key) for key in keys)
    return next((name for name in os.environ if name.upper() == wanted.upper()), None)


def refuse_unknown(prefix: str) -> None:
    """Refuse a variable of a section that does not exist; one without `__` may be anybody's."""
    for name, (first, *rest) in _paths(prefix).items():
        if rest and first not in Settings.model_fields:
            right = suggestion(first, Settings.model_fields, what="sections")
            raise ConfigError(f"{name}: there is no section {first}", right)


def without_overruled(prefix: str, body: Mapping[str, Any]) -> dict[str, Any]:
    """The file's keys without a password file that a password of the environment replaces, and the other way round."""
    left = dict(body)
    for path in _paths(prefix).values():
        if path[-1] in _EITHER:
            left = _without(left, [*path[:-1], _EITHER[path[-1]]])
    return left


def not_json(prefix: str) -> ConfigError:
    """The error for a variable that must hold JSON, being a list or a section, and does not."""
    wrong = [name for name, path in _paths(prefix).items() if _is_complex(path) and not _is_json(os.environ[name])]
    return ConfigError(
        f"{' and '.join(wrong) or prefix + '..'}: not JSON, which lists and sections need",
        """for example AFTERIMAGE_SOURCE__TABLES='["public.*"]'""",
    )


def keys_of(section: Sequence[Any]) -> list[str]:
    """The keys that a section of the configuration has."""
    model = _model(section)
    return list(model.model_fields) if model is not None else []


def _paths(prefix: str) -> dict[str, list[str]]:
    found = [name for name in os.environ if name.upper().startswith(prefix)]
    return {name: name[len(prefix) :].lower().split(_NESTED) for name in found}


def _without(body: dict[str, Any], path: Sequence[str]) -> dict[str, Any]:
    first, *rest = path
    inner = body.get(first)
    if not rest:
        return {key: value for key, value in body.items() if key != first}
    return {**body, first: _without(inner, rest)} if isinstance(inner, dict) else body


def _is_complex(path: Sequence[str]) -> bool:
    model = _model(path[:-1])
    field = model.model_fields.get(path[-1]) if model is not None else None
    kinds = (field.annotation, *get_args(field.annotation)) if field is not None else ()
    return any(get_origin(kind) in (tuple, dict) or _is_model(kind) for kind in kinds)


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def _model(section: Sequence[Any]) -> type[BaseModel] | None:
    model: type[BaseModel] = Settings
    for name in section:
        field = model.model_fields.get(str(name))
        found = [kind for kind in (field.annotation, *get_args(field.annotation)) if _is_model(kind)] if field else []
        if not found:
            return None
        model = found[0]
    return model


def _is_model(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)
