"""Which branch of the engine is compiled: the one that is a CPU's own, or the one of every other device."""

import contextlib
import functools
from collections.abc import Iterator
from typing import Literal

import jax
import pytest

from oxygen.serving import decode

Where = Literal["cpu", "elsewhere"]


@contextlib.contextmanager
def traced_for(where: Where) -> Iterator[None]:
    """What is traced herein runs on this CPU, but as it would on a device of that kind."""
    with pytest.MonkeyPatch.context() as patch:
        if where == "elsewhere":
            patch.setattr(jax.lax, "platform_dependent", lambda *args, **by: by["default"](*args))
            # JAX knows a function that it has traced; another one of the same content it traces anew.
            patch.setattr(decode, "fork", functools.partial(decode.fork))
        yield
