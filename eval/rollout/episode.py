"""The boundary around an episode: whatever happens inside becomes one record, and the run goes on."""

import dataclasses

from eval.policies.engine import Policy
from eval.records.schema import EpisodeResult, Outcome
from eval.records.writer import EpisodeRecorder
from eval.rollout.interrupts import Interrupts
from eval.rollout.plan import TaskPlan
from eval.rollout.rollout import rollout
from eval.rollout.worlds import WorldHolder
from sim_envs.world import EpisodeKey


@dataclasses.dataclass(frozen=True, kw_only=True)
class Stage:
    """What all episodes of a run share: where they play, who acts, and who may stop them."""

    worlds: WorldHolder
    policy: Policy
    interrupts: Interrupts


def run_episode(stage: Stage, plan: TaskPlan, key: EpisodeKey, recorder: EpisodeRecorder) -> EpisodeResult:
    """Run one episode and say how it ended. Never raises for what goes wrong inside it.

    The world is thrown away after an error, since nothing is known about the state it was left in. Ctrl-C is
    no error of the episode: it passes through, and leaves nothing of it.
    """
    try:
        success = False
        world, instruction = stage.worlds.of(plan), plan.instruction(key)
        for query in rollout(world, stage.policy, key, plan.protocol, instruction):
            recorder.add(query)
            success = query.success
            stage.interrupts.check()
        recorder.add_tail(stage.policy.finish())
        return recorder.result(Outcome.SUCCESS if success else Outcome.TIMEOUT)
    except Exception as error:  # noqa: BLE001 - the one place where every failure becomes a record
        stage.worlds.discard()
        return recorder.result(Outcome.ERROR, error)
    except BaseException:
        recorder.abandon()
        raise
