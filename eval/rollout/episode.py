"""Runs one episode and turns any failure inside it into a record, so that the run continues."""

import dataclasses

from configs.exits import is_disk_full
from eval.policies.base import LoadedPolicy, PolicyLostError
from eval.records.schema import EpisodeResult, Outcome
from eval.rollout.chunks import ActionError, Overlap
from eval.rollout.clock import PAUSED, Clock
from eval.rollout.interrupts import DeferredSignals
from eval.rollout.plan import TaskPlan
from eval.rollout.recorder import EpisodeRecorder
from eval.rollout.rollout import rollout
from eval.rollout.timeline import Waiting
from eval.rollout.worlds import WorldCache
from sim_envs.world import EpisodeKey, PhysicsError


@dataclasses.dataclass(frozen=True, kw_only=True)
class EpisodeContext:
    """The resources and rules that all episodes of a run share.

    Attributes:
        worlds: Holds the open simulator.
        policy: The policy.
        interrupts: Pending SIGINT or SIGTERM.
        clock: How simulated time passes while the policy computes.
        waiting: What the robot does until new actions are available.
        overlap: How a new chunk replaces the one being executed.
        fatal: Exceptions that propagate and discard the episode, which is then played in another process.
    """

    worlds: WorldCache
    policy: LoadedPolicy
    interrupts: DeferredSignals
    clock: Clock = PAUSED
    waiting: Waiting = Waiting.CONTINUE
    overlap: Overlap = Overlap.SKIP
    fatal: tuple[type[Exception], ...] = ()


def run_episode(
    context: EpisodeContext, plan: TaskPlan, key: EpisodeKey, recorder: EpisodeRecorder
) -> EpisodeResult:
    """Run one episode and return its record. Failures inside it become records, not exceptions.

    Actions that cannot be executed, and physics that diverges under finite ones, are failures of the policy
    (`invalid_action`); all else is an `error`, also `sys.exit`. The world is closed after either, since its
    state is undefined. Ctrl-C, a lost policy and `context.fatal` propagate and leave no files of the episode.
    """
    try:
        success = False
        world, instruction = context.worlds.of(plan), plan.instruction(key)
        context.interrupts.check()
        policy = context.policy.in_world(plan.suite, world)
        queries = rollout(
            world,
            policy,
            key,
            plan.suite,
            instruction,
            clock=context.clock,
            waiting=context.waiting,
            overlap=context.overlap,
            picture_steps=recorder.picture_steps,
        )
        for query in queries:
            recorder.add(query)
            success = query.success
            context.interrupts.check()
        recorder.add_episode_end(policy.finish())
        return recorder.result(Outcome.SUCCESS if success else Outcome.TIMEOUT)
    except (PolicyLostError, *context.fatal):
        recorder.abandon()
        raise
    except OSError as error:
        if is_disk_full(error):
            recorder.abandon()
            raise
        context.worlds.discard()
        return recorder.result(Outcome.ERROR, error)
    except (ActionError, PhysicsError) as error:
        context.worlds.discard()
        return recorder.result(Outcome.INVALID_ACTION, error)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - the one place where failures become records
        context.worlds.discard()
        return recorder.result(Outcome.ERROR, error)
    except BaseException:
        recorder.abandon()
        raise
