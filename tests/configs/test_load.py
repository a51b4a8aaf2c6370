"""Presets: every shipped one fits its schema, and what does not fit is named in one line."""

import pytest

from configs.errors import UsageError
from configs.language_task import LanguageTaskConfig
from configs.load import check, load, names
from configs.profile import ProfileConfig
from configs.schema import PolicyConfig, RunConfig, SuiteConfig, VariantsConfig


@pytest.mark.parametrize(
    "schema", [LanguageTaskConfig, PolicyConfig, VariantsConfig, SuiteConfig, ProfileConfig]
)
def test_every_shipped_preset_fits_its_schema_and_is_named_like_its_file(schema):
    assert names(schema)
    for name in names(schema):
        assert getattr(load(schema, name), "name", name) == name


def test_published_limits_of_the_suites():
    suites = [name for name in names(SuiteConfig) if name.startswith("libero_")]
    limits = {name: load(SuiteConfig, name).max_steps for name in suites}
    assert limits == {
        "libero_spatial": 220,
        "libero_object": 280,
        "libero_goal": 300,
        "libero_10": 520,
        "libero_90": 400,
    }
    for name in limits:
        suite = load(SuiteConfig, name)
        assert (suite.settle_steps, suite.trials_per_task, suite.control_hz) == (10, 50, 20)
        assert (suite.camera_size, suite.replan_steps) == (256, 5)


def test_an_unknown_preset_names_the_nearest():
    with pytest.raises(UsageError, match="did you mean 'libero_object'"):
        load(SuiteConfig, "libero_objects")


def test_an_unknown_key_names_the_nearest():
    with pytest.raises(UsageError, match="unknown key 'max_step'; did you mean 'max_steps'"):
        check(RunConfig, {"max_step": 3}, source="a test")


def test_an_unknown_key_names_the_nearest_of_the_keys_at_its_place():
    content = {"name": "talk", "prompt": "Say: ", "max_tokens": 5, "sampling": {"temprature": 1.0}}
    with pytest.raises(UsageError, match=r"key 'temprature'; did you mean 'temperature'.*In sampling of"):
        check(LanguageTaskConfig, content, source="a test")


def test_an_unknown_value_names_the_nearest():
    with pytest.raises(UsageError, match="unknown mode 'unifed'; did you mean 'unified'"):
        check(RunConfig, {"mode": "unifed"}, source="a test")


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ({"seed": -1}, "seed is -1"),
        ({"max_steps": 0}, "max_steps is 0"),
        ({"task_ids": "3-1"}, "the range '3-1' runs backwards"),
    ],
)
def test_values_out_of_range_are_told_in_one_line(content, complaint):
    with pytest.raises(UsageError) as caught:
        check(RunConfig, content, source="a test")
    assert complaint in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_field_is_named():
    with pytest.raises(UsageError) as caught:
        check(PolicyConfig, {"kind": "noop"}, source="mine.yaml")
    assert str(caught.value) == "mine.yaml: name is missing: give it"


@pytest.mark.parametrize("content", ["- a\n- b\n", "key: [unclosed", "\x00"])
def test_a_file_that_is_no_mapping_is_refused_in_one_line(tmp_path, content):
    path = tmp_path / "mine.yaml"
    path.write_text(content)
    with pytest.raises(UsageError) as caught:
        load(VariantsConfig, str(path))
    assert "mine.yaml" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_preset_may_be_a_file_of_ones_own(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("suites: [libero_goal]\nseed: 3\n")
    assert load(VariantsConfig, str(path)) == VariantsConfig(suites=("libero_goal",), seed=3)


def test_a_missing_file_is_told_in_one_line():
    with pytest.raises(UsageError, match=r"no such file 'absent\.yaml'"):
        load(VariantsConfig, "absent.yaml")
