"""A policy of 20 million parameters for `benchmarks.batches`: one object for all worlds, or one for each.

With PyTorch a vision transformer over both images; without, a perceptron over them in NumPy, whose time is
that of reading its weights, as a large model's is.
"""

import importlib.util
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

_CAMERAS = ("observation/image", "observation/wrist_image")
_SIZE, _PATCH, _CHUNK = 112, 16, (10, 7)


class Copied:
    """Has `infer`: a copy for each world."""

    embodiment = "libero"
    horizon = _CHUNK[0]
    image_resolution = (_SIZE, _SIZE)

    def __init__(self) -> None:
        self.model = _transformer() if importlib.util.find_spec("torch") else _Perceptron()

    def infer(self, observation: Mapping[str, Any]) -> dict[str, Any]:
        """Answer one observation."""
        return {"actions": self._chunks([observation])[0]}

    def reset(self) -> None:
        """Do nothing: it has no state."""

    def _chunks(self, observations: Sequence[Mapping[str, Any]]) -> Any:
        pixels = [np.stack([seen[key] for key in _CAMERAS]) for seen in observations]
        return self.model(np.stack(pixels).astype(np.float32) / 255)


class Batched(Copied):
    """Has `infer_batch`: one object for all worlds."""

    def infer_batch(self, observations: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Answer a batch of observations."""
        return [{"actions": chunk} for chunk in self._chunks(observations)]

    def reset(self, rows: Sequence[int] = (), keys: Sequence[Any] = ()) -> None:
        """Do nothing: it has no state."""


class _Perceptron:
    def __init__(self) -> None:
        rng = np.random.default_rng(0)
        sizes = (2 * 3 * (_SIZE // 4) ** 2, 2500, 2500, np.prod(_CHUNK))
        self.layers = [
            rng.normal(size=shape).astype(np.float32) / np.sqrt(shape[0])
            for shape in itertools.pairwise(sizes)
        ]

    def __call__(self, pixels: np.ndarray) -> np.ndarray:
        hidden = pixels[:, :, ::4, ::4].reshape(len(pixels), -1)
        for layer in self.layers:
            hidden = np.tanh(hidden @ layer)
        return 0.1 * hidden.reshape(-1, *_CHUNK)


def _transformer() -> Any:
    import torch

    class Transformer(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.embed = torch.nn.Conv2d(3, 384, _PATCH, _PATCH)
            layer = torch.nn.TransformerEncoderLayer(384, 6, 1536, dropout=0.0, batch_first=True)
            self.encoder = torch.nn.TransformerEncoder(layer, 12, enable_nested_tensor=False)
            self.head = torch.nn.Linear(384, int(np.prod(_CHUNK)))
            self.eval()

        def forward(self, pixels: np.ndarray) -> torch.Tensor:
            images = torch.from_numpy(pixels).permute(0, 1, 4, 2, 3)
            tokens = self.embed(images.flatten(0, 1)).flatten(2).transpose(1, 2)
            hidden = self.encoder(tokens.reshape(len(pixels), -1, 384)).mean(dim=1)
            return 0.1 * torch.tanh(self.head(hidden)).reshape(-1, *_CHUNK)

    return Transformer()
