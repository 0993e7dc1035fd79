"""What `check` reads off the view files without a server."""

from __future__ import annotations

from pathlib import Path

from cdc.cli.view_files import sinks_needed
from cdc.settings import Settings, Source

EXAMPLES = Path(__file__).parents[2] / "config" / "views"


def settings(views: Path) -> Settings:
    return Settings(pipeline="files", source=Source(database="unused", tables=("public.*",)), views=views)


def test_the_sinks_of_views_of_any_kind(tmp_path: Path):
    (tmp_path / "joined.sql").write_text("-- sinks: search\nSELECT a.id FROM a JOIN b ON b.id = a.id")
    (tmp_path / "rows.sql").write_text("-- sinks: delta, kafka\nSELECT id FROM a")
    assert sinks_needed(settings(tmp_path)) == {"delta", "kafka", "search"}


def test_the_sinks_of_the_example():
    assert sinks_needed(settings(EXAMPLES)) == {"cache", "delta", "search"}


def test_a_wrong_file_needs_nothing(tmp_path: Path):
    (tmp_path / "wrong.sql").write_text("-- sinks: delta, kafak\nSELECT id FROM a")
    (tmp_path / "right.sql").write_text("-- sinks: cache\nSELECT id FROM a")
    assert sinks_needed(settings(tmp_path)) == {"cache"}
