"""Metrics over HTTP, where the configuration asks for them.

In: an address and a port. Out: `GET /metrics` from a thread of its own. Keeps true: a port that is taken, by another
pipeline perhaps, is a warning and never stops what is measured.
"""

from __future__ import annotations

from prometheus_client import start_http_server

from cdc.log import get
from cdc.metrics import REGISTRY
from cdc.settings import Metrics

_log = get(__name__)


def serve_metrics(metrics: Metrics, port: int | None) -> None:
    """Serve until the process ends; nothing where no port is configured."""
    if port is None:
        return
    try:
        server, _ = start_http_server(port, addr=metrics.host, registry=REGISTRY)
    except OSError as error:
        _log.warning(
            "metrics are not served",
            code="METRICS_PORT",
            address=f"{metrics.host}:{port}",
            reason=error.strerror,
            remedy="choose another port under `metrics`: two processes on a machine need two",
        )
    else:
        _log.info("metrics are served", address=f"{metrics.host}:{server.server_port}", path="/metrics")
