"""The options of a collection of demonstrations."""

from typing import Annotated, Self

from cyclopts import Group, Parameter
from pydantic import Field, model_validator

from configs.cli import Names, Numbers
from configs.motion import MotionText
from configs.schema import Count, Dtype, ImageStorage, Pixels, Preset, SettleSteps

WHAT = Parameter(group=Group("Episodes", sort_key=1))
PROTOCOL = Parameter(group=Group("Protocol", sort_key=2))
OUTPUT = Parameter(group=Group("Output", sort_key=3))


class CollectConfig(Preset):
    """The options of `python -m eval.collect`, on its command line or in a YAML file.

    Attributes:
        suites: Task suites, by name or as YAML files.
        task_ids: Tasks of every suite, as `0 3 7`, `0,3,7` or `0-4`. Default: all.
        num_trials_per_task: Episodes per task and seed, one per stored initial state. Default: 50.
        init_ids: Which initial states, instead of the first `num_trials_per_task` stored ones. A suite may
            have sampled ones beyond those.
        seeds: Seeds; every task and initial state is played once with each. Default: 7.
        policy: The policy that acts: expert, tiny, pi05_libero, …; a checkpoint's folder; or a YAML file.
        random_weights: Random weights instead of the policy's checkpoint.
        dtype: The policy's compute type. Default: its own.
        expert_noise: Variation of the expert's pace and path, and frequency of its mistakes, 0 to 1. The
            recorded actions are the intended ones, without noise.
        learner: A policy that acts in turns with the expert (DAgger); only the expert's actions are training
            targets. Default: none.
        assets: The suites' assets: a folder, or the name of a source (auto, standins, download).
        replan_steps: Control steps between two queries, 1 to 10. Every query is a frame with the action
            intended there; the default, 1, is what LeRobot's trainers expect.
        num_steps_wait: Settle steps before the first query. Default: 10.
        max_steps: Step limit of an episode. Default: the suite's published limit.
        variation: Variation of scenes between episodes, 0 (none) to 1, if the suite has it. Default: the
            suite's.
        motion: Motion of the object to grasp until it is touched: none, shuttle:SPEED[,PERIOD] (oscillating)
            or drift:SPEED (along a line), in cm/s and s, such as shuttle:3. Default: the suite's.
        keep_failures: Also keep failed episodes, for their texts; their actions are not training targets.
        image_size: Height of the images, pixels. Default: the suite's own.
        images: Image storage: png (lossless) or video (smaller).
        horizon: Control steps in an action chunk; `eval.train` needs at least the model's horizon.
    """

    suites: Annotated[Names, WHAT, Parameter(name="--suite")] = ()
    task_ids: Annotated[Numbers, WHAT] = ()
    num_trials_per_task: Annotated[Count | None, WHAT] = None
    init_ids: Annotated[Numbers, WHAT] = ()
    seeds: Annotated[Numbers, WHAT, Field(min_length=1)] = (7,)
    policy: Annotated[str, WHAT] = "expert"
    random_weights: Annotated[bool, WHAT] = False
    dtype: Annotated[Dtype | None, WHAT] = None
    expert_noise: Annotated[float, WHAT, Field(ge=0, le=1)] = 0.0
    learner: Annotated[str | None, WHAT] = None
    assets: Annotated[str, PROTOCOL] = "auto"
    replan_steps: Annotated[int, PROTOCOL, Field(gt=0, le=10)] = 1
    num_steps_wait: Annotated[SettleSteps | None, PROTOCOL] = None
    max_steps: Annotated[Count | None, PROTOCOL] = None
    variation: Annotated[float | None, PROTOCOL, Field(ge=0, le=1)] = None
    motion: Annotated[MotionText | None, PROTOCOL] = None
    keep_failures: Annotated[bool, OUTPUT] = False
    image_size: Annotated[Pixels | None, OUTPUT] = None
    images: Annotated[ImageStorage, OUTPUT] = "png"
    horizon: Annotated[int, OUTPUT, Field(gt=0, le=1000)] = 10

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        if beyond := [seed for seed in self.seeds if seed >= 2**32]:
            raise ValueError(f"`seeds` has {beyond[0]}; give numbers below {2**32}")
        if self.images == "video" and (self.image_size or 0) % 2:
            raise ValueError(f"`image_size` is {self.image_size}: video needs an even number")
        return self
