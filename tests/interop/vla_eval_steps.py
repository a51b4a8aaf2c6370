"""Run by a Python with vla-eval: actions [step, action] of its client for URL OBSERVATIONS, into ACTIONS."""

import asyncio
import sys

import numpy as np
from vla_eval.benchmarks.libero.benchmark import LIBEROBenchmark
from vla_eval.connection import Connection
from vla_eval.specs import DimSpec, check_specs


def checked(server_info: dict) -> None:
    """vla-eval's own comparison of what the server and its LIBERO benchmark declare."""
    benchmark = LIBEROBenchmark(**server_info["observation_params"])
    specs = [
        {name: DimSpec.from_dict(spec) for name, spec in server_info[f"{kind}_spec"].items()}
        for kind in ("action", "observation")
    ]
    problems = check_specs(specs[0], benchmark.get_action_spec(), specs[1], benchmark.get_observation_spec())
    assert not problems, problems


async def main(url: str, observations: str, actions: str) -> None:
    recorded = np.load(observations)
    steps = []
    async with Connection(url) as connection:
        checked(connection.server_info)
        await connection.start_episode({"task": {"name": "put the mug on the plate"}})
        for step, state in enumerate(recorded["observation/state"]):
            images = {
                "agentview": recorded["observation/image"][step],
                "wrist": recorded["observation/wrist_image"][step],
            }
            observation = {"images": images, "states": state, "task_description": "put the mug on the plate"}
            steps.append((await connection.act(observation))["actions"])
        await connection.end_episode({"metrics": {"success": False}, "steps": len(steps)})
    np.save(actions, np.stack(steps))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
