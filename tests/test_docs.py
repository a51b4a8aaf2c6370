"""Links of the documentation resolve; its code runs, as do `examples/`: servers of policies, and shards."""

import ast
import contextlib
import dataclasses
import io
import os
import re
import sys
import threading
from pathlib import Path

import msgpack
import numpy as np
import pytest

from contracts.episode import EpisodeKey
from eval import check
from eval.metrics.results_file import results_of
from eval.policies.remote import PolicyServerError
from eval.policies.websocket import open_websocket
from eval.records.json_files import write_json
from sim_envs.fake import FakeWorld
from tests.commands import ROOT, execute
from tests.eval.factory import RunBuilder, episode, key, run_rows

EXAMPLES = ROOT / "examples"
_BLOCK = re.compile(r"^```(?:python|yaml)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"# (\S+\.(?:py|yaml))\n")


def files_and_program(page: str, folder: Path) -> list[str]:
    """Blocks that begin with a file's name become that file; the others are the program's."""
    program = []
    for block in _BLOCK.findall((ROOT / page).read_text()):
        named = _FILE.match(block)
        if named:
            (folder / named[1]).write_text(block)
        else:
            program.append(block)
    return program


def python(folder: Path, program: str) -> str:
    """What a program prints that neither fails nor warns."""
    path = os.pathsep.join([str(folder), str(ROOT)])
    done = execute(sys.executable, "-W", "error", "-c", program, cwd=folder, PYTHONPATH=path)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


_PAGES = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"]
_PAGES += sorted(str(page.relative_to(ROOT)) for page in (ROOT / "docs").rglob("*.md"))
_CODE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^()\s]+)\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def anchors(page: Path) -> set[str]:
    """The anchors that GitHub gives to a page's headings."""
    headings = _HEADING.findall(_CODE.sub("", page.read_text()))
    return {re.sub(r"[^\w\- ]", "", heading).strip().lower().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("name", _PAGES)
def test_links_resolve(name):
    page, broken = ROOT / name, []
    for link in _LINK.findall(_CODE.sub("", page.read_text())):
        if "://" in link or link.startswith("mailto:"):
            continue
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    assert broken == []


def test_pages_that_the_code_names_exist():
    named = {
        name
        for folder in ("configs", "contracts", "eval", "examples", "oxygen", "sim_envs")
        for path in (ROOT / folder).rglob("*")
        if path.suffix in (".py", ".md", ".yaml")
        for name in re.findall(r"\bdocs/[\w/]+\.md\b", path.read_text())
    }
    assert named
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []


def test_a_world_of_the_documentation_plays(tmp_path):
    program = files_and_program("docs/worlds.md", tmp_path)
    (tmp_path / "examples").symlink_to(EXAMPLES)
    assert len(program) == 3
    assert python(tmp_path, "\n".join(program)) == "False reach the red ball with the fingertip\n"
    wrapped = """
import gymnasium, force_cart_pole, numpy as np
env = gymnasium.make("ForceCartPole-v0")
env.reset(seed=0)
print(env.step(np.array([0.5], np.float32))[-1])
"""
    assert python(EXAMPLES, wrapped) == "{'is_success': False}\n"


def test_a_task_of_the_documentation_opens(tmp_path, command):
    files_and_program("docs/own-tasks.md", tmp_path)
    (problem,) = re.findall(
        r"^```lisp\n(; (\S+)\n.*?)^```", (ROOT / "docs/own-tasks.md").read_text(), re.M | re.S
    )
    (tmp_path / "tasks").mkdir()
    (tmp_path / problem[1]).write_text(problem[0])
    picture, how = tmp_path / "tasks.png", ("--assets", "standins", "--no-play")
    code, out, _ = command(check.app, tmp_path / "my_tasks.yaml", *how, "--picture", picture)
    assert (code, out.splitlines()[0]) == (0, "ok    0 cream_cheese_on_plate: opens")


def test_classes_of_the_documentation_are_policies(tmp_path):
    called, program, preset = files_and_program("docs/evaluate.md", tmp_path)
    assert "kind: oxygen" in preset
    options = ", ".join(re.findall(r"(\w+)=", called.partition("evaluate(")[2]))
    assert options == "suite, task_ids, num_trials_per_task, video", "tests/eval/test_api.py plays such calls"
    python(tmp_path, program)


def test_a_policy_of_the_documentation_counts_by_its_memory(tmp_path):
    assert files_and_program("docs/memory.md", tmp_path) == []
    play = """
import numpy as np
from eval.policies.python import open_python
from eval.rollout.feedback import EpisodeFeedback
from eval.rollout.rollout import rollout
from sim_envs.fake import FakeSuite, FakeWorld
from contracts.episode import EpisodeKey
from contracts.text_source import parse_text_source

policy = open_python("raise_hand.py:RaiseHand", {})
key = EpisodeKey(suite="fake", task_id=0, init_id=0, seed=7)
suite = FakeSuite(FakeSuite.published.model_copy(update={"max_steps": 60}))
cases = [(often, "own") for often in ("", " once", " twice", " three times")]
for often, source in (*cases, ("", "none")):
    feedback = EpisodeFeedback(policy.fields_by_task, parse_text_source(source), control_hz=20)
    world = FakeWorld(language="lift the black bowl and put it back on the plate" + often)
    queries = list(rollout(world, policy.in_world(suite, None), key, suite, feedback=feedback))
    heights = np.concatenate([np.array(query.end_effector)[1:, 2] for query in queries])
    print(queries[-1].delivered[-1].text[:17], bool(np.ptp(heights[-10:]) > 0))
"""
    counted = "".join(f"raised it {count} times False\n" for count in (1, 1, 2, 3))
    assert python(tmp_path, play) == counted + "raised it 0 times True\n"


def test_the_example_of_a_droid_task_opens():
    open_and_reset = """
from sim_envs.suite import open_suite
suite = open_suite("droid_suite.yaml")
assert suite.expert_tasks() == suite.tasks()
world = suite.open(suite.tasks()[0])
world.reset(init_id=0, seed=7, settle_steps=1)
print(world.observe().language)
"""
    assert python(EXAMPLES, open_and_reset) == "put the cube on the plate\n"


def test_what_examples_import_from_each_other_is_there():
    trees = {path.stem: ast.parse(path.read_text()) for path in EXAMPLES.glob("*.py")}
    imported = [
        (node.module, each.name)
        for tree in trees.values()
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module in trees
        for each in node.names
    ]
    assert imported
    for module, name in imported:
        there = {getattr(node, "name", getattr(node, "id", None)) for node in ast.walk(trees[module])}
        assert name in there, f"{module}.{name}"


KEY = EpisodeKey(suite="libero_object", task_id=0, init_id=0, seed=7)


@pytest.fixture(autouse=True)
def _in_examples(monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLES)


@contextlib.contextmanager
def playing(infer, **metadata):
    """A policy behind the recipes' server."""
    from openpi_server import policy_server

    with policy_server(infer, {"embodiment": "libero", "horizon": 10, **metadata}, port=0) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        opened = open_websocket(f"ws://127.0.0.1:{server.socket.getsockname()[1]}", {}, notify=pytest.fail)
        policy = opened.in_world(None, None)
        policy.reset(KEY)
        try:
            yield policy
        finally:
            opened.close()
            server.shutdown()
            thread.join()


def test_the_numpy_policy_moves_towards_its_goal():
    import serve_numpy

    with playing(serve_numpy.infer) as policy:
        actions = policy.act(FakeWorld().observe())
        assert policy.complete().timings_ms["server"] > 0
    assert actions.shape == (10, 7)
    assert (actions[:, 2] == 1).all()  # up, as fast as it can: the goal is 1.1 m above the origin


def test_a_failing_policy_is_reported_and_the_next_episode_is_served_and_may_have_a_memory():
    failures = iter([True, False])

    def infer(observation):
        if next(failures):
            raise FloatingPointError("the flow has diverged")
        return {"actions": np.zeros((10, 7)), "memory": f"{observation['memory']}I"}

    field = {"field": "memory", "format": "Memory: {text}"}
    with playing(infer, feedback={"memory": field}) as policy:
        observation = dataclasses.replace(FakeWorld().observe(), feedback={"memory": "II"})
        with pytest.raises(PolicyServerError, match="the flow has diverged"):
            policy.act(observation)
        policy.reset(KEY)
        assert not policy.act(observation).any()
        (text,) = policy.complete().finished
    assert (text.task, text.text, text.requested_query) == ("memory", "III", 0)


def gr00t(socket, requests):
    """Answers as GR00T's inference server: each of 7 actions a chunk [1, 16, 1]."""

    def encoded(array):
        file = io.BytesIO()
        np.save(file, array)
        return {"__ndarray_class__": True, "as_npy": file.getvalue()}

    def decoded(content):
        return np.load(io.BytesIO(content["as_npy"])) if "__ndarray_class__" in content else content

    language = {"as_json": {"modality_keys": ["annotation.human.action.task_description"]}}
    names = ("x", "y", "z", "roll", "pitch", "yaw", "gripper")
    chunks = {name: np.full((1, 16, 1), number / 10, np.float32) for number, name in enumerate(names)}
    for answer in (
        {"language": {"__ModalityConfig_class__": True, **language}},
        [chunks, {}],
        {"error": "no"},
    ):
        requests.append(msgpack.unpackb(socket.recv(), object_hook=decoded))
        socket.send(msgpack.packb(answer, default=encoded))


def test_the_bridge_speaks_gr00ts_protocol_and_inverts_its_gripper():
    zmq = pytest.importorskip("zmq", reason="pyzmq is not installed")
    from bridge_gr00t import Gr00tClient

    requests = []
    with zmq.Context.instance().socket(zmq.REP) as socket:
        port = socket.bind_to_random_port("tcp://127.0.0.1")
        thread = threading.Thread(target=gr00t, args=(socket, requests))
        thread.start()
        with playing(Gr00tClient(f"tcp://127.0.0.1:{port}").infer) as policy:
            actions = policy.act(FakeWorld().observe())
            with pytest.raises(PolicyServerError, match="the GR00T server failed: no"):
                policy.act(FakeWorld().observe())
        thread.join()
    zmq.Context.instance().destroy()
    asked = requests[1]["data"]["observation"]
    assert {name: image.shape for name, image in asked["video"].items()} == {
        "image": (1, 1, 224, 224, 3),
        "wrist_image": (1, 1, 224, 224, 3),
    }
    assert asked["state"]["x"].shape == (1, 1, 1)
    assert asked["state"]["gripper"].shape == (1, 1, 2)
    assert asked["language"] == {"annotation.human.action.task_description": [[FakeWorld().language]]}
    assert actions.shape == (16, 7)
    assert actions[0] == pytest.approx([0, 0.1, 0.2, 0.3, 0.4, 0.5, -1])  # 0.6 is open, as LIBERO's −1


@pytest.fixture
def submitted(tmp_path):
    """Submits the third of 16 shares; returns its exit code, and what it prints."""
    srun = tmp_path / "srun"
    srun.write_text('#!/bin/sh\necho "$@"\neval "$SAYS"\n')
    srun.chmod(0o755)
    environment = {
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "SLURM_ARRAY_TASK_ID": "3",
        "SLURM_ARRAY_TASK_COUNT": "16",
        "SLURM_CPUS_PER_TASK": "2",
    }

    def submitted(says="true"):
        done = execute("bash", EXAMPLES / "slurm_array.sh", cwd=tmp_path, SAYS=says, **environment)
        return done.returncode, done.stdout.strip()

    return submitted


def test_a_share_has_all_cores_of_its_node(submitted):
    code, line = submitted()
    assert code == 0
    assert line.startswith("--cpus-per-task=2 oxygen-eval libero ")
    assert line.endswith("--num-envs 2 --shard 3/16 --output-dir runs/shards/3")


@pytest.mark.parametrize(
    ("message", "code"),
    [("--shard 3/16 has none of the 10 episodes; skip this shard", 0), ("--shard is '17/16'", 1)],
)
def test_a_share_without_episodes_does_not_keep_the_others_from_being_joined(submitted, message, code):
    ended, said = submitted(f'echo "error: {message}" >&2; exit 2')
    assert (ended, said.splitlines()[-1]) == (code, f"error: {message}")


def test_a_share_submitted_again_is_resumed_if_it_is_cut_short_or_has_errors(submitted, tmp_path):
    run = RunBuilder.at(tmp_path / "runs/shards/3/run", status="interrupted").add_all("se")
    assert submitted()[1].endswith("--resume")
    run.folder.write_manifest(run.folder.read_manifest() | {"status": "complete"})
    write_json(run.folder.results_path, results_of(run_rows(run.folder)))
    assert submitted()[1].endswith("--resume")
    run.add(episode(key(1)))
    write_json(run.folder.results_path, results_of(run_rows(run.folder)))
    assert submitted() == (0, "share 3/16 is complete")
