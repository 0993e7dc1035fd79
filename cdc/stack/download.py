"""One artifact, by coordinates, into a staging folder; jgo knows where artifacts live, so that this project need not.

In: an artifact, a folder, a callback for bytes. Out: a file that is NOT yet verified. Foreign errors become
TransientError.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import requests
from jgo.maven import MavenContext, PythonResolver

from cdc.errors import TransientError
from cdc.stack.locks import Artifact

TIMEOUT_S = 30


def download(artifact: Artifact, folder: Path, on_bytes: Callable[[int], None]) -> Path:
    """Fetch `artifact` below `folder`, telling `on_bytes` about every piece."""

    @contextmanager
    def piecewise(_name: str, _total: int) -> Iterator[Callable[[int], None]]:
        yield on_bytes

    def progress(name: str, total: int) -> AbstractContextManager[Callable[[int], None]]:
        return piecewise(name, total)

    group, name, version, classifier, packaging = artifact.parts
    resolver = PythonResolver(progress_callback=progress)
    context = MavenContext(resolver=resolver, repo_cache=folder, local_repos=[], timeout=TIMEOUT_S)
    wanted = context.project(group, name).at_version(version).artifact(classifier=classifier, packaging=packaging)
    try:
        return Path(wanted.resolve())
    except (requests.RequestException, OSError) as error:
        raise _failure(artifact, type(error).__name__) from error
    except RuntimeError as error:
        # All that jgo says is that none of its repositories answered with 200.
        raise _failure(artifact, "no repository gave it") from error


def _failure(artifact: Artifact, why: str) -> TransientError:
    return TransientError(
        f"cannot fetch {artifact.coordinates}: {why}",
        "check the network (proxy, certificates), the disk, and that config/locks names something that exists; "
        "what was fetched is kept, so simply run it again",
        code="FETCH",
    )
