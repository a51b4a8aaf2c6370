"""`oxygen-eval serve`: serve a policy to robots and harnesses over WebSockets."""

import asyncio
import logging
import os
from typing import Annotated

from cyclopts import App, Parameter

from configs.cli import run_app
from configs.policy_server import ServeConfig
from contracts.errors import UsageError

app = App(
    name="oxygen-eval serve",
    help="Serve a policy over WebSockets: openpi's protocol, RoboArena's and vla-evaluation-harness's.",
    default_parameter=Parameter(negative=""),
)


@app.default
def serve(options: Annotated[ServeConfig, Parameter(name="*")]) -> None:
    """Serve until SIGTERM or Ctrl-C; queries in progress are answered first, a second signal ends at once."""
    api_key = None if options.api_key_env is None else os.environ.get(options.api_key_env)
    if options.api_key_env is not None and not api_key:
        raise UsageError(f"--api-key-env: the environment has no {options.api_key_env}")
    from oxygen.model.compile_cache import use_compile_cache  # JAX, which --help does not need
    from oxygen.presets.policies import chosen_adapter, read_model_policy
    from oxygen.server.launch import open_served, run_server

    logging.basicConfig(format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
    preset = chosen_adapter(read_model_policy(options.policy), options.adapter, options.adapter_mask)
    use_compile_cache()
    policy, declaration = open_served(preset, options)
    try:
        asyncio.run(run_server(policy, declaration, options, api_key))
    finally:
        policy.close()


if __name__ == "__main__":
    run_app(app)
