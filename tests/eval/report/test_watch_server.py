"""The server of a watched run serves its page, pictures and report to this machine, and nothing else."""

import pytest

from configs.errors import UsageError
from eval.records.following import FollowedRun
from tests.eval.factory import RunBuilder
from tests.eval.report.watched import Watching, going_on, picture

SECRET = b"not part of the run"


@pytest.fixture(scope="module")
def besieged(tmp_path_factory):
    """A run that is watched, with links out of its folder, and files beside it."""
    folder = tmp_path_factory.mktemp("runs")
    (folder / "secret.jpg").write_bytes(SECRET)
    run = going_on(folder / "run").path
    RunBuilder.at(folder / "other")
    picture(run)
    picture(folder / "other")
    (run / "queries" / "link.jpg").symlink_to(folder / "secret.jpg")
    (run / "queries" / "log.jsonl").write_bytes(SECRET)
    (run / "report").mkdir()
    (run / "report" / "index.html").write_text("the report")
    (run / "report" / "link.html").symlink_to(folder / "secret.jpg")
    (run / "report" / "up").symlink_to(folder)
    (run / "report" / "inside.html").symlink_to(run / "report" / "index.html")
    with Watching(run) as watching:
        yield watching, folder


@pytest.mark.parametrize(
    "path",
    [
        "/picture/0/../../../secret.jpg",
        "/picture/0/..%2f..%2fsecret.jpg",
        "/picture/0/%2e%2e%2f%2e%2e%2fsecret.jpg",
        "/picture/0/..%252f..%252fsecret.jpg",
        "/picture/0/..\\..\\secret.jpg",
        "/picture/0/{folder}/secret.jpg",
        "/picture/0/%2f{folder}%2fsecret.jpg",
        "/picture/0/link.jpg",
        "/picture/0/log.jsonl",
        "/picture/0/nul%00.jpg",
        "/picture/0/" + "n" * 5000,
        "/picture/1/libero_object.0.0.7.jpg",
        "/picture/-1/libero_object.0.0.7.jpg",
        "/picture/0/",
        "/report/../../secret.jpg",
        "/report/%2e%2e/%2e%2e/secret.jpg",
        "/report/..%2f..%2fsecret.jpg",
        "/report/%2e%2e/manifest.json",
        "/report/link.html",
        "/report/up/secret.jpg",
        "/report/{folder}/secret.jpg",
        "/report//{folder}/secret.jpg",
        "/report/..",
        "/report/up",
        "/secret.jpg",
        "/../secret.jpg",
        "//{folder}/secret.jpg",
        "/{folder}/secret.jpg",
        "/manifest.json",
        "/vendor/../report.html.j2",
        "/watch.html.j2",
        "http://127.0.0.1/secret.jpg",
        "/%ff%fe",
    ],
)
def test_nothing_else_is_served(besieged, path):
    watching, folder = besieged
    status, _, body = watching.get(path.replace("{folder}", str(folder)))
    assert status in (400, 404)
    assert SECRET not in body


def test_what_is_served(besieged):
    watching, _ = besieged
    for path in (
        "/",
        "/style.css",
        "/watch.js",
        "/vendor/uPlot.iife.min.js",
        "/report/",
        "/report/inside.html",
    ):
        status, headers, _ = watching.get(path)
        assert (status, headers["X-Content-Type-Options"]) == (200, "nosniff")
    assert watching.get("/picture/0/libero_object.0.0.7.jpg")[0] == 200


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1", 200),
        ("LOCALHOST:8100", 200),  # through a tunnel
        ("evil.example", 403),
        ("evil.example:8100", 403),
        ("127.0.0.1.evil.example:8100", 403),
        ("localhost@evil.example", 403),
        ("", 403),
        ("[::1", 403),
    ],
)
def test_only_requests_for_this_machine_are_answered(besieged, host, status):
    for path in ("/", "/picture/0/libero_object.0.0.7.jpg", "/nothing"):
        found = besieged[0].get(path, Host=host)[0]
        assert found == (404 if status == 200 and path == "/nothing" else status)


@pytest.mark.parametrize("name", ["episodes.jsonl", "manifest.json", "queries"])
def test_records_that_are_links_out_of_the_folder_are_not_read(tmp_path, name):
    other = going_on(tmp_path / "other").add_all("ss")
    picture(other.path)
    run = going_on(tmp_path / "run")
    (run.path / name).unlink(missing_ok=True)
    (run.path / name).symlink_to(other.path / name)
    if name == "manifest.json":
        with pytest.raises(UsageError, match="link out of it"):
            FollowedRun(run.path)
        return
    watched = FollowedRun(run.path)
    assert (watched.episodes, watched.playing) == ({}, ())
