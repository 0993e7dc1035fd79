"""`make fuzz`: atheris, guided by which branches an input reaches; RUNS inputs, each within 2 s, 700 MB in all.

In: libFuzzer's flags. Out: exit 0 when nothing but values and ProtocolErrors came; else the input that broke it, in a
file that libFuzzer names.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["cdc", "snapshot"]):
    from tests.fuzz.targets import run_one, seeds


def main() -> None:
    """Run until the inputs are used up."""
    with tempfile.TemporaryDirectory(prefix="afterimage-fuzz-") as folder:
        for number, seed in enumerate(seeds()):
            (Path(folder) / str(number)).write_bytes(seed)
        limits = ["-timeout=2", "-rss_limit_mb=700", "-max_len=65536", "-print_final_stats=1"]
        atheris.Setup([sys.argv[0], folder, *limits, *sys.argv[1:]], lambda data: run_one(data) and None)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
