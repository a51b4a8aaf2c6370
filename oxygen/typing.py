"""Shape-typed annotations: jaxtyping's if it is installed, else stand-ins without checks.

JAX is imported only when `Array` is, so that code on NumPy arrays does not need it.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jax import Array

    Leaf = Array
    from jaxtyping import Bool, Float, Float32, Float64, Int32, Int64, UInt8, UInt32
else:
    Leaf = Any
    try:
        from jaxtyping import Bool, Float, Float32, Float64, Int32, Int64, UInt8, UInt32
    except ImportError:

        class _Unchecked:
            """Takes the same subscripts as a jaxtyping type."""

            def __class_getitem__(cls, item: object) -> object:
                return Any

        Bool = Float = Float32 = Float64 = Int32 = Int64 = UInt8 = UInt32 = _Unchecked

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
