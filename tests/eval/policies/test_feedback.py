"""Policies that read their own texts, of every kind: the engine, a class, a server, ours."""

import json
import shutil
import textwrap
from pathlib import Path

import pytest
import yaml

from configs.errors import UsageError
from configs.schema import VariantsConfig
from eval.policies.python import open_python
from eval.policies.resolved import resolve_policy
from eval.records.query_logs import read_queries
from eval.records.run_folders import new_run
from eval.rollout.executors.executor import SERIAL, Processes
from eval.rollout.feedback import EpisodeFeedback
from eval.rollout.rollout import rollout
from oxygen.model.config import TINY_MEMORY
from oxygen.robots.tokenizer import tiny
from oxygen.weights.source import bundled
from sim_envs.fake import FakeSuite, FakeWorld
from sim_envs.world import EpisodeKey
from tests.eval.conftest import evaluate
from tests.eval.policies.openpi_server import ACTIONS, OpenpiServer
from tests.eval.policies.oxygen_server import serving
from tests.eval.rollout.scaled import suite_file

LABEL = "Memory of all that was done before this moment:"
FIELD = {"field": "memory", "format": LABEL + " {text}"}
KEYS = [EpisodeKey(suite="fake", task_id=0, init_id=init_id, seed=7) for init_id in (0, 1)]


@pytest.fixture(scope="module")
def reader(tmp_path_factory) -> Path:
    """`tiny` with room for its memory in the prompt, though it was never trained with that."""
    folder = tmp_path_factory.mktemp("policies") / "reader"
    shutil.copytree(bundled("tiny"), folder)
    record, card = (folder / name for name in ("training.json", "policy.yaml"))
    content = json.loads(record.read_text())
    content["model"] |= {"name": "tiny_memory", "prompt_buckets": list(TINY_MEMORY.prompt_buckets)}
    record.write_text(json.dumps(content))
    declared = yaml.safe_load(card.read_text()) | {"model": "tiny_memory", "feedback": {"memory": FIELD}}
    card.write_text(yaml.safe_dump(declared))
    return folder


@pytest.fixture(scope="module")
def suite(tmp_path_factory) -> str:
    return suite_file(tmp_path_factory.mktemp("suites"), "fake", FakeSuite, max_steps=40, camera_size=256)


def config(reader, suite, **options):
    chosen = {"policy": str(reader), "suites": (suite,), "language_tasks": ("memory",), "video": "none"}
    return VariantsConfig(**{**chosen, "text_every": 2, **options})


def played(output, reader, suite, *, executor=SERIAL, **options):
    """The queries of two episodes in each mode."""
    runs = [new_run(output, variant) for variant in config(reader, suite, **options).variants()]
    evaluate(*runs, executor=executor)
    for run in runs:
        assert {each.outcome for each in run.folder.episodes().values()} == {"timeout"}
        assert {each.compiles_after_warm_up for each in run.folder.episodes().values()} == {0}
    return [[read_queries(run.folder, key) for key in KEYS] for run in runs], runs


def done(episodes):
    """What was read and done in every query."""
    return [[(query.prompt, query.actions.tobytes()) for query in queries] for queries in episodes]


def test_actions_are_equal_bit_for_bit_in_all_modes_for_equal_prompts(tmp_path, reader, suite):
    modes = ("actions", "isolated", "interleaved", "shared", "unified")
    episodes, runs = played(tmp_path, reader, suite, mode=modes, feedback="truth")
    reference, *others = map(done, episodes)
    assert all(other == reference for other in others)
    assert reference[0][0][0].endswith("the black bowl is on the table")
    hashes = {run.folder.read_manifest()["protocol_hash"] for run in runs}
    assert len(hashes) == 1


def test_its_own_texts_give_the_same_episode_isolated_shared_and_in_processes(tmp_path, reader, suite):
    """Without latency; and prompts of all buckets compile nothing."""
    modes = ("unified", "isolated", "shared")
    (serial, isolated, shared), (run, *_) = played(tmp_path / "a", reader, suite, mode=modes)
    assert done(isolated) == done(shared)
    told = [query.fed["memory"].text for query in isolated[0] if query.fed]
    assert len(told) == 7
    assert told[0]
    lengths = [len(tiny().encode(query.prompt)) + 10 for query in serial[0]]
    assert min(lengths) <= TINY_MEMORY.prompt_buckets[0] < max(lengths) <= TINY_MEMORY.prompt_buckets[1]
    (parallel,), _ = played(tmp_path / "b", reader, suite, executor=Processes(num_envs=2))
    assert done(parallel) == done(serial)
    manifest = run.folder.read_manifest()
    assert manifest["policy_inputs"]["feedback"] == {"memory": FIELD["format"]}
    assert manifest["protocol"]["fake"]["feedback"] == "own"


@pytest.mark.filterwarnings("ignore:prompt cut")
def test_a_prompt_beyond_the_longest_bucket_is_cut_and_recorded(tmp_path, reader, suite):
    (episodes,), _ = played(tmp_path, reader, suite, feedback="frozen:" + "記憶" * 50)
    assert {query.prompt_cut for query in episodes[0]} != {0}
    assert {query.prompt_cut > 200 for query in episodes[0]} == {True}


def test_texts_that_do_not_fit_the_prompt_are_refused(tmp_path, reader, suite):
    files = []
    for name in ("memory", "plan"):
        files.append(tmp_path / f"{name}.yaml")
        task = {"name": name, "prompt": "Remember: ", "max_tokens": 48, "feedback": FIELD}
        files[-1].write_text(yaml.safe_dump(task))
    for policy, tasks, why in (
        ("tiny", (str(files[0]),), "'tiny' was not trained with memory in its prompt"),
        (reader, ("memory", str(files[1])), "'memory' and 'plan' both fill field 'memory'"),
    ):
        with pytest.raises(UsageError, match=why):
            resolve_policy(config(policy, suite, language_tasks=tasks).variants()[0])
    run = new_run(tmp_path, config("tiny", suite, feedback="truth").variants()[0])
    with pytest.raises(UsageError, match="--feedback truth: policy 'tiny' was not trained with texts"):
        evaluate(run)


COUNTER = """
    import numpy as np

    class Counter:
        feedback = {"memory": {"field": "memory", "format": "Memory: {text}", "empty": "0"}}

        def __init__(self):
            self.seen = []

        def infer(self, obs):
            self.seen.append((obs["prompt"], obs["memory"], obs["instruction"]))
            return {"actions": np.zeros((10, 7)), "memory": str(int(obs["memory"]) + 1)}

        def reset(self):
            self.seen.clear()
"""


def prompts_of(policy):
    """The prompts of an episode of four queries."""
    acting = policy.in_world(None, None)
    feedback = EpisodeFeedback(policy.feedback, "own", control_hz=20)
    return [query.prompt for query in rollout(FakeWorld(), acting, KEYS[0], FakeSuite(), feedback=feedback)]


def test_a_class_gets_its_memory_and_returns_it(tmp_path):
    file = tmp_path / "counter.py"
    file.write_text(textwrap.dedent(COUNTER))
    policy = open_python(f"{file}:Counter", {})
    instruction = FakeWorld().language
    assert prompts_of(policy) == [f"{instruction}\nMemory: {count}" for count in range(4)]
    assert policy.in_world(None, None)._policy.seen[-1] == (f"{instruction}\nMemory: 3", "3", instruction)
    assert policy.writes_texts


@pytest.mark.parametrize(
    ("feedback", "words"), [({"memory": {**FIELD, "field": "memry"}}, "'memry'"), (3, "is 3")]
)
def test_a_class_with_a_wrong_declaration_is_refused(tmp_path, feedback, words):
    file = tmp_path / "counter.py"
    file.write_text(textwrap.dedent(COUNTER) + f"    feedback = {feedback!r}\n")
    with pytest.raises(UsageError, match=words):
        open_python(f"{file}:Counter", {})


def test_a_server_of_openpis_protocol_gets_and_returns_both_fields():
    plan = [
        {"field": "memory", "format": "Memory: {text}", "answer": "Memory: {text}"},
        {"field": "subtask", "format": "{text}", "answer": "Subtask: {text}", "role": "instruction"},
    ]

    def answer(request):
        return {"actions": ACTIONS[:, :7] * 0, "memory": request["memory"] + "I", "subtask": "lift it"}

    metadata = {"embodiment": "libero", "feedback": {"plan": plan}}
    with OpenpiServer(answer, metadata=metadata) as server, server.opened() as policy:
        goal = FakeWorld().language
        assert prompts_of(policy) == [
            f"{goal}\nMemory:",
            *(f"lift it\nMemory: {'I' * count}" for count in (1, 2, 3)),
        ]
    assert [server.queries[-1][key] for key in ("instruction", "memory", "subtask")] == [
        goal,
        "III",
        "lift it",
    ]
    assert server.queries[-1]["prompt"] == "lift it\nMemory: III"


def test_our_server_declares_its_fields_and_gets_the_composed_prompt():
    field = {"field": "memory", "format": "Memory: {text}"}
    with serving(feedback={"narration": [field]}) as server, server.opened(modes=["unified"]) as policy:
        prompts = prompts_of(policy)
    sent = [request["prompt"] for request in server.queries if "prompt" in request]
    assert sent == prompts
    assert prompts[1:3] == [
        f"{FakeWorld().language}\nMemory:",
        f"{FakeWorld().language}\nMemory: I narrate query 0 — schön",
    ]
