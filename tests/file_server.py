"""A server of files on this machine, for what is downloaded."""

import contextlib
import http.server
import os
import threading


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers with the server's files, from the asked byte on where the server can resume."""

    def do_GET(self):
        asked_range = self.headers.get("Range")
        self.server.requests.append((self.path, asked_range))
        content = self.server.files.get(self.path)
        start = int(asked_range.removeprefix("bytes=").removesuffix("-")) if asked_range else 0
        if content is None:
            self.send_error(404)
        elif start and self.server.can_resume and start >= len(content):
            self.send_error(416)
        elif start and self.server.can_resume:
            self.answer(206, content[start:], f"bytes {start}-{len(content) - 1}/{len(content)}")
        else:
            self.answer(200, content)

    def answer(self, status, body, content_range=None):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        if content_range:
            self.send_header("Content-Range", content_range)
        self.end_headers()
        self.wfile.write(body[: self.server.cuts.pop() if self.server.cuts else None])

    def log_message(self, *args):
        pass


@contextlib.contextmanager
def serve():
    """A server with `url`, `requests` that came, and what a test may change: `files`, `can_resume`, `cuts`."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.files = {}
        server.requests = []
        server.can_resume = True
        server.cuts = []  # after how many bytes the next answers break off
        server.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def environment(**changes):
    """The environment without proxies, which would come between a program and this machine's server."""
    kept = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    return {**kept, **changes}
