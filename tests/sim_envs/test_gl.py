"""Which GPU renders: one that CUDA_VISIBLE_DEVICES grants, by EGL's numbers."""

import os

import pytest

from sim_envs import gl


@pytest.fixture(autouse=True)
def _four_gpus(tmp_path, monkeypatch):
    """Four GPUs, of which a container may open all but the second; their minor numbers run backwards."""
    for address, (minor, uuid) in enumerate([(3, "GPU-aa1"), (2, "GPU-ab2"), (1, "GPU-ac3"), (0, "GPU-ad4")]):
        about = tmp_path / "driver" / "gpus" / f"0000:{address}b:00.0" / "information"
        about.parent.mkdir(parents=True)
        about.write_text(f"Model: \t NVIDIA X\nGPU UUID: \t {uuid}\nDevice Minor: \t {minor}\n")
        if minor != 2:
            (tmp_path / f"nvidia{minor}").touch()
    uuids = gl._gpu_uuids(tmp_path / "driver", tmp_path)
    assert uuids == ["GPU-aa1", "GPU-ac3", "GPU-ad4"]
    monkeypatch.setattr(gl, "_gpu_uuids", lambda: uuids)
    monkeypatch.setattr(gl, "gpu_count", lambda: 3)
    monkeypatch.setattr(gl, "_chosen_here", [])
    for name, value in {"MUJOCO_GL": "egl", "PYOPENGL_PLATFORM": "egl", gl.DEVICE: ""}.items():
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize(
    ("visible", "devices"),
    [
        (None, [0, 1, 2]),
        ("", [0, 1, 2]),
        ("-1", [0, 1, 2]),
        ("2", [2]),
        ("2, 0,2", [2, 0]),
        ("1,-1,0", [1]),
        ("GPU-ad4", [2]),
        ("GPU-ac,GPU-aa1", [1, 0]),
        ("GPU-a", []),
        ("GPU-ab2,0", []),
        ("MIG-GPU-ac3/1/0", [1]),
        ("MIG-0b1c", []),
    ],
)
def test_the_gpus_that_cuda_may_use_render(visible, devices, monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert gl._granted_devices() == devices


@pytest.mark.parametrize(
    ("visible", "renders", "chosen", "workers"),
    [
        ("2", {0, 1, 2}, "2", [2, 2, 2]),
        ("GPU-ad4,1", {0, 1, 2}, "2", [2, 1, 2]),
        ("2,1", {0, 1}, "1", [1, 1, 1]),
        ("2", {0}, None, [None, None, None]),
        ("MIG-0b1c", {0, 1, 2}, None, [None, None, None]),
        ("", {0, 1, 2}, None, [0, 1, 2]),
    ],
)
def test_main_process_and_workers_render_where_it_is_granted(visible, renders, chosen, workers, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    monkeypatch.setattr(gl, "_failure", lambda _, device=None: None if device in renders else "none")
    monkeypatch.setattr(gl, "choose_backend", gl.choose_backend.__wrapped__)
    assert gl.choose_backend() == "egl"
    assert os.environ.get(gl.DEVICE) == chosen
    assert [gl.rendering_device(worker) for worker in range(3)] == workers


def test_the_users_choice_of_a_device_stands(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2")
    monkeypatch.setenv(gl.DEVICE, "1")
    assert gl.choose_backend.__wrapped__() == "egl"
    assert os.environ[gl.DEVICE] == "1"
    monkeypatch.setattr(gl, "choose_backend", lambda: "egl")
    assert gl.rendering_device(0) is None
