"""The tests' common ground: fixtures come from tests/support, and a test's folder decides its marker."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.support.postgres_version import MAJOR

pytest_plugins = ["tests.support.servers", "tests.support.source", "tests.support.spark", "tests.support.pipelines"]

TIERS = ("unit", "property", "contract", "simulation", "integration", "faults", "large")

_DOCKER = pytest.StashKey[tuple[int, int]]()


def pytest_configure(config: pytest.Config) -> None:
    for tier in TIERS:
        config.addinivalue_line("markers", f"{tier}: tests under tests/{tier}")
    config.addinivalue_line("markers", "docker: needs a Docker engine")
    config.addinivalue_line("markers", "matrix: run against every Postgres version by `make test-matrix`")
    config.addinivalue_line("markers", "since(major): of something that older Postgres versions do not have")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    root = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(root):
            tier = item.path.relative_to(root).parts[0]
            if tier in TIERS:
                item.add_marker(tier)
        is_large = item.get_closest_marker("large") is not None
        if isinstance(item, pytest.Function) and not is_large and _depends_on_postgres(item.fixturenames):
            item.add_marker("matrix")
    if too_new := [item for item in items if any(mark.args[0] > MAJOR for mark in item.iter_markers("since"))]:
        config.hook.pytest_deselected(items=too_new)
        items[:] = [item for item in items if item not in too_new]


def _depends_on_postgres(fixtures: Iterable[str]) -> bool:
    """Talks to the Postgres under test, without what is the same for every version: Spark and the views' stores."""
    return "postgres" in fixtures and not {"postgres_major", "spark", "opensearch", "stack"}.intersection(fixtures)


def pytest_report_collectionfinish(items: list[pytest.Item]) -> str:
    """Nothing is skipped without a word: how many tests need what this machine may not have."""
    return _docker_words(*_counted(items))


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A worker tells what it collected, since the process that prints collects nothing."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["docker"] = _counted(session.items)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Every worker collects all tests: the last one's word is all of theirs."""
    if told := getattr(node, "workeroutput", {}).get("docker"):
        node.config.stash[_DOCKER] = tuple(told)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Print what the workers told."""
    if told := config.stash.get(_DOCKER, None):
        terminalreporter.write_line(_docker_words(*told))


def _counted(items: list[pytest.Item]) -> tuple[int, int]:
    return sum(item.get_closest_marker("docker") is not None for item in items), len(items)


def _docker_words(docker: int, tests: int) -> str:
    return f"{docker} of {tests} tests are marked docker"
