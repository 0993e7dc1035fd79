"""`make compare-debezium`: one workload, captured by both sides, compared event by event.

In: a folder to work in. Out: the counts, also into docs/DEBEZIUM.md. Exit status 1 if a difference is not in the list
of justified ones, or if one of the list did not occur.
"""

from __future__ import annotations

import argparse
import json
import sys
from functools import partial
from pathlib import Path

from rich.console import Console

from bench.compare.capture import capture_both
from bench.compare.recording import recorded
from bench.compare.summary import Summary, page, summary

PAGE = Path("docs/DEBEZIUM.md")
BEGIN, END = "<!-- compared: begin -->\n", "<!-- compared: end -->\n"

_say = partial(Console(stderr=True, highlight=False, markup=False).print, soft_wrap=True)


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.compare", description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("data/compare"))
    parser.add_argument("--record", type=Path, help="where to write a small part of it, for the unit tests")
    arguments = parser.parse_args()
    both = capture_both(arguments.folder.absolute())
    found = summary(both)
    _tell(found)
    if not found.is_fine:
        return 1
    if arguments.record is not None:
        arguments.record.write_text(json.dumps(recorded(both), ensure_ascii=False, indent=1) + "\n")
    head, _, rest = PAGE.read_text().partition(BEGIN)
    PAGE.write_text(f"{head}{BEGIN}{page(found)}{END}{rest.partition(END)[2]}")
    return 0


def _tell(found: Summary) -> None:
    for name, count in sorted(found.kinds.items()):
        _say(f"{count:10,}  {name}")
    for line in found.unexplained[:50]:
        _say(f"unexplained: {line}")
    for xid in found.disordered:
        _say(f"transaction {xid} is told in different orders")
    for name in found.absent:
        _say(f"listed, but did not occur: {name}")
    _say(f"{sum(found.ops.values()):,} pairs of records, {len(found.unexplained)} unexplained differences")


if __name__ == "__main__":
    sys.exit(main())
