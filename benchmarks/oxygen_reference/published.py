"""Times frames of OxyGen's published JAX code, in a process of its own and in that code's environment.

Reads one JSON line with the checkout and the sizes, answers `{"ready": …}`, then times frames for each line
`{"setting": "isolated" | "continuous_batching", "tokens_per_frame": k, "frames": n}`.

Imports nothing of this project. The published model and `Policy` run unchanged. Replaced are packages that
their JAX path imports but does not use (torch, transformers and others), the tokenizer, which they would
download, and the tables of model sizes.
"""

import dataclasses
import importlib.abc
import importlib.machinery
import json
import sys
import time
import types
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

_ABSENT = (
    *("augmax", "safetensors", "sentencepiece", "torch", "transformers", "openpi.models_pytorch"),
    *("openpi.models.tokenizer", "openpi.shared.download", "openpi.shared.normalize"),
)
_NO_END = -1  # no end token, so that every text has its full length


class _Absent(types.ModuleType):
    """A module whose every name is an empty class."""

    def __getattr__(self, name: str) -> type:
        if name.startswith("__"):
            raise AttributeError(name)
        found = type(name, (), {"detokenize": lambda *_: ""})
        setattr(self, name, found)
        return found


class _Replaces(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports the packages in `_ABSENT` as empty modules."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        del path, target
        if any(name == absent or name.startswith(f"{absent}.") for absent in _ABSENT):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec: Any) -> _Absent:
        return _Absent(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        """Leave the module empty."""


def _policy(checkout: str, sizes: dict[str, Any]) -> Any:
    """The published policy at the given sizes, with random weights in the compute type, as it loads them."""
    sys.path[:0] = [f"{checkout}/src", f"{checkout}/packages/openpi-client/src"]
    sys.meta_path.insert(0, _Replaces())
    from flax import nnx
    from openpi.models import gemma_05, pi05_config, siglip
    from openpi.policies.policy import Policy

    del sys.modules["torch"]  # einops would take it for the real one
    experts = {"gemma_2b": sizes["trunk"], "gemma_300m": sizes["expert"]}
    gemma_05.get_config = lambda variant: gemma_05.Config(**experts[variant])
    gemma_05.PALIGEMMA_VOCAB_SIZE = sizes["vocab_size"]
    tower = sizes["siglip"]
    patch = tower.pop("patch")
    siglip.decode_variant = lambda _: {**tower, "patch_size": (patch, patch)}
    config = pi05_config.Pi05Config(
        dtype=sizes["dtype"],
        action_dim=sizes["action_dim"],
        action_horizon=sizes["horizon"],
        max_token_len=sizes["prompt_tokens"],
    )
    model = nnx.eval_shape(config.create, jax.random.key(0))
    graph, state = nnx.split(model)
    random = np.random.default_rng(0)

    def drawn(leaf: Any) -> jax.Array:
        return jax.numpy.asarray(random.standard_normal(leaf.shape, np.float32) * 0.02, dtype=sizes["dtype"])

    state.replace_by_pure_dict(jax.tree.map(drawn, state.to_pure_dict()))
    return Policy(nnx.merge(graph, state))


def _observations(sizes: dict[str, Any], count: int) -> list[dict[str, Any]]:
    """Observations of two cameras and a masked third, which the published code computes and masks."""
    random = np.random.default_rng(0)
    side, length, used = sizes["image_size"], sizes["prompt_tokens"], sizes["prompt_used"]
    cameras = {"base_0_rgb": True, "left_wrist_0_rgb": True, "right_wrist_0_rgb": False}
    return [
        {
            "image": {
                name: random.integers(0, 256, (side, side, 3), np.uint8) * np.uint8(seen)
                for name, seen in cameras.items()
            },
            "image_mask": {name: np.bool_(seen) for name, seen in cameras.items()},
            "state": np.zeros(sizes["action_dim"], np.float32),
            "tokenized_prompt": np.arange(length, dtype=np.int32) % sizes["vocab_size"],
            "tokenized_prompt_mask": np.arange(length) < used,
        }
        for _ in range(count)
    ]


@dataclasses.dataclass
class _Frames:
    """Runs frames of one setting; a stream that continues from call to call."""

    policy: Any
    observations: Sequence[dict[str, Any]]
    denoise_steps: int
    text_tokens: int

    def __post_init__(self) -> None:
        self._manager = self.policy.init_continuous_batching()
        self._count = 0

    def isolated(self) -> int:
        """Actions, then a text of a prefill of its own; returns the number of texts under way."""
        seen = self._next()
        actions = self.policy.infer_actions(seen, num_steps=self.denoise_steps)["actions"]
        text = self.policy.infer_text(
            seen, max_decoding_steps=self.text_tokens, temperature=0.0, PALIGEMMA_EOS_TOKEN=_NO_END
        )
        assert np.isfinite(actions).all()
        assert len(text["tokens"]) == self.text_tokens
        return 1

    def continuous_batching(self, tokens_per_frame: int) -> int:
        """One new request, and `tokens_per_frame` tokens of every unfinished one; returns their number."""
        running = self._manager.get_all_active_requests()
        seen = self._next()
        replies = self.policy.infer_text_actions_continuous_batch(
            [seen] * (1 + len(running)),
            self._manager,
            request_ids=[None, *running],
            steps_per_frame=tokens_per_frame,
            num_action_steps=self.denoise_steps,
            max_decoding_steps=self.text_tokens,
            temperature=0.0,
            PALIGEMMA_EOS_TOKEN=_NO_END,
        )
        assert np.isfinite(replies[0]["actions"]).all()
        return len(replies)

    def _next(self) -> dict[str, Any]:
        seen = self.observations[self._count % len(self.observations)]
        self._count += 1
        return {**seen, "image": dict(seen["image"])}  # converted in place by the published code


def main() -> None:
    """Serve requests for frames until the input ends."""
    answers, sys.stdout = sys.stdout, sys.stderr  # the published code prints and logs
    start = json.loads(sys.stdin.readline())
    sizes = start["sizes"]
    policy, observations = _policy(start["checkout"], sizes), _observations(sizes, 4)
    streams: dict[tuple[str, int], _Frames] = {}
    device = jax.devices()[0].device_kind
    about = {"device": device, "versions": {"jax": jax.__version__, "numpy": np.__version__}}
    print(json.dumps({"ready": about}), file=answers, flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        setting, k = request["setting"], request["tokens_per_frame"]
        stream = streams.setdefault(
            (setting, k), _Frames(policy, observations, sizes["denoise_steps"], sizes["text_tokens"])
        )
        frames_ms, texts = [], []
        for _ in range(request["frames"]):
            began = time.perf_counter()
            texts.append(
                stream.isolated() if setting == "isolated" else stream.continuous_batching(tokens_per_frame=k)
            )
            frames_ms.append(1e3 * (time.perf_counter() - began))
        print(json.dumps({"frame_ms": frames_ms, "texts": texts}), file=answers, flush=True)


if __name__ == "__main__":
    main()
