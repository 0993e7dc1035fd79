"""docs/EXAMPLE.md, block by block on a real pipeline: what it says is run, and answered as it says."""

from __future__ import annotations

import contextlib
import io
import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import redis
import requests

from tests.support.pipelines import Pipeline, Stores, pipeline_on
from tests.support.servers import PostgresServer
from tests.support.wait import wait_until

PAGE = Path("docs/EXAMPLE.md")
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
SERVER = "http://localhost:9200"
OMITTED = "..."
"""The rest of an answer is not on the page."""


@dataclass(frozen=True)
class Step:
    """A command of a console block, and what the page says that it answers."""

    command: str
    answer: str

    def is_answered_by(self, actual: str) -> bool:
        """Apart from blanks, positions, seconds and generations."""
        if self.answer.startswith("{"):
            return unversioned(json.loads(self.answer)) == unversioned(json.loads(actual))
        wanted, found = comparable(self.answer), comparable(actual)
        if wanted[-1:] == [OMITTED]:
            wanted.pop()
            found = found[: len(wanted)]
        return wanted == found


def unversioned(answer: Any) -> Any:
    return answer | {"_lsn": None} if "_lsn" in answer else answer


VARIABLE = {
    r"\b0/[0-9A-F]+": "LSN",
    r"\(\d+\.\d s\)": "(S)",
    r"^( ✓ .*) \d+\.\d *$": r"\1 S",
    r"\b\d{13,}\b": "GENERATION",
}


def comparable(text: str) -> list[str]:
    for pattern, stands_for in VARIABLE.items():
        text = re.sub(pattern, stands_for, text, flags=re.MULTILINE)
    return [" ".join(line.split()) for line in text.splitlines() if line.strip()]


def steps(block: str) -> Iterator[Step]:
    """A command begins with a prompt; a quote that is open goes on in the next line, and so does a backslash."""
    for part in re.split(r"^(?=\$ |shop=> )", block, flags=re.MULTILINE)[1:]:
        words, lines = "", part.splitlines(keepends=True)
        while lines and (not words or words.count("'") % 2 or words.endswith("\\\n")):
            words += lines.pop(0)
        yield Step(words.strip(), "".join(lines).strip())


class Reader:
    """Who follows the page: types its commands, with the names, addresses and positions of this pipeline."""

    def __init__(self, shop: Pipeline) -> None:
        self._shop = shop
        self._said = {SERVER: shop.settings.search.url, "shop-": f"{shop.settings.pipeline}-"}
        self._said["shop:"] = f"{shop.settings.pipeline}:"
        secret = shop.settings.cache.secret()
        self._cache = redis.Redis.from_url(shop.settings.cache.url, password=secret, decode_responses=True)

    def follow(self, step: Step) -> str:
        """Its answer; positions and generations that the page names stand for what was answered here."""
        command = self.here(step.command)
        match command.split()[:2]:
            case ["$", "psql"]:
                return ""
            case ["shop=>", _]:
                answer = self._sql(command.removeprefix("shop=> "))
            case ["$", "afterimage"]:
                done = self._shop.run(*shlex.split(command)[2:])
                assert done.returncode == 0, done.stderr + self._shop.apply.text()[-3000:]
                answer = done.stdout + done.stderr
            case ["$", "curl"]:
                answer = self._curl(shlex.split(command)[2:])
            case ["$", "redis-cli"]:
                answer = str(self._cache.execute_command(*shlex.split(command)[2:]))
            case _:
                raise AssertionError(step.command)
        if re.fullmatch(r"0/[0-9A-F]+|\d{13,}", step.answer):
            self._said[step.answer] = answer
        return answer

    def here(self, text: str) -> str:
        for written, meant in self._said.items():
            text = text.replace(written, meant)
        return text

    def _sql(self, statement: str) -> str:
        done = self._shop.admin.execute(statement)
        return str(done.fetchall()[0][0]) if done.description else str(done.statusmessage)

    @staticmethod
    def _curl(words: list[str]) -> str:
        [url] = [word for word in words if word.startswith("http")]
        if "-d" not in words:
            return requests.get(url, timeout=30).text
        body, [name, value] = words[words.index("-d") + 1], words[words.index("-H") + 1].split(": ")
        answer = requests.post(url, data=body.encode(), headers={name: value}, timeout=30)
        answer.raise_for_status()
        return answer.text


@pytest.fixture
def blocks() -> Iterator[tuple[str, str]]:
    return iter(BLOCK.findall(PAGE.read_text()))


@pytest.fixture
def shop(
    postgres: PostgresServer, stores: Stores, tmp_path: Path, blocks: Iterator[tuple[str, str]]
) -> Iterator[Pipeline]:
    """The page's first two blocks, captured."""
    (_, ddl), (_, view) = next(blocks), next(blocks)
    views = {"catalogue": view}
    with pipeline_on(postgres, stores, tmp_path, views, ddl=ddl, tables=("public.*",), exclude=()) as made:
        made.admin.execute("SET search_path TO public")
        made.start()
        made.catch_up(600)
        yield made


def test_the_page_is_true(shop: Pipeline, blocks: Iterator[tuple[str, str]]):
    reader, file = Reader(shop), shop.settings.views / "catalogue.sql"
    last: dict[str, Step] = {}
    followed = []
    for language, block in blocks:
        followed.append(language)
        if language == "sql":
            file.write_text(re.sub(r"^-- search\.mapping: .*\n", block, file.read_text(), flags=re.MULTILINE))
        elif language == "python":
            require_printed(reader.here(block))
        for step in steps(block) if language == "console" else ():
            if (former := last.get(step.command)) is None:
                answer = reader.follow(step)
                assert step.is_answered_by(answer), f"{step.command}\n{answer}\ninstead of\n{step.answer}"
            else:
                # Until the new index is complete, the former one answers.
                wait_until(lambda: is_answered(reader, step, former), what=step.command, timeout_s=240)  # noqa: B023
            last[step.command] = step
    assert followed == ["console"] * 2 + ["console", "python"] + ["console"] * 4 + ["sql", "console"]


def is_answered(reader: Reader, step: Step, former: Step) -> bool:
    answer = reader.follow(step)
    assert step.is_answered_by(answer) or former.is_answered_by(answer), answer
    return step.is_answered_by(answer)


def require_printed(code: str) -> None:
    """What the block prints is the comment at its end."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(code, {})
    assert printed.getvalue().splitlines() == [line[2:] for line in code.splitlines() if line.startswith("# ")]
