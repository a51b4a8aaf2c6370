"""Shape-typed annotations, by jaxtyping.

JAX is imported only when `Array` is, so that code on NumPy arrays does not need it.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from jaxtyping import Bool, Float, Float32, Float64, Int32, Int64, UInt8, UInt32

if TYPE_CHECKING:
    from jax import Array

    Leaf = Array
else:
    Leaf = Any

    def __getattr__(name: str) -> Any:
        if name != "Array":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from jax import Array

        return Array

# `Leaf` is an array in a pytree. JAX also puts other objects there (shapes, donation marks), so it is not
# checked at run time.

Params = Mapping[str, Any]
"""A nested dictionary of arrays, in openpi's layout: `params["PaliGemma"]["llm"]["layers"]…`."""

__all__ = [
    "Array",
    "Bool",
    "Float",
    "Float32",
    "Float64",
    "Int32",
    "Int64",
    "Leaf",
    "Params",
    "UInt8",
    "UInt32",
]
