"""A YAML file of keys, read strictly, with the line of each key for errors.

In: a path. Out: its mapping and where its keys stand, or a ConfigError with file, line and column. Keeps true: no text
of the file is quoted, since it may be a secret; a key that stands twice is refused, where YAML keeps the last one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import yaml

from cdc.errors import ConfigError

_MERGE: Final = "tag:yaml.org,2002:merge"
_QUOTED: Final = re.compile(r"'(?!<)[^']{4,}'")
"""In PyYAML's problems: texts of the file, but not single characters or its own words, such as '<block end>'."""


class YamlFile:
    """One file; `body` is its mapping."""

    def __init__(self, path: Path) -> None:
        self.path = path
        text = _text(path)
        try:
            loader = _Strict(text)
            self._root = loader.get_single_node()
            body = loader.construct_document(self._root) if self._root is not None else None
        except yaml.YAMLError as error:
            raise self._refused(error) from None
        if not isinstance(body, dict) or not all(isinstance(key, str) for key in body):
            raise ConfigError(f"{path}: the file must hold keys such as `pipeline:`", "see config/afterimage.yml")
        self.body: dict[str, Any] = body

    def at(self, keys: Sequence[Any]) -> str:
        """`file:line` of the key at this path, or of the nearest one above it that is in the file."""
        node, line = self._root, None
        for wanted in keys:
            pairs = node.value if isinstance(node, yaml.MappingNode) else []
            found = next(((key, value) for key, value in pairs if key.value == str(wanted)), None)
            if found is None:
                break
            line, node = found[0].start_mark.line + 1, found[1]
        return f"{self.path}:{line}" if line is not None else str(self.path)

    def _refused(self, error: yaml.YAMLError) -> ConfigError:
        mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None)
        where = f"{self.path}:{mark.line + 1}:{mark.column + 1}" if mark is not None else str(self.path)
        said = _QUOTED.sub("..", problem) if problem else "it holds characters that YAML does not allow"
        return ConfigError(f"{where}: not YAML: {said}", "check indentation; quote texts that begin with a sign")


class _Strict(yaml.SafeLoader):
    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: dict[str, int] = {}
        for key, _ in node.value if isinstance(node, yaml.MappingNode) else []:
            if not isinstance(key, yaml.ScalarNode) or key.tag == _MERGE:
                continue
            if key.value in seen:
                problem = f"{key.value} stands here and in line {seen[key.value]}"
                raise yaml.constructor.ConstructorError(None, None, problem, key.start_mark)
            seen[key.value] = key.start_mark.line + 1
        return super().construct_mapping(node, deep)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}", "make it readable for this user") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8", "save it as UTF-8") from error
