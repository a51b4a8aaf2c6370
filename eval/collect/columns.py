"""The columns of a frame in Parquet, for Arrow and for Hugging Face's `datasets`."""

import io
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from jaxtyping import Int64, UInt8
from PIL import Image

from configs.collection import CollectConfig
from configs.interface import Interface, channel_names
from oxygen.training import layout
from oxygen.training.layout import Feature

POSITION_COLUMNS = ("episode_index", "index", "task_index")
"""Columns that depend on an episode's position in the dataset."""

Histogram = Int64[np.ndarray, "channel 256"]


def frame_features(config: CollectConfig, spec: Interface) -> dict[str, Feature]:
    """The columns of the dataset, as in `info.json`."""
    sizes = {camera.name: camera.size for camera in spec.observation.cameras}
    assert None not in sizes.values(), "a world declares its image sizes"
    return layout.features(
        sizes,  # pyrefly: ignore[bad-argument-type] - just checked
        images="video" if config.images == "video" else "image",
        state_names=channel_names(spec.observation.state),
        action_names=channel_names(spec.action.channels),
        horizon=config.horizon,
        fed=config.feedback is not None,
    )


def row_features(config: CollectConfig, spec: Interface) -> dict[str, Feature]:
    """The columns of a stored episode: images as PNG, without columns that depend on its position."""
    features = frame_features(config.model_copy(update={"images": "png"}), spec)
    return {name: feature for name, feature in features.items() if name not in POSITION_COLUMNS}


def arrow_schema(features: Mapping[str, Feature]) -> pa.Schema:
    """The schema of a table of features, with the metadata that `datasets` reads."""
    stored = {name: _types(feature) for name, feature in features.items() if feature["dtype"] != "video"}
    described = {name: hugging_face for name, (_, hugging_face) in stored.items()}
    metadata = {"huggingface": json.dumps({"info": {"features": described}})}
    return pa.schema([(name, arrow) for name, (arrow, _) in stored.items()], metadata=metadata)


def png_cells(images: Sequence[UInt8[np.ndarray, "height width 3"]]) -> list[dict[str, Any]]:
    """Images as a column of PNG files."""
    cells = []
    for image in images:
        file = io.BytesIO()
        Image.fromarray(image).save(file, "PNG", compress_level=1)
        cells.append({"bytes": file.getvalue(), "path": None})
    return cells


def histogram(images: UInt8[np.ndarray, "frame height width 3"]) -> Histogram:
    """Counts of the 256 levels in each channel."""
    return np.stack([np.bincount(images[..., channel].ravel(), minlength=256) for channel in range(3)])


def _types(feature: Feature) -> tuple[pa.DataType, dict[str, Any]]:
    """The types of a column for Arrow and for `datasets`."""
    dtype, shape = feature["dtype"], tuple(feature["shape"])
    if dtype == "image":
        return pa.struct([("bytes", pa.binary()), ("path", pa.string())]), {"_type": "Image"}
    arrow = pa.bool_() if dtype == "bool" else pa.type_for_alias(dtype)
    value = {"dtype": dtype, "_type": "Value"}
    match shape:
        case (1,):
            return arrow, value
        case (size,):
            return pa.list_(arrow, size), {"feature": value, "length": size, "_type": "Sequence"}
        case _:
            array = {"shape": list(shape), "dtype": dtype, "_type": f"Array{len(shape)}D"}
            return pa.list_(pa.list_(arrow)), array
