"""The compiled encoder for tests: that of the environment when it belongs to this source, else one built for them."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from cdc import build_compiled


@cache
def built() -> Any:
    """The module."""
    path = build_compiled.target()
    if not build_compiled.is_current(path):
        path = Path(tempfile.mkdtemp()) / path.name
        why_not = build_compiled.build(path)
        assert why_not is None, why_not
    spec = importlib.util.spec_from_file_location("cdc._records", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
