"""The boundary around an episode: whatever happens inside becomes one record, and the run goes on."""

import dataclasses

from eval.policies.base import OpenPolicy, PolicyLostError
from eval.records.schema import EpisodeResult, Outcome
from eval.rollout.chunks import ActionError, Overlap
from eval.rollout.clock import PAUSED, Clock
from eval.rollout.interrupts import Interrupts
from eval.rollout.plan import TaskPlan
from eval.rollout.recorder import EpisodeRecorder
from eval.rollout.rollout import rollout
from eval.rollout.timeline import Waiting
from eval.rollout.worlds import WorldHolder
from sim_envs.world import EpisodeKey, PhysicsError


@dataclasses.dataclass(frozen=True, kw_only=True)
class Stage:
    """What all episodes of a run share: where they play, who acts, how time passes, and who may stop them.

    Attributes:
        worlds: The simulator.
        policy: Who acts.
        interrupts: Ctrl-C.
        clock: How time passes while the policy computes.
        waiting: What is done until its actions come.
        fatal: Errors that leave nothing of the episode and pass through, since it is played elsewhere then.
    """

    worlds: WorldHolder
    policy: OpenPolicy
    interrupts: Interrupts
    clock: Clock = PAUSED
    waiting: Waiting = Waiting.CONTINUE
    overlap: Overlap = Overlap.SKIP
    fatal: tuple[type[Exception], ...] = ()


def run_episode(stage: Stage, plan: TaskPlan, key: EpisodeKey, recorder: EpisodeRecorder) -> EpisodeResult:
    """Run one episode and say how it ended. Never raises for what goes wrong inside it.

    Actions that cannot be executed, and physics that diverge under finite ones, are the policy's own failure;
    everything else that goes wrong is an error, and none of the policy's. The world is thrown away after
    either, since nothing is known about the state it was left in. Ctrl-C and a policy that is gone for good
    are no ends of the episode: they pass through, and leave nothing of it.
    """
    try:
        success = False
        world, instruction = stage.worlds.of(plan), plan.instruction(key)
        policy = stage.policy.in_world(plan.suite, world)
        queries = rollout(
            world,
            policy,
            key,
            plan.suite,
            instruction,
            clock=stage.clock,
            waiting=stage.waiting,
            overlap=stage.overlap,
            picture_steps=recorder.picture_steps,
        )
        for query in queries:
            recorder.add(query)
            success = query.success
            stage.interrupts.check()
        recorder.add_tail(policy.finish())
        return recorder.result(Outcome.SUCCESS if success else Outcome.TIMEOUT)
    except (PolicyLostError, *stage.fatal):
        recorder.abandon()
        raise
    except (ActionError, PhysicsError) as error:
        stage.worlds.discard()
        return recorder.result(Outcome.INVALID_ACTION, error)
    except Exception as error:  # noqa: BLE001 - the one place where every failure becomes a record
        stage.worlds.discard()
        return recorder.result(Outcome.ERROR, error)
    except BaseException:
        recorder.abandon()
        raise
