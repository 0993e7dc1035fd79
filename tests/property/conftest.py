"""How long properties are searched: about two seconds each, longer with AFTERIMAGE_PROPERTY_EXAMPLES."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

settings.register_profile(
    "afterimage",
    max_examples=int(os.environ.get("AFTERIMAGE_PROPERTY_EXAMPLES", "300")),
    deadline=None,
    database=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("afterimage")
