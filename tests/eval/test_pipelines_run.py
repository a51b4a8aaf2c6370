"""The pipelines of the bundled policies run from end to end, with few episodes and batches."""

import pytest
import yaml

from configs.load import load
from configs.pipeline import PipelineConfig
from eval import pipeline as command


def reduced(name: str, pipeline: PipelineConfig) -> dict:
    """The same stages: one task and two initial states a step, two small batches a training.

    Trainings begin with the bundled policy and change it little: no expert can save the episodes of a learner
    that knows nothing.
    """
    content = pipeline.model_dump(mode="json", exclude_unset=True, exclude={"defaults"})
    content["stages"][0]["train"]["start_from"] = name
    for stage in content["stages"]:
        stage.pop("checkpoint", None)
        stage["train"] |= {"steps": 2, "batch": 4, "save_every": 2, "warm_up": 1, "learning_rate": 1e-6}
        if not stage["train"].get("texts_only"):
            stage["train"]["norm_stats"] = "from-start"
        if "text_rows" in stage["train"]:
            stage["train"]["text_rows"] = 2
        for step in stage.get("collect", ()):
            step |= {"init_ids": step["init_ids"][-2:], "task_ids": step.get("task_ids", [0])[:1]}
            if "assets" in step:
                step["assets"] = "standins"
    return content


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", ["tiny", "tiny_droid", "tiny_memory"])
def test_a_pipeline_runs_from_end_to_end_at_reduced_size(name, tmp_path):
    pipeline = load(PipelineConfig, name)
    (tmp_path / "reduced.yaml").write_text(yaml.safe_dump(reduced(name, pipeline)))
    words = [str(tmp_path / "reduced.yaml"), "--output-dir", str(tmp_path / "run")]
    assert command.app(words, exit_on_error=False, result_action="return_value") == 0
    for stage in pipeline.stages:
        assert (tmp_path / "run" / stage.name / "checkpoints/step_0000002/training.json").is_file()
