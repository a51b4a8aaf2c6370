"""The command: one-line errors, a red warning beyond this machine, and a real server that ends in order."""

import json
import subprocess
import sys
import urllib.request

import pytest

from configs.cli import run_app
from configs.serving import ServeConfig
from oxygen.serve.__main__ import app


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("", "--policy"),
        ("--policy tinny", "did you mean 'tiny'"),
        ("--policy expert", "of kind expert"),
        ("--policy tiny --port 70000", "port is '70000': input should be less than 65536"),
        ("--policy tiny --batch-size 4 --robots 2", "give at most that many"),
        ("--policy tiny --mode parallel --robots 2", "give --batch-size 2"),
        ("--policy tiny --api-key-env NO_SUCH_VARIABLE", "the environment has no NO_SUCH_VARIABLE"),
    ],
)
def test_bad_input_is_one_line(arguments, said, capsys):
    with pytest.raises(SystemExit) as stop:
        run_app(app, arguments.split())
    out, err = capsys.readouterr()
    assert (stop.value.code, out) == (2, "")
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert said.lower() in err.lower()


def test_eight_robots_are_served_by_default():
    for options, robots in (({}, 8), ({"batch_size": 16}, 16), ({"mode": "parallel"}, 1)):
        assert ServeConfig(policy="tiny", **options).most_robots == robots


@pytest.mark.slow
def test_a_server_beyond_this_machine_warns_and_ends_in_order_on_sigterm():
    options = ["-m", "oxygen.serve", "--policy", "tiny", "--random-weights", "--mode", "actions"]
    program = [sys.executable, *options]
    public = [*program, "--port", "0", "--host", "0.0.0.0"]
    with subprocess.Popen(public, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        line = process.stdout.readline()
        port = line.split("0.0.0.0:")[1].split()[0]
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health") as answer:
            assert json.load(answer) == {"status": "ok"}
        again = subprocess.run([*program, "--port", port], capture_output=True, text=True, check=False)
        assert again.returncode == 2
        assert again.stderr.splitlines()[-1].startswith(f"error: cannot listen at 127.0.0.1, port {port}")
        assert "for up to 8 robots, one after the other, at" in line
        process.terminate()
        assert process.wait(60) == 0
        said = process.stderr.read()
        assert "--api-key-env" in said
        for stage in ("drawing random weights: 2.4 million parameters", "compiling prefill", "running every"):
            assert stage in said
