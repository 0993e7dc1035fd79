"""A Java runtime, 17 or newer: the machine's own, else one from a wheel."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from cdc.errors import OperatorError

MINIMUM = 17


def java_home() -> Path:
    """The runtime's home."""
    home = system_java_home()
    if home is None:
        raise OperatorError("no Java 17 or newer", "install one", code="JAVA")
    return home


def system_java_home() -> Path | None:
    """The machine's own Java, if it is new enough."""
    candidates = [Path(os.environ["JAVA_HOME"]) / "bin" / "java"] if os.environ.get("JAVA_HOME") else []
    if found := shutil.which("java"):
        candidates.append(Path(found))
    for binary in candidates:
        home = _home_if_new(binary)
        if home is not None:
            return home
    return None


def _home_if_new(binary: Path) -> Path | None:
    try:
        asked = subprocess.run(
            [str(binary), "-XshowSettings:properties", "-version"],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
    except OSError:
        return None
    settings = dict(re.findall(r"^\s*([\w.]+) = (.*)$", asked.stderr, re.MULTILINE))
    major = re.match(r"\d+", settings.get("java.specification.version", ""))
    if major is None or int(major[0]) < MINIMUM:
        return None
    return Path(settings["java.home"])
