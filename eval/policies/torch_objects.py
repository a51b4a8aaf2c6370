"""PyTorch's objects in users' policies: tensors, weights, device, threads. Never imports PyTorch."""

import contextlib
import os
import re
import sys
from collections.abc import Iterator, Mapping
from typing import Any

_DEPTH = 4  # of attributes and containers in which weights are looked for
_OUT_OF_MEMORY = re.compile("out of memory|RESOURCE_EXHAUSTED", re.I)
_DEVICE_LOST = re.compile(r"\b(CUDA|HIP|XPU|MPS) error|DEVICE[_ ]LOST|device is lost", re.I)


def as_numpy(value: Any) -> Any:
    """A tensor on any device, or a list of them, as NumPy; anything else as it is."""
    if isinstance(value, list | tuple):
        return [as_numpy(each) for each in value]
    if not hasattr(value, "detach"):
        return value
    tensor = value.detach().cpu()
    return (tensor.float() if str(tensor.dtype) == "torch.bfloat16" else tensor).numpy()


@contextlib.contextmanager
def inference_mode() -> Iterator[None]:
    """PyTorch's inference mode, if it is imported."""
    torch = sys.modules.get("torch")
    with torch.inference_mode() if torch else contextlib.nullcontext():
        yield


def share_cores(simulating: int) -> None:
    """Leave PyTorch, if it is imported, only the cores without a world that simulates while it computes.

    OMP_NUM_THREADS, and a smaller number of threads that a policy has set, take precedence.
    """
    torch = sys.modules.get("torch")
    if torch and "OMP_NUM_THREADS" not in os.environ:
        free = max(1, len(os.sched_getaffinity(0)) - simulating)
        torch.set_num_threads(min(torch.get_num_threads(), free))


def weight_bytes(policy: Any) -> int | None:
    """Bytes of the arrays and PyTorch modules among an object's attributes; None if it has none."""
    return sum(weight.nbytes for weight in _weights(policy)) or None


def runs_on(policy: Any) -> dict[str, str]:
    """PyTorch's version, device and data type of a policy; empty if it has no tensors and no `device`."""
    torch = sys.modules.get("torch")
    tensors = (weight for weight in _weights(policy) if hasattr(weight, "detach"))
    first = next((each for each in tensors if each.is_floating_point()), None)
    device = getattr(policy, "device", None) or getattr(first, "device", None)
    if torch is None or device is None:
        return {}
    found = {"torch": str(torch.__version__), "device": str(device)}
    if found["device"].startswith("cuda"):
        found["device"] += f" ({torch.cuda.get_device_name(device)})"
    return found if first is None else {**found, "dtype": str(first.dtype).removeprefix("torch.")}


def fatal_failure(error: BaseException, size: int) -> str | None:
    """Why a failed batch of `size` would always fail, and the remedy; None if later queries may succeed."""
    shown = f"{type(error).__name__}: {' '.join(str(error).split())}"[:300]
    if isinstance(error, MemoryError) or _OUT_OF_MEMORY.search(shown) or "OutOfMemoryError" in shown:
        if size == 1:
            return None
        full = f"the policy is out of memory in a batch of {size} ({shown})"
        return f"{full}; continue with --resume --batch-size {size // 2}"
    if "AcceleratorError" in shown or _DEVICE_LOST.search(shown):
        return f"the policy's device is lost ({shown}); continue with --resume"
    return None


def _weights(policy: Any) -> Iterator[Any]:
    """The arrays and tensors in an object's attributes, each once."""
    seen, left = set[int](), [(policy, 0)]
    while left:
        value, depth = left.pop()
        if id(value) in seen or isinstance(value, type | str | bytes):
            continue
        seen.add(id(value))
        if isinstance(getattr(value, "nbytes", None), int):
            yield value
            continue
        parts: list[Any] = []
        if callable(getattr(value, "parameters", None)) and callable(getattr(value, "buffers", None)):
            parts = [*value.parameters(), *value.buffers()]
        elif isinstance(value, Mapping):
            parts = list(value.values())
        elif isinstance(value, list | tuple):
            parts = list(value)
        elif depth < _DEPTH and not callable(value):
            parts = list(getattr(value, "__dict__", {}).values())
        left += [(part, depth + 1) for part in parts if depth < _DEPTH]
