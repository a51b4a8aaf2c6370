"""What a policy said is in its next prompts once it was delivered; other sources of texts replace its own."""

import dataclasses

import numpy as np
import pytest

from configs.errors import UsageError
from configs.feedback import Feedback
from configs.schema import RunConfig
from eval.records.json_files import json_line
from eval.records.query_logs import read_queries
from eval.records.run_folders import new_run
from eval.records.schema import RunFolder
from eval.rollout.clock import PAUSED, fixed_clock
from eval.rollout.executors import executor
from eval.rollout.feedback import EpisodeFeedback
from eval.rollout.plan import check_feedback
from eval.rollout.rollout import rollout
from oxygen.policy.reply import EpisodeEnd
from sim_envs.fake import FakeSuite, FakeWorld
from sim_envs.world import EpisodeKey
from tests.eval.conftest import CONFIG, evaluate
from tests.eval.doubles import FakePolicy, opened, reply, text_finished, without_physics

SUITE = FakeSuite()
KEY = EpisodeKey(suite="fake", task_id=0, init_id=0, seed=7)
GOAL = "put the black bowl on the plate"
MEMORY = {"memory": (Feedback(field="memory", format="Memory: {text}", empty="none"),)}
PLAN = {
    "plan": (
        Feedback(field="memory", format="Memory: {text}", answer="Memory: {text}"),
        Feedback(field="subtask", format="{text}", answer="Subtask: {text}", role="instruction"),
    )
}


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


def queries_of(text="lifted it # times", source="own", feedback=MEMORY, clock=PAUSED, suite=SUITE):
    """The queries of an episode of 20 steps, one every five, in which the policy writes a text each time."""
    task = next(iter(feedback))
    fed = EpisodeFeedback(feedback, source, control_hz=20)
    return list(rollout(FakeWorld(), Writer(text, task), KEY, suite, clock=clock, feedback=fed))


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
    late = queries_of(clock=fixed_clock(100, 500))
    assert memories(late) == ["none", "lifted it 0 times"]
    assert (late[1].step, late[1].fed["memory"].step, late[1].fed["memory"].observed_step) == (10, 10, 0)
    half_a_second = {"memory": (dataclasses.replace(MEMORY["memory"][0], lookback_s=0.5),)}
    assert memories(queries_of(feedback=half_a_second)) == [
        *("none", "none"),
        *("lifted it 0 times", "lifted it 1 times"),
    ]
    assert memories(queries_of(feedback=half_a_second, clock=fixed_clock(100, 500))) == ["none", "none"]


def test_other_sources_replace_the_policys_texts():
    assert [text.partition("; ")[2] for text in memories(queries_of(source="truth"))] == [
        *["the black bowl is on the table"] * 2,
        "the black bowl is in the gripper",
        "",
    ]
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
    prompts = [query.prompt for query in queries_of("Memory: once", feedback=PLAN)]
    assert prompts == [f"{GOAL}\nMemory:"] * 4


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
        b"".join(json_line(dataclasses.replace(query, delivered=()).to_json()) for query in queries)
    )
    again = read_queries(folder, KEY)[1]
    assert (again.prompt, again.fed, again.prompt_cut) == (queries[1].prompt, queries[1].fed, 2)
    assert (again.fed["memory"].cut if cut is not None else None) == cut


class Mute(FakeWorld):
    """Has no ground truth."""

    def truth(self):
        return None


@pytest.mark.parametrize("source", ["truth", "truth-delayed"])
def test_a_world_without_the_truth_stops_the_run_at_once(source, tmp_path, monkeypatch):
    reader = dataclasses.replace(opened(Writer("lifted it")), feedback=MEMORY)
    monkeypatch.setattr(executor, "open_policies", lambda *_, **__: [reader])
    without_physics(monkeypatch, lambda task: Mute())
    run = new_run(tmp_path, CONFIG.model_copy(update={"policy": "noop", "feedback": source}))
    with pytest.raises(
        UsageError, match=f"--feedback {source}: the world has no truth of 'memory'; choose own"
    ):
        evaluate(run)
    assert (run.folder.read_manifest()["status"], run.folder.episodes()) == ("interrupted", {})


@pytest.mark.parametrize(
    ("options", "feedback", "words"),
    [
        ({"feedback": "own"}, {}, ["--feedback own", "not trained", "docs/memory.md"]),
        ({"feedback": "own", "mode": "actions"}, MEMORY, ["mode actions", "--feedback none or truth"]),
        ({"feedback": "frozen:once"}, PLAN, ["'once'", "Memory: TEXT", "Subtask: TEXT"]),
    ],
)
def test_an_impossible_source_of_feedback_is_refused(options, feedback, words):
    with pytest.raises(UsageError) as refused:
        check_feedback([RunConfig(**options)], feedback, policy="mine")
    assert all(word in str(refused.value) for word in words), refused.value
