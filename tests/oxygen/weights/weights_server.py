"""A web server and bucket on this machine, with weights in it, that breaks off and errs as told."""

import base64
import contextlib
import hashlib
import http.server
import json
import urllib.parse

import google_crc32c


class Server(http.server.ThreadingHTTPServer):
    """Serves a folder as a web server, and as a bucket of Google Cloud Storage.

    Attributes:
        requests: Every `(method, path, first byte asked for)` so far.
        cuts: Bytes after which the connection breaks, for as many answers with a file as there are.
        ranges: Whether a part of a file can be asked for.
        sums: What to state instead of the right checksum.
        redirects: Name of a file to the path that it is found at, and the headers that say so.
    """

    def __init__(self, root):
        super().__init__(("127.0.0.1", 0), Handler)
        self.root = root
        self.requests = []
        self.cuts = []
        self.ranges = True
        self.sums = {}
        self.redirects = {}

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}"

    def gets(self, name):
        """Where each answer with a file of this name began."""
        asked = ((path.partition("?")[0], start) for method, path, start in self.requests if method == "GET")
        return [start for path, start in asked if path.endswith(name)]


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_HEAD(self):
        self.answer(body=False)

    def do_GET(self):
        self.answer(body=True)

    def answer(self, *, body):
        parts = urllib.parse.urlsplit(self.path)
        start = int((self.headers.get("Range") or "bytes=0-")[6:].split("-")[0])
        self.server.requests.append((self.command, self.path, start))
        path, query = urllib.parse.unquote(parts.path), urllib.parse.parse_qs(parts.query)
        bucket = "/storage/v1/b/bucket/o"
        if path == bucket:
            return self.say(json.dumps(self.listing(query)).encode(), {}, body=body)
        file = self.server.root / path.removeprefix(bucket).lstrip("/")
        if file.name in self.server.redirects:
            location, headers = self.server.redirects[file.name]
            return self.say(b"", {**headers, "Location": location}, body=body, status=302)
        if not file.is_file():
            return self.say(b"gone", {}, body=body, status=404)
        content = file.read_bytes()
        stated = self.server.sums.get(file.name) or hashlib.sha256(content).hexdigest()
        status = 206 if start and self.server.ranges else 200
        content = content[start:] if status == 206 else content
        return self.say(content, {"ETag": f'"{stated}"'}, body=body, status=status, cuts=self.server.cuts)

    def listing(self, query):
        """Two objects a page, as the real thing has a thousand."""
        files = [
            str(path.relative_to(self.server.root)) for path in self.server.root.rglob("*") if path.is_file()
        ]
        names = sorted(name for name in [*files, "folder/"] if name.startswith(query["prefix"][0]))
        first = int(query.get("pageToken", ["0"])[0])
        page = {"items": [self.entry(name) for name in names[first : first + 2]]}
        return page | ({"nextPageToken": str(first + 2)} if first + 2 < len(names) else {})

    def entry(self, name):
        path = self.server.root / name
        content = path.read_bytes() if path.is_file() else b""
        right = base64.b64encode(google_crc32c.Checksum(content).digest()).decode()
        stated = self.server.sums.get(path.name) or right
        return {"name": name, "size": str(len(content)), "generation": "17", "crc32c": stated}

    def say(self, content, headers, *, body, status=200, cuts=()):
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        if not body:
            return
        if cuts:
            content = content[: cuts.pop(0)]
            self.close_connection = True
        with contextlib.suppress(ConnectionError):
            self.wfile.write(content)
