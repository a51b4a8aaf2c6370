"""What a policy said is in its next prompts once it was delivered, whatever kind of policy it is."""

import dataclasses
import json
import re
import shutil
import textwrap
from pathlib import Path

import numpy as np
import pytest
import yaml

from configs.schema import RunConfig, VariantsConfig
from contracts.clock import Fixed
from contracts.episode import EpisodeKey
from contracts.errors import UsageError
from contracts.prompt import PromptField, parse_answer
from contracts.text import EpisodeEnd
from contracts.text_source import OWN, parse_text_source
from eval.policies.python import open_python
from eval.policies.resolved import resolve_policy
from eval.records.json_files import json_line
from eval.records.query_logs import query_to_json, read_queries
from eval.records.schema import RunFolder
from eval.rollout.executors import executor
from eval.rollout.executors.executor import SERIAL, Processes
from eval.rollout.feedback import EpisodeFeedback
from eval.rollout.prepare import check_feedback
from eval.rollout.pricing import UNCHARGED, FixedPricing
from eval.rollout.rollout import rollout
from oxygen.model.config import TINY_MEMORY
from oxygen.robots.tokenizer import tiny
from oxygen.weights.source import bundled
from sim_envs.fake import FakeSuite, FakeWorld
from tests.eval.conftest import begin, evaluate, play
from tests.eval.doubles import FakePolicy, opened, reply, text_finished, without_physics
from tests.eval.policies.servers import ACTIONS, OpenpiServer, serving
from tests.eval.rollout.scaled import suite_file

SUITE = FakeSuite()
KEY = EpisodeKey(suite="fake", task_id=0, init_id=0, seed=7)
GOAL = "put the black bowl on the plate"
MEMORY = {"memory": (PromptField(field="memory", format="Memory: {text}", empty="none"),)}
PLAN = {
    "plan": (
        PromptField(field="memory", format="Memory: {text}", answer="Memory: {text}"),
        PromptField(field="subtask", format="{text}", answer="Subtask: {text}", role="instruction"),
    )
}

ANSWER = "Subtask: lift it Memory: once"
SUBTASK_FIRST = {"plan": PLAN["plan"][::-1]}

TWO_TASKS = MEMORY | {"steps": (PromptField(field="subtask", format="Subtask: {text}"),)}


class Writer(FakePolicy):
    """Writes one text a query, finished in the same query, and keeps its observations."""

    def __init__(self, text: str, task: str = "memory") -> None:
        super().__init__()
        self.task, self.text, self.seen = task, text, []

    def act(self, observation):
        self.seen.append(observation)
        return np.zeros((10, 7))

    def complete(self):
        query = len(self.seen) - 1
        text = self.text.replace("#", str(query))
        return reply(
            finished=(text_finished(query, task=self.task, text=text, finished_query=query),), prompt_cut=2
        )

    def finish(self):
        return EpisodeEnd()


def queries_of(text="lifted it # times", source="own", feedback=MEMORY, pricing=UNCHARGED, suite=SUITE):
    """The queries of an episode of 20 steps, one every five, in which the policy writes a text each time."""
    task = next(iter(feedback))
    fed = EpisodeFeedback(feedback, parse_text_source(source), control_hz=20)
    return list(rollout(FakeWorld(), Writer(text, task), KEY, suite, pricing=pricing, feedback=fed))


def memories(queries):
    return [query.prompt.partition("Memory: ")[2] for query in queries]


def test_the_text_delivered_last_is_in_the_next_prompt():
    first, second, *_ = queries = queries_of()
    assert memories(queries) == ["none", "lifted it 0 times", "lifted it 1 times", "lifted it 2 times"]
    assert second.prompt == second.observation.language == f"{GOAL}\nMemory: lifted it 0 times"
    assert first.observation.feedback == {"instruction": GOAL, "memory": "none"}
    assert second.observation.feedback == {"instruction": GOAL, "memory": "lifted it 0 times"}
    assert (first.fed, second.fed["memory"].step, second.fed["memory"].observed_step) == ({}, 0, 0)


def test_delivery_and_lookback_decide_which_text_is_in_the_prompt():
    # A query every ten steps, its text delivered with the next.
    pricing = FixedPricing(Fixed(100, 500))
    late = queries_of(pricing=pricing)
    assert memories(late) == ["none", "lifted it 0 times"]
    assert (late[1].step, late[1].fed["memory"].step, late[1].fed["memory"].observed_step) == (10, 10, 0)
    half_a_second = {"memory": (dataclasses.replace(MEMORY["memory"][0], lookback_s=0.5),)}
    later = ["none", "none", "lifted it 0 times", "lifted it 1 times"]
    assert memories(queries_of(feedback=half_a_second)) == later
    assert memories(queries_of(feedback=half_a_second, pricing=pricing)) == [
        "none",
        "none",
    ]


def test_other_sources_replace_the_policys_texts():
    table, gripper = ("the black bowl is " + place for place in ("on the table", "in the gripper"))
    true = memories(queries_of(source="truth"))
    assert [text.partition("; ")[2] for text in true] == [table, table, gripper, ""]
    assert memories(queries_of(source="truth:0.5")) == ["none", "none", *true[:2]]  # ten steps: two queries
    first, *_ = queries_of(source="truth", feedback=PLAN)
    assert first.prompt.split("\nMemory: ") == [
        "Reaching for the black bowl.",
        "nothing done yet; the black bowl is on the table",
    ]
    assert memories(queries_of(source="none")) == ["none"] * 4
    assert memories(queries_of(source="frozen:lifted: it")) == ["lifted it"] * 4


def test_a_delayed_truth_is_of_the_request_and_delivered_with_the_text():
    true = [query.prompt for query in queries_of(source="truth")]
    delayed = [query.prompt for query in queries_of("?", source="truth-delayed")]
    assert delayed == [f"{GOAL}\nMemory: none", *true[:-1]]


def test_a_combined_answer_fills_both_fields_or_none():
    prompts = [query.prompt for query in queries_of("Memory: once\nSubtask: lift it", feedback=PLAN)]
    assert prompts[:2] == [f"{GOAL}\nMemory:", "lift it\nMemory: once"]
    for source in ("own", "truth-delayed"):
        prompts = [query.prompt for query in queries_of("Memory: once", source, PLAN)]
        assert prompts == [f"{GOAL}\nMemory:"] * 4


def test_a_combined_answer_is_read_in_the_order_of_its_fields_whatever_its_white_space():
    check_feedback([RunConfig(feedback=f"frozen:{ANSWER}")], SUBTASK_FIRST, policy="mine")
    frozen = [query.prompt for query in queries_of(source=f"frozen:{ANSWER}", feedback=SUBTASK_FIRST)]
    assert frozen == ["lift it\nMemory: once"] * 4
    fields = PLAN["plan"]
    both = parse_answer(" Memory:once\n\tor twice\r\n Subtask:  lift it ", fields)
    assert both == {"memory": "once or twice", "subtask": "lift it"}
    doubled = ("Memory: a Memory: b Subtask: c", "Memory: a Subtask: b Subtask:c")
    blank = ("", "Memory:" + " " * 5000, "Memory: a" + "\n" * 5000 + "Subtask:")
    assert [parse_answer(answer, fields) for answer in (*doubled, *blank)] == [None] * 5


@pytest.mark.parametrize(
    ("text", "shown", "cut"),
    [
        (" :\n", "none", None),
        ("Subtask: drop it\nState: 1", "Subtask drop it State 1", 0),
        ("記憶 " * 200, ("記憶 " * 80).strip(), 360),
    ],
)
def test_any_text_gives_an_unambiguous_recorded_prompt(tmp_path, text, shown, cut):
    queries = queries_of(text)
    assert memories(queries)[1] == shown
    folder = RunFolder(tmp_path)
    folder.queries_path(KEY).parent.mkdir()
    folder.queries_path(KEY).write_bytes(
        b"".join(json_line(query_to_json(dataclasses.replace(query, delivered=()))) for query in queries)
    )
    again = read_queries(folder, KEY)[1]
    assert (again.prompt, again.fed, again.prompt_cut) == (queries[1].prompt, queries[1].fed, 2)
    assert (again.fed["memory"].cut if cut is not None else None) == cut


class Mute(FakeWorld):
    def truth(self):
        return None


@pytest.mark.parametrize("source", ["truth", "truth-delayed"])
def test_a_world_without_the_truth_stops_the_run_at_once(source, tmp_path, monkeypatch, capsys):
    reader = dataclasses.replace(opened(Writer("lifted it")), fields_by_task=MEMORY)
    monkeypatch.setattr(executor, "open_policies", lambda *_, **__: [reader])
    without_physics(monkeypatch, lambda task: Mute())
    said = f"--feedback {source}: the world has no truth of 'memory'; choose own, none or frozen:TEXT"
    with pytest.raises(UsageError, match=said):
        play(tmp_path, policy="noop", feedback=source)
    assert "--resume" not in capsys.readouterr().out
    (run,) = map(RunFolder, tmp_path.iterdir())
    assert (run.read_manifest()["status"], run.episodes()) == ("interrupted", {})


@pytest.mark.parametrize(
    ("options", "feedback", "words"),
    [
        ({"feedback": "own"}, {}, ["--feedback own", "'mine' holds no text", "docs/memory.md"]),
        ({"feedback": "own", "mode": "actions"}, MEMORY, ["mode actions", "--feedback none or truth"]),
        ({"feedback": "frozen:"}, MEMORY, ["'frozen:' has no text", "give 'frozen:TEXT'"]),
        (
            {"feedback": "frozen:once"},
            PLAN,
            ["'frozen:once' is not", "give 'frozen:Memory: TEXT Subtask: TEXT'"],
        ),
        ({"feedback": "frozen:once"}, SUBTASK_FIRST, ["give 'frozen:Subtask: TEXT Memory: TEXT'"]),
        ({"feedback": "frozen:once"}, TWO_TASKS, ["one language task", "memory and steps"]),
    ],
)
def test_an_impossible_source_of_feedback_is_refused(options, feedback, words):
    with pytest.raises(UsageError) as refused:
        check_feedback([RunConfig(**options)], feedback, policy="mine")
    assert all(word in str(refused.value) for word in words), refused.value


def test_a_policy_that_decides_itself_when_it_writes_may_read_its_texts_in_every_mode():
    check_feedback([RunConfig(feedback="own", mode="actions")], MEMORY, policy="mine", follows_mode=False)


def test_no_baseline_reads_memory(tmp_path):
    with pytest.raises(UsageError, match="the prompt of policy 'noop' holds no text"):
        play(tmp_path, policy="noop", feedback="truth")


LABEL = "Memory of all that was done before this moment:"
FIELD = {"field": "memory", "format": LABEL + " {text}"}
KEYS = [KEY, dataclasses.replace(KEY, init_id=1)]


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


def reading(reader, suite, **options):
    chosen = {"policy": str(reader), "suites": (suite,), "language_tasks": ("memory",), "video": "none"}
    return VariantsConfig(**{**chosen, "text_every": 2, **options})


def played(output, reader, suite, *, executor=SERIAL, **options):
    """The queries of two episodes in each mode."""
    runs = begin(output, reading(reader, suite, **options))
    evaluate(*runs, executor=executor)
    for run in runs:
        assert {each.outcome for each in run.folder.episodes().values()} == {"timeout"}
        assert {each.compiles_after_warm_up for each in run.folder.episodes().values()} == {0}
    return [[read_queries(run.folder, key) for key in KEYS] for run in runs], runs


def done(episodes):
    return [[(query.prompt, query.actions.tobytes()) for query in queries] for queries in episodes]


def test_actions_are_equal_bit_for_bit_in_all_modes_for_equal_prompts(tmp_path, reader, suite, capfd):
    modes = ("actions", "isolated", "interleaved", "shared", "unified")
    episodes, runs = played(tmp_path, reader, suite, mode=modes, feedback="truth")
    reference, *others = map(done, episodes)
    assert all(other == reference for other in others)
    assert reference[0][0][0].endswith("the black bowl is on the table")
    hashes = {run.folder.read_manifest()["protocol_hash"] for run in runs}
    assert len(hashes) == 1
    assert "wrote no text" not in capfd.readouterr().out


@pytest.mark.slow
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
    (episodes,), _ = played(tmp_path, reader, suite, mode="actions", feedback="frozen:" + "記憶" * 50)
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
        ("pi05_libero", (str(files[0]),), "'pi05_libero' was not trained with memory in its prompt"),
        ("expert", (str(files[0]),), "'expert' was not trained with memory in its prompt"),
        (reader, ("memory", str(files[1])), "'memory' and 'plan' both fill field 'memory'"),
    ):
        with pytest.raises(UsageError, match=why):
            resolve_policy(reading(policy, suite, language_tasks=tasks).variants()[0])
    with pytest.raises(UsageError, match="--feedback truth: the prompt of policy 'tiny' holds no text"):
        play(tmp_path, reading("tiny", suite, feedback="truth").variants()[0])


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
    feedback = EpisodeFeedback(policy.fields_by_task, OWN, control_hz=20)
    return [query.prompt for query in rollout(FakeWorld(), acting, KEYS[0], FakeSuite(), feedback=feedback)]


def test_a_class_gets_its_memory_and_returns_it(tmp_path):
    file = tmp_path / "counter.py"
    file.write_text(textwrap.dedent(COUNTER))
    policy = open_python(f"{file}:Counter", {})
    assert prompts_of(policy) == [f"{GOAL}\nMemory: {count}" for count in range(4)]
    assert policy.in_world(None, None)._policy.seen[-1] == (f"{GOAL}\nMemory: 3", "3", GOAL)
    assert policy.writes_texts
    assert policy.remark
    assert "state, prompt) and of its texts (instruction, memory);" in policy.remark


@pytest.mark.parametrize("key", ["memory", "memry"])
def test_a_class_that_never_returns_its_memory_is_told_so_once(tmp_path, suite, key, capfd):
    file = tmp_path / "counter.py"
    file.write_text(textwrap.dedent(COUNTER).replace('"memory": str', f'"{key}": str'))
    modes = ("isolated", "unified")
    evaluate(*begin(tmp_path, reading(f"{file}:Counter", suite, language_tasks=(), mode=modes)))
    told = "Counter declares `feedback` and wrote no text that fills `memory`: a class returns `memory`"
    said = " ".join(capfd.readouterr().out.split())
    assert said.count(told) == (key == "memry")
    assert said.count("Counter decides itself what a query computes, whatever the mode.") == 1


def test_a_run_is_resumed_with_the_same_fields_only(tmp_path, suite):
    file = tmp_path / "counter.py"
    file.write_text(textwrap.dedent(COUNTER))
    config = reading(f"{file}:Counter", suite, language_tasks=())
    (run,) = begin(tmp_path / "runs", config)
    evaluate(run)
    declared = {"memory": "Memory: {text}", "memory empty": "0"}
    assert run.folder.read_manifest()["policy_inputs"]["feedback"] == declared


def test_a_class_whose_text_replaces_the_instruction_is_played_and_recorded(tmp_path, suite):
    file = tmp_path / "counter.py"
    declared = {
        "memory": {**FIELD, "role": "instruction", "format": "{text} (to {instruction})", "empty": "0"}
    }
    file.write_text(textwrap.dedent(COUNTER) + f"    feedback = {declared!r}\n")
    config = reading(
        f"{file}:Counter", suite, language_tasks=(), mode=("actions",), feedback="own", text_every=1
    )
    (run,) = begin(tmp_path / "runs", config)
    evaluate(run)
    recorded = {"memory": "{text} (to {instruction})", "memory empty": "0", "memory role": "instruction"}
    assert run.folder.read_manifest()["policy_inputs"]["feedback"] == recorded
    assert [query.prompt for query in read_queries(run.folder, KEYS[0])][:2] == [
        f"{n} (to {GOAL})" for n in (0, 1)
    ]


@pytest.mark.parametrize("given", ["memory", "subtask"])
def test_an_answer_without_one_of_its_fields_is_recorded_and_changes_nothing(tmp_path, suite, given):
    file = tmp_path / "counter.py"
    plan = {"plan": [dataclasses.asdict(field) for field in PLAN["plan"]]}
    counter = textwrap.dedent(COUNTER).replace(
        '"memory": str(int(obs["memory"]) + 1)', f'"{given}": "lift it"'
    )
    file.write_text(counter + f"    feedback = {plan!r}\n")
    (run,) = begin(tmp_path / "runs", reading(f"{file}:Counter", suite, language_tasks=()))
    evaluate(run)
    queries = read_queries(run.folder, KEYS[0])
    assert {query.prompt for query in queries} == {f"{GOAL}\nMemory:"}
    texts = {text.text for query in queries for text in query.delivered}
    assert texts == {"Memory: lift it\nSubtask: " if given == "memory" else "Memory: \nSubtask: lift it"}


@pytest.mark.parametrize(("key", "is_told"), [("subtask", False), ("subtusk", True)])
def test_a_class_that_never_returns_one_of_its_two_fields_is_told_which(tmp_path, suite, key, is_told, capfd):
    subtask = """feedback["steps"] = {"field": "subtask", "format": "Subtask: {text}"}"""
    two = textwrap.dedent(COUNTER).replace("    def __init__", f"    {subtask}\n\n    def __init__", 1)
    file = tmp_path / "counter.py"
    file.write_text(two.replace('"memory": str', f'"{key}": "lift it", "memory": str'))
    evaluate(*begin(tmp_path, reading(f"{file}:Counter", suite, language_tasks=())))
    said = capfd.readouterr().out
    assert ("wrote no text that fills `subtask`: a class returns `subtask` beside" in said) == is_told
    assert ("declares `feedback`" in said) == is_told


@pytest.mark.parametrize(
    ("declared", "why"),
    [
        ({"memory": "memory"}, "Counter: memory: 'memory' is neither a mapping with field"),
        (FIELD, "give a mapping of language task to field, such as"),
        ({"memory": {**FIELD, "lookback": 1}}, "unknown key 'lookback'; did you mean 'lookback_s'"),
        ({"memory": {**FIELD, "lookback_s": -1}}, "`lookback_s` of memory is -1"),
        ({"memory": {**FIELD, "empty": "a: b"}}, "`empty` of memory is 'a: b'; give 'a b'"),
        ({"memory": {**FIELD, "format": "Memory: {text}\nDone: 1"}}, "has a line break"),
        ({"a": FIELD, "b": FIELD}, "Counter: language tasks 'a' and 'b' both fill field 'memory'"),
        ({"a": FIELD, "b": {**FIELD, "field": "subtask"}}, "have one label"),
    ],
)
def test_a_class_with_a_wrong_declaration_is_refused(declared, why, tmp_path):
    file = tmp_path / "counter.py"
    file.write_text(textwrap.dedent(COUNTER) + f"    feedback = {declared!r}\n")
    with pytest.raises(UsageError, match=re.escape(why)):
        open_python(f"{file}:Counter", {})


def test_a_text_with_the_label_of_another_field_stays_in_its_own(tmp_path):
    file = tmp_path / "counter.py"
    plan = {"plan": [dataclasses.asdict(field) for field in PLAN["plan"]]}
    counter = textwrap.dedent(COUNTER).replace("int(obs", "len(obs")
    answered = counter.replace('"memory": str', '"subtask": "lift", "memory": "Subtask: drop it" + str')
    file.write_text(answered + f"    feedback = {plan!r}\n")
    prompts = prompts_of(open_python(f"{file}:Counter", {}))
    assert prompts[:2] == [f"{GOAL}\nMemory:", "lift\nMemory: Subtask drop it1"]


@pytest.mark.parametrize(("given", "kept"), [("truth:0.50", "truth:0.5"), ("truth:0", "truth")])
def test_an_age_has_one_form(given, kept):
    assert str(RunConfig(feedback=given).feedback) == kept


def test_a_server_of_openpis_protocol_gets_and_returns_both_fields():
    plan = [dataclasses.asdict(field) for field in PLAN["plan"]]

    def answer(request):
        return {"actions": ACTIONS[:, :7] * 0, "memory": request["memory"] + "I", "subtask": "lift it"}

    metadata = {"embodiment": "libero", "feedback": {"plan": plan}}
    with OpenpiServer(answer, metadata=metadata) as server, server.opened() as policy:
        later = [f"lift it\nMemory: {'I' * count}" for count in (1, 2, 3)]
        assert prompts_of(policy) == [f"{GOAL}\nMemory:", *later]
    fields = {"instruction": GOAL, "memory": "III", "subtask": "lift it", "prompt": later[-1]}
    assert fields.items() <= server.queries[-1].items()


def test_our_server_declares_its_fields_and_gets_the_composed_prompt():
    field = {"field": "memory", "format": "Memory: {text}"}
    with serving(feedback={"narration": [field]}) as server, server.opened(modes=["unified"]) as policy:
        prompts = prompts_of(policy)
    sent = [request["prompt"] for request in server.queries if "prompt" in request]
    assert sent == prompts
    assert prompts[1:3] == [f"{GOAL}\nMemory:", f"{GOAL}\nMemory: I narrate query 0 — schön"]
