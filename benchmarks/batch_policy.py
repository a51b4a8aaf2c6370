"""A vision transformer of 21 million parameters in PyTorch: one object for all worlds, or one for each."""

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
        self.model = _transformer()

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
