"""The policy: model, KV pool, scheduler, engine. Knows no simulator; needs jax, flax and numpy."""

import configs  # noqa: F401 - before JAX
