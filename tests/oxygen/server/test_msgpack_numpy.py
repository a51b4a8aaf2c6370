"""Messages survive the wire bit for bit, are openpi's byte for byte, and nothing in them is executed."""

import contextlib
import io
import pickle

import msgpack
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from PIL import Image

from oxygen.server import msgpack_numpy
from oxygen.server.msgpack_numpy import MessageError, pack, unpack

DTYPES = st.one_of(
    arrays.boolean_dtypes(),
    arrays.integer_dtypes(endianness="?"),
    arrays.unsigned_integer_dtypes(endianness="?"),
    arrays.floating_dtypes(endianness="?"),
    arrays.unicode_string_dtypes(endianness="?"),
    arrays.byte_string_dtypes(),
)
SHAPES = arrays.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4)
PLAIN = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**64 - 1),
    st.floats(allow_nan=False),
    st.text(),
    st.binary(),
)
KEYS = st.text().filter(lambda key: key not in ("__ndarray__", "__image__"))  # vla-eval's marks of arrays
MESSAGES = st.recursive(PLAIN, lambda inner: st.lists(inner) | st.dictionaries(KEYS, inner), max_leaves=8)

FROM_OPENPI = (
    "88b16f62736572766174696f6e2f696d61676584c40b5f5f6e6461727261795f5fc3c40464617461c40c0001020304050607"
    "08090a0bc4056474797065a37c7531c405736861706593020203b16f62736572766174696f6e2f737461746584c40b5f5f6e"
    "6461727261795f5fc3c40464617461c410000000000000e03f000000000000f0bfc4056474797065a33c6638c40573686170"
    "659102a670726f6d7074b07069636b2075702074686520626f776ca47365656483c40d5f5f6e7067656e657269635f5fc3c4"
    "0464617461"
    "07c4056474797065a33c6938a26f6b83c40d5f5f6e7067656e657269635f5fc3c40464617461c3c4056474797065a37c6231"
    "a17883c40d5f5f6e7067656e657269635f5fc3c40464617461cb3fd0000000000000c4056474797065a33c6634a16e03a46c"
    "6973749301cb4004000000000000c0"
)
"""What openpi-client 0.1.2 packs the observation below into."""


def observation():
    return {
        "observation/image": np.arange(12, dtype=np.uint8).reshape(2, 2, 3),
        "observation/state": np.array([0.5, -1.0]),
        "prompt": "pick up the bowl",
        "seed": np.int64(7),
        "ok": np.bool_(True),
        "x": np.float32(0.25),
        "n": 3,
        "list": [1, 2.5, None],
    }


def test_observations_are_openpis_byte_for_byte():
    assert pack(observation()).hex() == FROM_OPENPI
    read = unpack(bytes.fromhex(FROM_OPENPI))
    np.testing.assert_equal(read, observation())
    assert [type(read[key]) for key in ("seed", "ok", "x")] == [np.int64, np.bool_, np.float32]


@given(arrays.arrays(DTYPES, SHAPES))
def test_arrays_survive_the_wire_bit_for_bit(array):
    read = unpack(pack({"actions": array}))["actions"]
    assert (read.dtype, read.shape, read.tobytes()) == (array.dtype, array.shape, array.tobytes())


@given(arrays.arrays(arrays.floating_dtypes(), SHAPES))
def test_arrays_of_vla_eval_and_msgpack_numpy_are_read(array):
    data, dtype, shape = array.tobytes(), array.dtype.str, list(array.shape)
    vla_eval = {"__ndarray__": True, "data": data, "dtype": dtype, "shape": shape}
    other = {b"nd": True, b"type": dtype, b"kind": b"", b"shape": shape, b"data": data}
    for form in (vla_eval, other):
        read = unpack(msgpack.packb(form))
        assert (read.dtype, read.shape, read.tobytes()) == (array.dtype, array.shape, data)
    number = np.float32(0.25)
    read = unpack(msgpack.packb({b"nd": False, b"type": "<f4", b"data": number.tobytes()}))
    assert (type(read), read) == (np.float32, number)


def test_images_of_vla_eval_are_read_pixel_for_pixel():
    image = np.random.default_rng(0).integers(0, 256, (5, 4, 3), np.uint8)
    with io.BytesIO() as file:
        Image.fromarray(image).save(file, "PNG")
        compressed = {"__image__": True, "format": "png", "data": file.getvalue(), "shape": [5, 4, 3]}
    raw = {"__image__": True, "format": "raw", "data": image.tobytes(), "dtype": "|u1", "shape": [5, 4, 3]}
    for form in (compressed, raw):
        assert (unpack(msgpack.packb(form)) == image).all()


SCALARS = st.one_of(arrays.integer_dtypes(), arrays.floating_dtypes(sizes=(16, 32)))


@given(SCALARS.flatmap(arrays.from_dtype), MESSAGES)
def test_scalars_keep_their_type_and_plain_messages_survive_the_wire(scalar, message):
    read = unpack(pack(scalar))
    assert type(read) is type(scalar)
    np.testing.assert_equal(read, scalar)
    assert unpack(pack(message)) == message


@pytest.mark.parametrize(
    "array",
    [np.array([print, None]), np.array([1 + 2j]), np.zeros(2, [("x", "f4")]), np.void(b"ab"), {1, 2}],
    ids=str,
)
def test_what_needs_pickle_or_has_no_form_is_not_sent(array):
    with pytest.raises(TypeError, match="cannot be sent"):
        pack({"actions": array})


def array_form(**changes):
    form = {"__ndarray__": True, "data": bytes(8), "dtype": "<f4", "shape": [2]} | changes
    return {key.encode(): value for key, value in form.items() if value is not ...}


def png(height, width):
    with io.BytesIO() as file:
        Image.fromarray(np.zeros((height, width, 3), np.uint8)).save(file, "PNG")
        return file.getvalue()


class Mischief:
    def __reduce__(self):
        return (pytest.fail, ("it was unpickled",))


@pytest.mark.parametrize(
    ("form", "why"),
    [
        (array_form(dtype="|O", data=pickle.dumps(Mischief())), "'|O'"),
        (array_form(dtype="<c8", shape=[1]), "'<c8'"),
        (array_form(dtype="f4,f4", shape=[1]), "'f4,f4'"),
        (array_form(dtype="nonsense"), "'nonsense'"),
        (array_form(dtype=...), "None"),
        (array_form(shape=[3]), "8 bytes"),
        (array_form(shape=[-2]), "shape"),
        (array_form(shape=[1] * 70 + [2]), "shape"),
        (array_form(shape=[0, 2**62, 4], data=b""), "shape"),
        (array_form(data=...), "NoneType for data"),
        ({b"__npgeneric__": True, b"data": 300, b"dtype": "|u1"}, "300"),
        ({b"__npgeneric__": True, b"data": pickle.dumps(Mischief()), b"dtype": "|O"}, "'|O'"),
        ({b"nd": True, b"type": "|O", b"kind": b"O", b"data": pickle.dumps(Mischief())}, "'|O'"),
        ({b"nd": True, b"type": [["x", "<f4"]], b"kind": b"V", b"shape": [2], b"data": bytes(8)}, "'x'"),
        ({b"nd": False, b"type": "<f4", b"data": bytes(8)}, "8 bytes"),
        ({"__ndarray__": True, "data": pickle.dumps(Mischief()), "dtype": "|O", "shape": [1]}, "'|O'"),
        ({"__image__": True, "format": "png", "data": b"no picture", "shape": [1, 1, 3]}, "not a png image"),
        ({"__image__": True, "format": "tiff", "data": b"", "shape": [1, 1, 3]}, "'tiff'"),
        ({"__image__": True, "format": "png", "data": png(64, 64), "shape": [64, 64, 3]}, "64 × 64 pixels"),
    ],
)
def test_an_array_that_is_not_what_it_says_is_refused(form, why, monkeypatch):
    monkeypatch.setattr(msgpack_numpy, "MAX_PIXELS", 64 * 63)
    with pytest.raises(MessageError, match=why.replace("|", r"\|")) as caught:
        unpack(msgpack.packb({"actions": form}))
    assert "\n" not in str(caught.value)


def test_the_images_of_a_message_share_the_limit(monkeypatch):
    image = {"__image__": True, "format": "png", "data": png(64, 64), "shape": [64, 64, 3]}
    monkeypatch.setattr(msgpack_numpy, "MAX_PIXELS", 2 * 64 * 64)
    assert len(unpack(msgpack.packb([image] * 2))) == 2
    with pytest.raises(MessageError, match="64 × 64 pixels; those of a message have at most 8192 in all"):
        unpack(msgpack.packb([image] * 3))


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(data):
    with contextlib.suppress(MessageError):
        unpack(data)


@given(st.integers(0, len(FROM_OPENPI) // 2 - 1))
def test_a_message_cut_short_is_refused(length):
    with pytest.raises(MessageError):
        unpack(bytes.fromhex(FROM_OPENPI)[:length])
