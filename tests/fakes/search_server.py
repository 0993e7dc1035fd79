"""An HTTP server that answers as a script says: the moods of OpenSearch that a real one cannot be asked to have."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = tuple[int, dict[str, Any]]


@dataclass
class ScriptedSearch:
    """Gives `answers` one after the other, the last one for ever, and keeps the requests' bodies."""

    url: str
    answers: list[Answer]
    requests: list[bytes] = field(default_factory=list)

    def next(self, body: bytes) -> Answer:
        self.requests.append(body)
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]

    def sent_ids(self) -> list[list[str]]:
        """The ids of each bulk request."""
        return [
            [json.loads(line)["index"]["_id"] for line in body.splitlines() if line.startswith(b'{"index":{"_id"')]
            for body in self.requests
        ]


@contextmanager
def scripted_search(*answers: Answer) -> Iterator[ScriptedSearch]:
    """A server for the length of a `with`."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            status, answer = script.next(self.rfile.read(int(self.headers["content-length"] or 0)))
            body = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Tests are quiet."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        script = ScriptedSearch(f"http://127.0.0.1:{server.server_port}", list(answers))
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield script
        finally:
            server.shutdown()
            thread.join()
