"""Downloads from a web server and bucket on this machine, which breaks off and errs as told."""

import base64
import contextlib
import hashlib
import http.server
import json
import shutil
import threading
import urllib.parse
from pathlib import Path

import google_crc32c
import pytest

from contracts.errors import UsageError
from oxygen.model import params
from oxygen.weights import source
from oxygen.weights.loading import load
from oxygen.weights.source import cached, fetch
from tests.oxygen.conftest import SMALL
from tests.oxygen.weights.test_weights import assert_equal, save_orbax


class Server(http.server.ThreadingHTTPServer):
    """Serves a folder as a web server, and as a bucket of Google Cloud Storage."""

    def __init__(self, root):
        super().__init__(("127.0.0.1", 0), Handler)
        self.root = root
        self.requests = []  # every `(method, path, first byte asked for)` so far
        self.cuts = []  # bytes after which the connection breaks, for as many answers with a file
        self.ranges = True  # whether a part of a file can be asked for
        self.sums = {}  # what to state instead of a file's right checksum
        self.redirects = {}  # name of a file to the path that it is found at, and headers that say so

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
        root = self.server.root
        files = [str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()]
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


@pytest.fixture
def server(tmp_path):
    (tmp_path / "served").mkdir()
    with Server(tmp_path / "served") as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def surroundings(tmp_path, monkeypatch, request):
    monkeypatch.setenv("OXYGEN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(source, "_FIRST_WAIT_S", 0.01)
    if "server" in request.fixturenames:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", request.getfixturevalue("server").url)


@pytest.fixture
def content(server):
    content = bytes(range(256)) * 24_000  # large beside what is in flight, and lost, when a connection breaks
    (server.root / "model.bin").write_bytes(content)
    return content


def test_a_published_folder_comes_from_a_bucket_and_loads_bit_for_bit(server, tmp_path):
    original = params.random_params(SMALL, 2)
    save_orbax(server.root / "checkpoints/tiny/params", original)
    for other in ("tiny/train_state/much", "tiny/assets/libero/norm_stats.json", "tiny_too/params/_METADATA"):
        path = server.root / "checkpoints" / other
        path.parent.mkdir(parents=True)
        path.write_text("{}")
    url = "gs://bucket/checkpoints/tiny"
    assert_equal(load(url, SMALL, dtype="bfloat16"), original, "bfloat16")
    assert (cached(url) / "assets/libero/norm_stats.json").read_text() == "{}"
    assert not (cached(url) / "train_state").exists()
    assert not list((tmp_path / "cache").rglob("*.partial*"))
    assert not (cached(url).parent / "tiny_too").exists()


@pytest.mark.parametrize("where", ["gs://bucket", "server"])
def test_a_broken_download_resumes_where_it_broke(server, content, where):
    server.cuts = [1_500_000] * 3
    url = f"{where.replace('server', server.url)}/model.bin"
    assert fetch(url).read_bytes() == content
    first, *later = server.gets("model.bin")
    assert first == 0
    assert later == sorted(later)
    assert all(0 < begun <= 1_500_000 * count for count, begun in enumerate(later, start=1))


def test_a_later_command_resumes(server, content):
    server.cuts = [3_000_000] + [0] * 99
    url = f"{server.url}/model.bin"
    with pytest.raises(UsageError, match="the download resumes"):
        fetch(url)
    (partial,) = cached(url).parent.glob("*.partial")
    begun = partial.stat().st_size
    assert 0 < begun <= 3_000_000
    assert not cached(url).exists()

    server.cuts = []
    server.requests.clear()
    assert fetch(url).read_bytes() == content
    assert server.gets("model.bin") == [begun]
    assert not partial.exists()
    asked = len(server.requests)
    fetch(url)
    assert len(server.requests) == asked, "a complete download needs no network"
    cached(url).write_bytes(content[:1000])
    assert fetch(url).read_bytes() == content, "a copy that has lost bytes since is completed"


@pytest.mark.parametrize("changed", ["no ranges", "another version"])
def test_a_download_that_cannot_be_resumed_begins_again(server, content, changed):
    url = f"{server.url}/model.bin"
    server.cuts = [3_000_000] + [0] * 99
    with pytest.raises(UsageError):
        fetch(url)
    server.ranges = changed != "no ranges"
    if changed == "another version":
        content = content[::-1]
        (server.root / "model.bin").write_bytes(content)
    server.cuts = []
    assert fetch(url).read_bytes() == content
    assert not list(cached(url).parent.glob("*.partial"))


@pytest.mark.parametrize(
    ("where", "stated", "kind"),
    [
        ("gs://bucket", "AAAAAA==", "crc32c"),
        ("server", "0" * 64, "sha256"),
        ("redirect", "another", "sha256"),
    ],
)
def test_a_file_with_another_checksum_is_refused_and_removed(server, content, where, stated, kind):
    server.sums["model.bin"] = stated
    url = f"{where.replace('server', server.url)}/model.bin"
    if where == "redirect":
        server.redirects["linked.bin"] = ("/model.bin", {"X-Linked-ETag": f'"{"0" * 64}"'})
        url = f"{server.url}/linked.bin"
    with pytest.raises(UsageError, match=f"was damaged in transit .its {kind} is .*, not 00000"):
        fetch(url)
    assert not cached(url).exists()
    assert not list(cached(url).parent.glob("*.partial"))


def test_without_a_network_and_without_a_copy_one_line_says_so(tmp_path, monkeypatch):
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", "http://127.0.0.1:9")  # nobody listens there
    with pytest.raises(UsageError) as caught:
        load("gs://openpi-assets/checkpoints/pi05_libero", SMALL)
    message = str(caught.value)
    assert message.startswith("gs://openpi-assets/checkpoints/pi05_libero cannot be reached (URLError")
    assert str(tmp_path / "cache/gs/openpi-assets/checkpoints/pi05_libero") in message
    assert "Connect and try again" in message


def test_a_url_without_files_is_refused_and_a_full_disk_is_noticed_before_it_is_full(
    server, content, monkeypatch
):
    for url in (f"{server.url}/nothing.safetensors", "gs://bucket/nothing"):
        with pytest.raises(UsageError, match=f"there is nothing at {url}"):
            fetch(url)
    usage = shutil.disk_usage("/")._replace(free=1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    with pytest.raises(UsageError, match=r"needs 0\.0 GB more .* set OXYGEN_CACHE"):
        fetch("gs://bucket/model.bin")


@pytest.mark.parametrize(
    ("url", "complaint"),
    [
        ("s3://bucket/model", "unknown kind of URL 's3'; did you mean 'gs'"),
        ("gs://bucket", "does not name a file or folder"),
        ("https://host/", "does not name a file or folder"),
        ("https://host/checkpoints/step", "give the URL of a file, or a gs:// folder"),
        ("https://host/a/../b", "is not a plain path"),
    ],
)
def test_malformed_urls_are_refused(url, complaint):
    with pytest.raises(UsageError, match=complaint):
        fetch(url)


def test_the_default_cache_is_the_users(monkeypatch):
    monkeypatch.delenv("OXYGEN_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    whole = Path("/somewhere/oxygen-eval/checkpoints/gs/openpi-assets/checkpoints/pi05_libero")
    assert cached("gs://openpi-assets/checkpoints/pi05_libero") == whole
    asked = cached("https://host:81/a b/model.safetensors?download=true")
    assert asked.parent == Path("/somewhere/oxygen-eval/checkpoints/https/host%3A81/a%20b")
    assert asked.suffix == ".safetensors"
