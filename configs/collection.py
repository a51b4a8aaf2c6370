"""The options of a collection of demonstrations."""

from typing import Annotated, Self

from pydantic import Field, model_validator

from configs.cli import Numbers
from configs.motion import MotionText
from configs.schema import OUTPUT, PROTOCOL, WHAT, ImageStorage, Pixels, PlayedConfig, Source


class CollectConfig(PlayedConfig):
    """The options of `python -m eval.collect`, on its command line or in a YAML file.

    Attributes:
        seeds: Seeds; every task and initial state is played once with each. Default: 7.
        policy: The policy that acts: expert, tiny, pi05_libero, …; a checkpoint's folder; or a YAML file.
        expert_noise: Variation of the expert's pace and path, and frequency of its mistakes, 0 to 1. The
            recorded actions are the intended ones, without noise.
        learner: A policy that acts in turns with the expert (DAgger); only the expert's actions are training
            targets. Default: none.
        replan_steps: Control steps between two queries, 1 to 10. Every query is a frame with the action
            intended there; the default, 1, is what LeRobot's trainers expect.
        motion: Motion of the object to grasp until it is touched, as for `eval.run`. Default: the suite's.
        keep_failures: Also keep failed episodes, for their texts; their actions are not training targets.
        image_size: Height of the images, pixels. Default: the suite's own.
        images: Image storage: png (lossless) or video (smaller).
        feedback: For a policy or learner that reads its own texts, their origin, as for `eval.run`; they are
            recorded. Default: it must not read any.
        horizon: Control steps in an action chunk; `eval.train` needs at least the model's horizon.
    """

    seeds: Annotated[Numbers, WHAT, Field(min_length=1)] = (7,)
    policy: Annotated[str, WHAT] = "expert"
    expert_noise: Annotated[float, WHAT, Field(ge=0, le=1)] = 0.0
    learner: Annotated[str | None, WHAT] = None
    replan_steps: Annotated[int, PROTOCOL, Field(gt=0, le=10)] = 1
    motion: Annotated[MotionText | None, PROTOCOL] = None
    feedback: Annotated[Source, PROTOCOL] = None
    keep_failures: Annotated[bool, OUTPUT] = False
    image_size: Annotated[Pixels | None, OUTPUT] = None
    images: Annotated[ImageStorage, OUTPUT] = "png"
    horizon: Annotated[int, OUTPUT, Field(gt=0, le=1000)] = 10

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        if beyond := [seed for seed in self.seeds if seed >= 2**32]:
            raise ValueError(f"`seeds` has {beyond[0]}; give numbers below {2**32}")
        return self
