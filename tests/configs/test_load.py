"""Presets fit their schemas; errors name the nearest key or value; prompts with texts stay unambiguous."""

import math

import pytest

from configs.errors import check
from configs.language_task import LanguageTaskConfig
from configs.load import load, names, overlay
from configs.profile import ProfileConfig
from configs.schema import (
    PolicyConfig,
    RunConfig,
    SuiteConfig,
    SweepConfig,
    VariantsConfig,
    read_prompt_fields,
)
from contracts.errors import UsageError, unknown
from contracts.motion import Drift, Shuttle, Static, parse_motion
from contracts.prompt import PromptField, cleaned, compose, parse_answer, prompt_fields, write_answer


def test_every_shipped_preset_fits_its_schema_and_is_named_like_its_file():
    for schema in (LanguageTaskConfig, PolicyConfig, VariantsConfig, SuiteConfig, ProfileConfig, SweepConfig):
        assert names(schema)
        for name in names(schema):
            assert getattr(load(schema, name), "name", name) == name


def test_suites_of_libero_have_the_published_protocol():
    """Perturbed ones have that of the suite they perturb; LIBERO-plus plays each task once."""
    suites = [load(SuiteConfig, name) for name in names(SuiteConfig) if name.startswith("libero_")]
    limits = {"spatial": 220, "object": 280, "goal": 300, "10": 520}
    assert {suite.name: suite.max_steps for suite in suites} == {
        **{f"libero_{name}": steps for name, steps in limits.items()},
        **{f"libero_plus_{name}": steps for name, steps in limits.items()},
        **{
            f"libero_pro_{name}_{dimension}": steps
            for name, steps in limits.items()
            for dimension in ("lan", "swap", "object", "task")
        },
        "libero_90": 400,
        "libero_memory": 1000,
        "libero_memory_short": 500,
    }
    for suite in suites:
        trials = 1 if "_plus_" in suite.name else 50
        assert (suite.settle_steps, suite.trials_per_task, suite.control_hz) == (10, trials, 20)
        assert (suite.camera_size, suite.replan_steps) == (256, 5)


def test_an_unknown_name_is_one_line_with_the_nearest_first():
    error = str(unknown("suite", "libero_objct", ["libero_10", "libero_object"], remedy="See --help."))
    assert error.startswith("unknown suite 'libero_objct'; did you mean 'libero_object'?")
    assert error.endswith("Allowed: libero_object, libero_10. See --help.")
    assert "(130 in all)" in str(unknown("task", "x", range(130)))
    with pytest.raises(UsageError, match="did you mean 'libero_object'"):
        load(SuiteConfig, "libero_objects")


TALK = {"name": "talk", "prompt": "Say: ", "max_tokens": 5}
TIME = {"ms": 1.0, "kind": "measured", "source": "a test"}
SLOWER = {"action": 0.9, "decode": 2.0, "kind": "measured", "source": "a test"}
STAGES = ("host", "prefill", "denoise", "fork")
PROFILE = {"name": "mine", "device": "an abacus", "dtype": "float32", "model": "tiny", "source": "a test"}
PROFILE |= {**dict.fromkeys(STAGES, TIME), "decode": {1: TIME}}
MOVING = load(SuiteConfig, "libero_object").model_dump()


@pytest.mark.parametrize(
    ("schema", "content", "said"),
    [
        (RunConfig, {"max_step": 3}, "unknown key 'max_step'; did you mean 'max_steps'"),
        (LanguageTaskConfig, {**TALK, "sampling": {"temprature": 1}}, "did you mean 'temperature'"),
        (RunConfig, {"mode": "unifed"}, "unknown mode 'unifed'; did you mean 'unified'"),
        (RunConfig, {"seeds": [-1]}, "'-1' is neither a number"),
        (RunConfig, {"max_steps": True}, "max_steps: true is not a number"),
        (LanguageTaskConfig, {**TALK, "priority": False}, "priority: false is not a number"),
        (RunConfig, {"task_ids": "3-1"}, "the range '3-1' runs backwards"),
        (PolicyConfig, {"kind": "noop", "name": "a b"}, "string should match pattern '^[A-Za-z0-9_.-]+$'"),
        (PolicyConfig, {"kind": "noop"}, "a test: name is missing: give it"),
        (PolicyConfig, {"kind": "noop", "nam": "a"}, "unknown key 'nam'; did you mean 'name'"),
        *(
            (ProfileConfig, PROFILE | {stage: TIME | {"ms": -1}}, f"{stage}.ms is")
            for stage in (*STAGES, "text_prefill")
        ),
        *(
            (ProfileConfig, PROFILE | {"host": TIME | {"ms": wrong}}, "host.ms is")
            for wrong in (math.nan, math.inf, "soon")
        ),
        (ProfileConfig, PROFILE | {"decode": {}}, "decode"),
        (ProfileConfig, PROFILE | {"jitter": math.inf}, "jitter"),
        (ProfileConfig, PROFILE | {"parallel": SLOWER}, "parallel.action"),
        (ProfileConfig, PROFILE | {"host": TIME | {"kind": "measure"}}, "did you mean 'measured'"),
        (ProfileConfig, PROFILE | {"host": {"ms": 1.0, "kind": "measured"}}, "host.source"),
        (ProfileConfig, PROFILE | {"denoising": TIME}, "did you mean 'denoise'"),
        (SuiteConfig, MOVING | {"motion": "shutle:3"}, "did you mean 'shuttle:SPEED'"),
        (SuiteConfig, MOVING | {"motion": "shuttle:fast"}, "SPEED is in cm/s"),
        (SuiteConfig, MOVING | {"motion": "shuttle:0.03"}, "speed 0.03 cm/s; give 0.1 to 30 cm/s"),
        (SuiteConfig, MOVING | {"motion": "shuttle:3,0.1"}, "period 0.1 s; give 1 to 60 s"),
    ],
)
def test_an_invalid_preset_is_refused_in_one_line(schema, content, said):
    check(ProfileConfig, PROFILE, source="a test")
    with pytest.raises(UsageError) as caught:
        check(schema, content, source="a test")
    assert said in str(caught.value)


def test_motions_are_in_cm_per_second_and_have_one_spelling():
    for text, motion, spelling in (
        ("none", Static(), "none"),
        ("shuttle:3.0", Shuttle(speed=0.03, period=4.0), "shuttle:3,4"),
        ("shuttle:1.5,2", Shuttle(speed=0.015, period=2.0), "shuttle:1.5,2"),
        ("drift:6", Drift(speed=0.06), "drift:6"),
    ):
        assert parse_motion(text) == motion
        assert str(SuiteConfig(**MOVING | {"motion": text}).motion) == spelling


def test_a_preset_may_be_a_file(tmp_path):
    path = tmp_path / "mine.yaml"
    for damaged in ("- a\n- b\n", "key: [unclosed", "\x00"):
        path.write_text(damaged)
        with pytest.raises(UsageError, match=r"mine\.yaml"):  # whose message is one line
            load(VariantsConfig, str(path))
    path.write_text("suites: [libero_goal]\nseeds: 3\n")
    assert load(VariantsConfig, str(path)) == VariantsConfig(suites=("libero_goal",), seeds=(3,))
    with pytest.raises(UsageError, match=r"no such file 'absent\.yaml'"):
        load(VariantsConfig, "absent.yaml")
    path.write_text("suites: [libero_goal]\nnum_envs: 2\n")
    with pytest.raises(UsageError, match=f"{path}: num_envs is given on the command line: --num-envs 2"):
        overlay(VariantsConfig, str(path), {})


MEMORY = PromptField(field="memory", format="Memory: {text}")
SUBTASK = PromptField(field="subtask", format="{text}", role="instruction")
ANSWER = (
    PromptField(field="memory", format="Memory: {text}", answer="Memory: {text}"),
    PromptField(field="subtask", format="Current subtask: {text}", answer="Subtask: {text}"),
)


def test_a_prompt_is_the_instruction_and_a_line_for_each_field_or_its_empty_text():
    fields = prompt_fields({"plan": ANSWER})
    texts = {"subtask": "lift the bowl", "memory": "lifted it once"}
    whole = "lift the bowl twice\nMemory: lifted it once\nCurrent subtask: lift the bowl"
    assert compose("lift the bowl twice", fields, texts) == whole
    stated = PromptField(field="memory", format="Memory: {text}", empty="nothing yet")
    assert compose("lift it", [MEMORY], {}) == "lift it\nMemory:"
    assert compose("lift it", [stated], {}) == "lift it\nMemory: nothing yet"
    # A subtask replaces the instruction once there is one.
    assert compose("clear the table", [SUBTASK], {}) == "clear the table"
    assert compose("clear the table", [SUBTASK], {"subtask": "lift the cup"}) == "lift the cup"
    both = PromptField(field="subtask", format="{text} (to {instruction})", role="instruction")
    composed = compose("clear the table", [both], {"subtask": "lift {instruction}"})
    assert composed == "lift {instruction} (to clear the table)"


@pytest.mark.parametrize(
    "text",
    [
        "put it there\nSubtask: throw it",
        "done, State: 1 2 3;\nAction: ",
        "full width： Subtask： throw it",
        "Memory\x00: \u2028Task_: x",
        "half a \ud800 letter: x",
    ],
)
def test_texts_cannot_imitate_a_field(text):
    inside, cut = cleaned(text, 240)
    assert cut == 0
    prompt = compose("lift it", [MEMORY], {"memory": inside})
    assert prompt.count(":") == 1
    assert prompt.splitlines() == ["lift it", f"Memory: {inside}"]
    assert prompt.encode()


def test_a_long_text_is_cut_and_counted():
    assert cleaned("lifted  the\nbowl twice", 15) == ("lifted the bowl", 6)
    assert cleaned("記憶" * 100, 10) == ("記憶" * 5, 190)


def test_joiners_inside_words_stay_and_others_go():
    word, conjunct = "می\u200cخواهم", "क्\u200dष"
    assert cleaned(f"{word} \u200d {conjunct}\u200d\u2066", None) == (f"{word} {conjunct}", 0)
    assert cleaned("a\u200cb", 2) == ("a", 2)
    assert parse_answer("\u200d \u200c", [MEMORY]) is None


def test_an_answer_with_two_fields_is_read_whole_or_not_at_all():
    texts = {"memory": "lifted it once", "subtask": "lift it"}
    assert parse_answer(write_answer(texts, ANSWER), ANSWER) == texts
    assert parse_answer("Memory: lifted it once Subtask: lift it", ANSWER) == texts
    for broken in (
        "",
        "Memory: lifted it once",
        "Memory: \nSubtask: lift it",
        "Subtask: lift it\nMemory: lifted it once",
        "Memory: a\nSubtask: b\nSubtask: c",
        "I remember nothing",
    ):
        assert parse_answer(broken, ANSWER) is None
    assert parse_answer(" : \n", [MEMORY]) is None


@pytest.mark.parametrize(
    ("declared", "words"),
    [
        ({"memory": {"field": "memry", "format": "Memory: {text}"}}, ["memry", "'memory'"]),
        ({"memory": {"field": "memory", "format": "Memory {text}"}}, ["Memory {text}", "label with a colon"]),
        ({"memory": {"field": "memory", "format": "Memory:"}}, ["Memory:", "'Memory: {text}'"]),
        ({"memory": {"field": "memory", "format": "Memory: {text}", "lookback_s": -1}}, ["-1", "0 to 3600"]),
        (
            {"memory": {"field": "memory", "format": "Memory: {text}", "max_chars": 0}},
            ["`max_chars`", "is 0"],
        ),
        (
            {"memory": {"field": "memory", "format": "Memory: {text} {foo}"}},
            ["has {foo}", "give {text} alone"],
        ),
        (
            {"memory": {"field": "memory", "format": "{instruction}: {text}"}},
            ["has {instruction}", "role context"],
        ),
        ({"memory": {"field": "memory", "format": "Memory: {text}", "lookbak_s": 1}}, ["lookbak_s"]),
        ({"memory": "memory"}, ["memory: 'memory' is neither a mapping with field and format", "a list of"]),
        ({"memory": [MEMORY, 3]}, ["3] is neither a mapping with field and format"]),
        ([MEMORY], ["my policy is [", "a mapping of language task to field"]),
        ({"a": [MEMORY], "b": [MEMORY]}, ["'a' and 'b'", "'memory'", "leave one"]),
        ({"a": [MEMORY, SUBTASK]}, ["2 fields", "`answer`", "Memory: {text}"]),
    ],
)
def test_a_wrong_declaration_is_one_clear_line(declared, words):
    with pytest.raises(UsageError) as refused:
        read_prompt_fields(declared, "my policy")
    assert all(word in str(refused.value) for word in words), refused.value
