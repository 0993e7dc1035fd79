"""The documents say what the source does: each code has its entry, each key its line, each link its end."""

import ast
import json
import re
import textwrap
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import get_args

import pytest
import yaml
from jsonschema import Draft202012Validator
from pydantic import BaseModel

from cdc import configuration_docs
from cdc.cli.screen import report_error
from cdc.configuration import load_settings
from cdc.errors import OperatorError
from cdc.settings import Settings

SOURCES = [path for folder in ("afterimage", "cdc", "jobs", "sinks", "snapshot") for path in Path(folder).rglob("*.py")]
DOCUMENTS = [Path("README.md"), *Path("docs").rglob("*.md")]
RUNBOOK = Path("docs/RUNBOOK.md")
CODE = re.compile(r"[A-Z][A-Z0-9]*(_[A-Z0-9]+)*")
OTHERS = {"apply.log", "capture.log", "stack.json", "kafka.server"}
"""Dotted words that look like keys."""
NEVER_RAISED = {"ERROR"}
"""The base class's; it refuses to be raised itself."""
FINDINGS = {"critical", "warning", "make"}
"""Functions whose first argument is a code, in cdc/check; `ok` is what was found in order and needs no entry."""
TABLES = {"_Meaning", "_Refusal", "Trouble"}
"""Rows of the tables that give foreign errors their codes."""


class Codes(ast.NodeVisitor):
    """The codes of one module."""

    def __init__(self, path: Path) -> None:
        self.found: set[str] = set()
        self.unresolved: set[str] = set()
        tree = parsed(path)
        self._constants = constants(path)
        self._checks = path.is_relative_to("cdc/check")
        self.visit(tree)

    def visit_Call(self, node: ast.Call) -> None:
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        for keyword in node.keywords:
            if keyword.arg == "code":
                self._take(keyword.value, must=True)
        if name in TABLES:
            words = [each.value for each in node.args if isinstance(each, ast.Constant)]
            self.found |= {word for word in words if isinstance(word, str) and _is_code(word)}
        if self._checks and name in FINDINGS:
            self._take(node.args[0], must=True)
        for place in POSITIONS.get(name, ()):
            if place < len(node.args):
                self._take(node.args[place], must=False)
        self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        if any(isinstance(target, ast.Name) and target.id == "default_code" for target in node.targets):
            self._take(node.value, must=True)
        self.generic_visit(node)

    def _take(self, value: ast.expr, *, must: bool) -> None:
        written = self._constants.get(value.id) if isinstance(value, ast.Name) else getattr(value, "value", None)
        if isinstance(written, str) and _is_code(written):
            self.found.add(written)
        elif must:
            self.unresolved.add(ast.unparse(value))


def _is_code(word: str) -> bool:
    return CODE.fullmatch(word) is not None


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@cache
def constants(path: Path) -> dict[str, str]:
    """Module constants that hold a text, its own and imported ones."""
    found: dict[str, str] = {}
    for node in parsed(path).body:
        if isinstance(node, ast.AnnAssign | ast.Assign) and isinstance(node.value, ast.Constant):
            target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
            if isinstance(target, ast.Name) and isinstance(node.value.value, str):
                found[target.id] = node.value.value
        if isinstance(node, ast.ImportFrom) and node.module:
            origin = Path(*node.module.split(".")).with_suffix(".py")
            if origin in SOURCES:
                theirs = constants(origin)
                found |= {name.asname or name.name: theirs[name.name] for name in node.names if name.name in theirs}
    return found


def _takes_code(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Functions of a module with a parameter `code` that may be given by position, and its place in a call."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name != "ok":
            names = [argument.arg for argument in node.args.args if argument.arg != "self"]
            if "code" in names:
                yield node.name, names.index("code")


POSITIONS: dict[str, set[int]] = {}
for _path in SOURCES:
    for _name, _place in _takes_code(parsed(_path)):
        POSITIONS.setdefault(_name, set()).add(_place)


def codes_in_source() -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for path in SOURCES:
        for code in Codes(path).found - NEVER_RAISED:
            found.setdefault(code, set()).add(str(path))
    return found


def entries() -> dict[str, str]:
    parts = re.split(r"^### (.+)$", RUNBOOK.read_text(), flags=re.MULTILINE)
    assert len(set(parts[1::2])) == len(parts[1::2]), "an entry stands twice"
    return {name: text.split("\n## ")[0] for name, text in zip(parts[1::2], parts[2::2], strict=True)}


# The runbook


def test_the_collector_understands_every_code():
    """Only codes that are handed on from another error or finding may be no constants."""
    unresolved = {(str(path), text) for path in SOURCES for text in Codes(path).unresolved}
    assert {text for _, text in unresolved if not re.search(r"\bcode\b", text)} == set()


def test_every_code_has_an_entry_and_every_entry_a_code():
    codes, written = codes_in_source(), entries()
    assert {code: sorted(paths) for code, paths in codes.items() if code not in written} == {}
    assert set(written) - set(codes) == set()
    assert len(codes) > 150


def test_every_entry_says_what_became_of_the_data_and_what_to_do():
    for code, text in entries().items():
        assert re.fullmatch(r"\S.+?\*\*Data:\*\*\s\S.+?\*\*Do:\*\*\s\S.+", text.strip(), re.DOTALL), code


def test_codes_that_entries_refer_to_have_entries():
    words = set(re.findall(r"\b[A-Z]+_[A-Z_]+\b(?!\.md)", RUNBOOK.read_text())) - set(entries())
    assert {word for word in words if not word.startswith(("AFTERIMAGE_", "SSL_", "JAVA_", "ALTER_", "SQL_"))} == set()


def test_the_link_under_an_error_is_an_anchor_of_the_runbook(capsys):
    report_error(OperatorError("the slot is gone", "start over", code="SLOT_LOST"))
    link = re.search(r"docs/RUNBOOK\.md#\S+", capsys.readouterr().err)
    assert link is not None
    file, _, anchor = link[0].partition("#")
    assert anchor in anchors(Path(file))


# The configuration


@pytest.mark.parametrize(
    ("path", "text"),
    [(configuration_docs.PAGE, configuration_docs.page()), (configuration_docs.SCHEMA, configuration_docs.schema())],
)
def test_what_is_written_from_the_models_is_committed(path, text):
    assert path.read_text() == text, "run: python -m cdc.configuration_docs"


def test_the_schema_takes_the_example_files_and_refuses_others():
    schema = Draft202012Validator(json.loads(configuration_docs.SCHEMA.read_text()))
    for file in ("afterimage.yml", "compose.yml", "demo.yml"):
        assert [error.message for error in schema.iter_errors(yaml.safe_load(Path("config", file).read_text()))] == []
    assert not schema.is_valid({"pipeline": "crm", "source": {"database": "crm", "tables": ["a.b"]}, "kafak": {}})
    assert not schema.is_valid({"pipeline": "crm", "source": {"database": "crm", "tables": []}})


def test_the_readmes_example_is_a_configuration(tmp_path):
    example = re.search(r"```yaml\n(.*?)```", Path("README.md").read_text(), re.DOTALL)
    assert example is not None
    (tmp_path / "afterimage.yml").write_text(textwrap.dedent(example[1]))
    settings = load_settings(tmp_path / "afterimage.yml")
    assert settings.source.admin is not None
    assert settings.source.sslmode == "verify-full"


def keys(model: type[BaseModel] = Settings, prefix: str = "") -> Iterator[str]:
    for name, field in model.model_fields.items():
        yield prefix + name
        for kind in (field.annotation, *get_args(field.annotation)):
            if isinstance(kind, type) and issubclass(kind, BaseModel):
                yield from keys(kind, f"{prefix}{name}.")


def test_keys_that_documents_and_errors_name_exist():
    sections = "source|kafka|capture|delta|search|cache|apply|stack"
    known = {*keys(), "cache.key", "cache.ttl", "cache.value", "search.mapping"}
    named = re.compile(rf"(?<![\w./-])((?:{sections})(?:\.[a-z_]+)+)(?![\w(/-])")
    texts = {str(path): path.read_text() for path in (RUNBOOK, configuration_docs.PAGE, Path("README.md"))}
    for path in SOURCES:
        written = [each.value for each in ast.walk(parsed(path)) if isinstance(each, ast.Constant)]
        texts[str(path)] = "\n".join(text for text in written if isinstance(text, str) and " " in text)
    wrong = {
        (name, key)
        for name, text in texts.items()
        for key in named.findall(text)
        if key not in known and not key.startswith(("kafka.properties.", "kafka.example.")) and key not in OTHERS
    }
    assert wrong == set()


# Links, commands, lines


def anchors(path: Path) -> set[str]:
    """The anchors of a document's headings as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", path.read_text(), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("document", DOCUMENTS, ids=str)
def test_links_lead_somewhere(document):
    for target in re.findall(r"\]\(([^)\s]+)\)", document.read_text()):
        if "://" in target:
            continue
        name, _, anchor = target.partition("#")
        file = document.parent / name if name else document
        assert file.exists(), target
        assert not anchor or anchor in anchors(file), target


@pytest.mark.parametrize("document", DOCUMENTS, ids=str)
def test_commands_that_are_named_exist(document):
    from cdc.cli import commands
    from cdc.cli.app import app

    known = {command.name or command.callback.__name__ for command in app.registered_commands if command.callback}
    assert commands
    text = document.read_text()
    named = set(re.findall(r"(?:^    |[`/])afterimage (?:--config FILE )?([a-z]+)", text, flags=re.MULTILINE))
    assert named <= known
    targets = set(re.findall(r"^([a-z-]+):", Path("Makefile").read_text(), flags=re.MULTILINE))
    assert set(re.findall(r"(?:^    |`)make ([a-z-]+)", text, flags=re.MULTILINE)) <= targets


@pytest.mark.parametrize("document", [RUNBOOK, configuration_docs.PAGE], ids=str)
def test_lines_fit_a_terminal(document):
    long = [line for line in document.read_text().splitlines() if len(line) > 140 and not line.startswith("|")]
    assert long == []
