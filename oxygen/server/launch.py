"""Loads a policy and serves it until SIGTERM or Ctrl-C."""

import asyncio
import dataclasses
import signal
import sys

from configs.language_task import EveryNConfig
from configs.policy_server import ServeConfig
from configs.schema import PolicyConfig
from contracts.errors import pluralize
from oxygen.policy.vector_policy import VectorPolicy
from oxygen.presets.language_tasks import language_task
from oxygen.presets.loading import load_policy
from oxygen.presets.policies import (
    adapter_identity,
    check_learnt,
    learnt_tasks,
    trained_tasks,
    weights_sha256,
)
from oxygen.robots.transforms import Prediction
from oxygen.server.metadata import Declaration
from oxygen.server.robot import Batcher
from oxygen.server.websocket_server import ConnectionServer
from oxygen.serving.engine_config import EngineConfig, texts_in_progress
from oxygen.serving.scheduler import FixedTokens

_LOOPBACK = ("127.0.0.1", "::1", "localhost")


def open_served(preset: PolicyConfig, options: ServeConfig) -> tuple[VectorPolicy, Declaration]:
    """Load, compile and warm up a policy; refuses language tasks that it has not learnt."""
    asked = options.language_tasks
    names = trained_tasks(preset) if asked is None else () if asked == ("none",) else asked
    known = learnt_tasks(preset, names)
    if not options.random_weights:
        check_learnt(preset, known)
    every = {} if options.text_every is None else {"arrivals": EveryNConfig(n=options.text_every)}
    writes = options.mode != "actions"
    tasks = [language_task(task.model_copy(update=every)) for task in known] if writes else []
    rows = texts_in_progress(tasks, options.tokens_per_frame)
    engine = EngineConfig(
        mode=options.mode,
        budget=FixedTokens(options.tokens_per_frame),
        slots=rows,
        rows=rows,
        robots=options.batch_size,
    )
    random = options.random_weights
    declared = options.model_dump(
        include={"text_every", "tokens_per_frame", "dtype", "random_weights"}, exclude_defaults=True
    )
    adapter = None if random else adapter_identity(preset)
    declared |= {f"adapter_{part}": value for part, value in (adapter or {}).items()}
    policy = load_policy(preset, tasks=tasks, engine=engine, dtype=options.dtype, random_weights=random)
    robot = policy.transform.embodiment
    if robot.predicts is not Prediction.ACTIONS:
        declared["predicts"] = robot.predicts.value
    horizon, interface = policy.runner.config.horizon, robot.interface
    declaration = Declaration(
        interface=dataclasses.replace(interface, name=preset.name, horizon=horizon),
        horizon=horizon,
        model=preset.name,
        weights_sha256=None if random else weights_sha256(preset),
        mode=options.mode,
        language_tasks=tuple(task.name for task in tasks),
        robots=options.most_robots,
        feedback={task.name: task.feedback for task in known if task.feedback},
        options=declared,
    )
    return policy, declaration


async def run_server(
    policy: VectorPolicy, declaration: Declaration, options: ServeConfig, api_key: str | None
) -> None:
    """Serve until SIGTERM or Ctrl-C; queries in progress are answered first."""
    batcher = Batcher(
        lambda number: policy.with_engine(policy.engine) if number else policy,
        robots=options.most_robots,
        batch_size=options.batch_size,
        window_s=options.batch_wait_ms / 1e3,
    )
    server = ConnectionServer(batcher, declaration, api_key=api_key, replan_steps=options.replan_steps)
    loop = asyncio.get_running_loop()

    def stop(number: int) -> None:
        """Shut down gracefully; the next signal ends the process."""
        server.stop()
        loop.remove_signal_handler(number)
        signal.signal(number, signal.SIG_DFL)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop, number)

    def started(port: int) -> None:
        paths = ", ".join(server.paths)
        one_by_one = options.batch_size == 1
        turns = "one after the other" if one_by_one else f"in batches of {options.batch_size}"
        robots = f"up to {pluralize(options.most_robots, 'robot')}, {turns},"
        sys.stdout.write(f"{declaration.model} for {robots} at ws://{options.host}:{port} ({paths})\n")
        if api_key is None and options.host not in _LOOPBACK:
            sys.stderr.write(
                "warning: anyone who reaches this address can use the policy: set --api-key-env\n"
            )
        sys.stdout.flush()

    await server.run(options.host, options.port, started=started)
