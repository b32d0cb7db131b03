"""A web server on the loopback, with the faults that servers have."""

from __future__ import annotations

import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any


class Loopback:
    """Serves `files` by name.

    ranges    whether it can go on in the middle of a file
    cuts      after how many bytes each of the next answers ends; None: it does not
    lengths   whether it tells how much is to come
    requests  what was asked so far: name and range
    """

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.ranges = self.lengths = True
        self.wrong_range = False
        self.cuts: list[int | None] = []
        self.requests: list[tuple[str, str | None]] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Loopback:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        site = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                name = self.path.lstrip("/")
                asked = self.headers.get("Range")
                site.requests.append((name, asked))
                if name not in site.files:
                    self.send_error(404)
                    return
                content, start = site.files[name], 0
                if asked and site.ranges:
                    start = int(asked.removeprefix("bytes=").removesuffix("-"))
                    if start >= len(content):
                        self.send_response(416)
                        self.send_header("Content-Range", f"bytes */{len(content)}")
                        self.end_headers()
                        return
                    told = 0 if site.wrong_range else start
                    self.send_response(206)
                    self.send_header("Content-Range", f"bytes {told}-{len(content) - 1}/{len(content)}")
                else:
                    self.send_response(200)
                if site.lengths:
                    self.send_header("Content-Length", str(len(content) - start))
                self.end_headers()
                cut = site.cuts.pop(0) if site.cuts else None
                with suppress(ConnectionError):  # a client that hangs up
                    self.wfile.write(content[start:] if cut is None else content[start : start + cut])

            def log_message(self, format: str, *args: Any) -> None:
                pass

        return Handler
