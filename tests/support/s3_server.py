"""An S3 server with one bucket on loopback (moto), which counts requests and fails where a test wants it to."""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from moto.core import DEFAULT_ACCOUNT_ID
from moto.s3.models import s3_backends
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

BUSY = "503 Slow Down"
_BUSY_BODY = (
    b'<?xml version="1.0"?><Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>'
)
_ERROR_BODY = b'<?xml version="1.0"?><Error><Code>InternalError</Code><Message>An internal error</Message></Error>'


@dataclass
class Fault:
    """What happens to the next `times` requests whose method and path hold these words.

    An answer is a status, or for "cut" the right one with half of its body; `before` is called first.
    """

    words: str
    answer: str = ""
    times: int = 1
    before: Callable[[], object] | None = None


@dataclass
class Server:
    """The server: `requests` by method, the bytes that it sent, and faults to come."""

    url: str = ""
    requests: Counter[str] = field(default_factory=Counter)
    lines: list[str] = field(default_factory=list)
    sent_bytes: int = 0
    faults: list[Fault] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def reset(self) -> None:
        self.requests.clear()
        self.lines.clear()
        self.faults.clear()
        self.sent_bytes = 0

    def put(self, name: str, data: bytes) -> None:
        """Store an object in the bucket, without a request."""
        s3_backends[DEFAULT_ACCOUNT_ID]["aws"].put_object("bucket", name, data)

    @property
    def environment(self) -> dict[str, str]:
        """The environment of a process that uses the server."""
        own = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "FSSPEC_"))}
        return {
            **own,
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ACCESS_KEY_ID": "key",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def application(self, inner: Any) -> Callable[[dict[str, Any], Any], Iterable[bytes]]:
        def answer(environ: dict[str, Any], start: Any) -> Iterable[bytes]:
            query = environ.get("QUERY_STRING", "")
            line = f"{environ['REQUEST_METHOD']} {environ['PATH_INFO']}{'?' * bool(query)}{query}"
            with self._lock:
                self.requests[environ["REQUEST_METHOD"]] += 1
                self.lines.append(line)
                fault = next((fault for fault in self.faults if fault.words in line and fault.times), None)
                if fault is not None:
                    fault.times -= 1
            if fault is not None and fault.before is not None:
                fault.before()
            if fault is not None and fault.answer not in ("", "cut"):
                body = _BUSY_BODY if fault.answer == BUSY else _ERROR_BODY
                start(fault.answer, [("Content-Type", "application/xml"), ("Content-Length", str(len(body)))])
                return [b"" if environ["REQUEST_METHOD"] == "HEAD" else body]
            body = b"".join(inner(environ, start))
            with self._lock:
                self.sent_bytes += len(body)
            return [body[: len(body) // 2] if fault is not None and fault.answer == "cut" else body]

        return answer


@contextmanager
def s3_server() -> Iterator[Server]:
    """A server that listens on loopback until the block ends."""
    server = Server()
    http = make_server(
        "127.0.0.1", 0, server.application(DomainDispatcherApplication(create_backend_app)), threaded=True
    )
    server.url = f"http://127.0.0.1:{http.server_port}"
    thread = threading.Thread(target=http.serve_forever)
    thread.start()
    s3_backends[DEFAULT_ACCOUNT_ID]["aws"].create_bucket("bucket", "us-east-1")
    try:
        yield server
    finally:
        http.shutdown()
        thread.join()
        http.server_close()
        s3_backends[DEFAULT_ACCOUNT_ID]["aws"].reset()  # moto keeps buckets for the process, not for the server
