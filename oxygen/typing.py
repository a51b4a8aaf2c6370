"""Shape-typed annotations: jaxtyping's where it is installed, else stand-ins that say nothing.

JAX is imported by those who name its arrays, and not by what works on NumPy's alone.
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
            """Takes the same subscripts as a jaxtyping type and promises nothing."""

            def __class_getitem__(cls, item: object) -> object:
                return Any

        Bool = Float = Float32 = Float64 = Int32 = Int64 = UInt8 = UInt32 = _Unchecked

    def __getattr__(name: str) -> Any:
        if name != "Array":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from jax import Array

        return Array

# `Leaf` is an array in a pytree that programs take. JAX rebuilds such pytrees around whatever stands for an
# array (shapes, donation marks), so at run time anything goes there; functions check what they are given.

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
