"""Messages of policy servers: msgpack, with NumPy arrays as maps. Pickle is never used.

Three forms of arrays are read: openpi's, which is also written; vla-eval's; and the msgpack-numpy package's.
"""

import functools
import io
import math
from typing import Any

import msgpack
import numpy as np

_ARRAY, _SCALAR = b"__ndarray__", b"__npgeneric__"
_DATA, _DTYPE, _SHAPE = b"data", b"dtype", b"shape"

_REFUSED_KINDS = "OVc"  # objects (which need pickle), structures and complex numbers, as in openpi

_VLA_EVAL, _VLA_EVAL_IMAGE, _MSGPACK_NUMPY = "__ndarray__", "__image__", b"nd"

_FORMATS = {"png": "PNG", "jpeg": "JPEG"}

MAX_PIXELS = 4096 * 4096
"""Limit on the compressed images of a message, checked before decompression."""


class MessageError(ValueError):
    """The bytes are not a message of this protocol."""


def pack(message: Any) -> bytes:
    """Encode maps, lists, strings, bytes, numbers, and NumPy arrays and scalars; all else is a TypeError."""
    packed = msgpack.packb(message, default=_encoded)
    assert packed is not None, "msgpack packs whole messages"
    return packed


def unpack(data: bytes) -> Any:
    """Decode a message, whose arrays are read-only views of `data`; all else is a MessageError."""
    try:
        return msgpack.unpackb(data, object_hook=functools.partial(_decoded, images=[]))
    except MessageError:
        raise
    except (ValueError, TypeError) as error:
        reason = str(error) or type(error).__name__
        raise MessageError(f"{len(data)} bytes that are not msgpack: {reason}") from error


def _encoded(value: Any) -> dict[bytes, Any]:
    if not isinstance(value, np.ndarray | np.generic):
        raise TypeError(
            f"{type(value).__name__} cannot be sent; give numbers, strings, arrays, maps or lists"
        )
    if value.dtype.kind in _REFUSED_KINDS:
        raise TypeError(f"an array of {value.dtype} cannot be sent; give numbers, booleans or strings")
    if isinstance(value, np.generic):
        return {_SCALAR: True, _DATA: value.item(), _DTYPE: value.dtype.str}
    return {_ARRAY: True, _DATA: value.tobytes(), _DTYPE: value.dtype.str, _SHAPE: value.shape}


def _decoded(content: dict[Any, Any], images: list[np.ndarray]) -> Any:
    """The value of a map; `images` are the decompressed ones of the message so far."""
    if _ARRAY in content:
        return _array(content.get(_DATA), content.get(_SHAPE), _dtype(content.get(_DTYPE)))
    if _VLA_EVAL in content:
        return _array(content.get("data"), content.get("shape"), _dtype(content.get("dtype")))
    if _VLA_EVAL_IMAGE in content:
        return _image(content, images)
    if _MSGPACK_NUMPY in content:  # an array, or a scalar as the bytes of one
        is_array = content[_MSGPACK_NUMPY]
        array = _array(
            content.get(_DATA), content.get(_SHAPE) if is_array else [], _dtype(content.get(b"type"))
        )
        return array if is_array else array[()]
    if _SCALAR not in content:
        return content
    dtype, data = _dtype(content.get(_DTYPE)), content.get(_DATA)
    if not isinstance(data, bool | int | float | str | bytes):
        raise MessageError(f"a number of {dtype} with {type(data).__name__} for data")
    try:
        return dtype.type(data)
    except (TypeError, ValueError, OverflowError) as error:
        raise MessageError(f"a number of {dtype} that is {data!r}: {error}") from error


def _image(content: dict[Any, Any], images: list[np.ndarray]) -> np.ndarray:
    """An image in vla-eval's form: compressed, which adds it to `images`, or the bytes of its pixels."""
    name, data = content.get("format"), content.get("data")
    if name == "raw":
        return _array(data, content.get("shape"), _dtype(content.get("dtype")))
    if name not in _FORMATS or not isinstance(data, bytes):
        raise MessageError(f"an image of format {name!r}; raw, png or jpeg are read")
    from PIL import Image

    try:
        with Image.open(io.BytesIO(data), formats=[_FORMATS[name]]) as image:
            if image.width * image.height > MAX_PIXELS - sum(math.prod(other.shape[:2]) for other in images):
                raise MessageError(
                    f"an image of {image.width} × {image.height} pixels; those of a message have at most "
                    f"{MAX_PIXELS} in all"
                )
            images.append(np.asarray(image))
    except (OSError, SyntaxError, Image.DecompressionBombError) as error:
        raise MessageError(f"{len(data)} bytes that are not a {name} image: {error}") from error
    return images[-1]


def _array(data: Any, shape: Any, dtype: np.dtype) -> np.ndarray:
    is_shape = isinstance(shape, list) and all(type(length) is int and length >= 0 for length in shape)
    if not isinstance(data, bytes) or not is_shape:
        raise MessageError(f"an array of {dtype} and shape {shape!r} with {type(data).__name__} for data")
    if math.prod(shape) * dtype.itemsize != len(data):
        raise MessageError(f"an array of {dtype} and shape {shape} with {len(data)} bytes of data")
    try:
        return np.ndarray(tuple(shape), dtype, buffer=data)
    except ValueError as error:  # more dimensions, or longer ones, than NumPy has
        raise MessageError(f"an array of shape {shape}: {error}") from error


def _dtype(name: Any) -> np.dtype:
    try:
        dtype = np.dtype(name) if isinstance(name, str) else None
    except (TypeError, ValueError, SyntaxError):
        dtype = None
    if dtype is None or dtype.kind in _REFUSED_KINDS:
        raise MessageError(f"an array of {name!r}; numbers, booleans and strings are read, nothing else")
    return dtype
