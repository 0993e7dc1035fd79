"""Names that a query does not find although a view file declares them: not loaded yet, or kept in no Delta table.

In: the folder of the view files, a name. Out: the error in the place of an unknown name's. No server is asked: how far
the load is, and whether it has failed, `status` tells.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from cdc.errors import CdcError, ConfigError, TransientError

UNKNOWN: Final = "QUERY_UNKNOWN_TABLE"


def not_loaded(name: str) -> TransientError:
    """The error of a command that names a view of which nothing has been shown yet."""
    return TransientError(
        f"{name} is declared, and has not been loaded yet",
        "does apply run? `afterimage status` tells how far it is, or what keeps it",
        code="VIEW_LOADING",
    )


def awaited(views: Path | None, name: str) -> CdcError | None:
    """Why what is declared so cannot be read; None where no file declares it, as far as that is known."""
    if views is None or not views.is_dir():
        return None
    # Only here: what reads view files takes longer to load than a table to read.
    from jobs.declare.filed import is_filed, kept_elsewhere
    from jobs.declare.load import view_texts

    texts = view_texts(views, lambda *_: None)
    if not is_filed(name, texts):
        return None
    if not (sinks := kept_elsewhere(name, texts)):
        return not_loaded(name)
    return ConfigError(
        f"there is no derived table {name}: that view is kept in {', '.join(sinks)} alone",
        f"to query it, have a Delta table of it as well: `-- sinks: {', '.join(('delta', *sinks))}`",
        code=UNKNOWN,
    )
