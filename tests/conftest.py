"""The tests' common ground: fixtures come from tests/support, and a test's folder decides its marker."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest_plugins = ["tests.support.servers", "tests.support.source", "tests.support.spark", "tests.support.pipelines"]

TIERS = ("unit", "property", "contract", "simulation", "integration", "faults")


def pytest_configure(config: pytest.Config) -> None:
    for tier in TIERS:
        config.addinivalue_line("markers", f"{tier}: tests under tests/{tier}")
    config.addinivalue_line("markers", "docker: needs a Docker engine")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    root = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(root):
            tier = item.path.relative_to(root).parts[0]
            if tier in TIERS:
                item.add_marker(tier)


def pytest_report_collectionfinish(items: list[pytest.Item]) -> str:
    """Nothing is skipped without a word: how many tests need what this machine may not have."""
    docker = sum(item.get_closest_marker("docker") is not None for item in items)
    return f"{docker} of {len(items)} tests are marked docker"
