"""`python -m cdc.build_compiled`, part of `make setup`: compiles cdc/compiled_source into cdc._records.

In: a C compiler and Python's headers, where there are any. Out: the module, or one line that says why Python will do
its work. Keeps true: setup never fails on account of it, and a module of another source is never left in place.
"""

from __future__ import annotations

import hashlib
import importlib.machinery
import os
import shlex
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Final

SOURCE: Final = Path(__file__).parent / "compiled_source"
_FLAGS: Final = ("-O2", "-fPIC", "-shared", "-fwrapv", "-fno-strict-aliasing")


def target() -> Path:
    """Where the module lies, when it is built."""
    return SOURCE.with_name(f"_records{importlib.machinery.EXTENSION_SUFFIXES[0]}")


def is_current(path: Path) -> bool:
    """Whether the module was built from the source as it is now."""
    return path.exists() and source_digest().encode() in path.read_bytes()


def build(path: Path) -> str | None:
    """Build it there; None, or why that was not possible."""
    with tempfile.TemporaryDirectory() as folder:
        generated = Path(folder) / "_records.c"
        argv = [
            sys.executable,
            "-m",
            "cython",
            "-3",
            "--module-name",
            "cdc._records",
            str(SOURCE / "records.pyx"),
            "-o",
            str(generated),
        ]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            return f"Cython: {_last_line(done.stderr)}"
        return _compile(generated, path)


def _compile(generated: Path, path: Path) -> str | None:
    """The C compiler's part; the module gets its name only when it is whole."""
    compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")
    partial = path.with_suffix(".partial")
    argv = [*compiler, *_FLAGS, f"-I{sysconfig.get_paths()['include']}"]
    argv += [f'-DAFTERIMAGE_SOURCE="{source_digest()}"', str(generated), "-o", str(partial)]
    if sys.platform == "darwin":
        argv += ["-undefined", "dynamic_lookup"]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
    except OSError:
        return f"there is no C compiler ({compiler[0]})"
    if done.returncode != 0:
        partial.unlink(missing_ok=True)
        return f"the C compiler: {_last_line(done.stderr)}"
    partial.replace(path)
    return None


def source_digest() -> str:
    """Changes with the source."""
    whole = b"".join(path.read_bytes() for path in sorted(SOURCE.glob("*.px[yi]")))
    return "source:" + hashlib.sha256(whole).hexdigest()[:32]


def _last_line(output: str) -> str:
    return (output.strip().splitlines() or ["it failed without a word"])[-1]


def main() -> None:
    """Build it unless it is there."""
    path = target()
    if is_current(path):
        return
    path.unlink(missing_ok=True)
    why_not = build(path)
    sys.stderr.write(f"compiled encoder: {'yes' if why_not is None else f'no, {why_not}; capture will be slower'}\n")


if __name__ == "__main__":
    main()
