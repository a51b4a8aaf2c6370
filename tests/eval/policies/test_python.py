"""A class of one's own acts, in either style; openpi's is shown what openpi's own robots send."""

import dataclasses
import re
import sys
import textwrap
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from configs.cli import read_kwargs
from contracts.episode import EpisodeKey
from contracts.errors import UsageError
from contracts.interface import compare
from eval.policies.base import BadAnswerError
from eval.policies.openpi import OpenpiPolicy
from eval.policies.python import open_python
from oxygen.robots.conventions import DROID, LIBERO
from oxygen.robots.openpi_keys import ROBOTS, keys_for, keys_of, keys_of_suite
from sim_envs.fake import FakeWorld
from sim_envs.suite import open_suite

KEY = EpisodeKey(suite="libero_object", task_id=0, init_id=0, seed=7)

OPENPI = """
    import numpy as np

    class Mine:
        def __init__(self, scale=1.0, horizon=None):
            self.scale = scale
            self.resets = 0
            if horizon:
                self.horizon = horizon

        def infer(self, obs):
            self.seen = obs
            return {"actions": np.full((10, 7), self.scale)}

        def reset(self):
            self.resets += 1
"""


@pytest.fixture
def written(tmp_path, monkeypatch):
    """Writes a file outside the project; what importing it leaves behind is undone."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "modules", dict(sys.modules))

    def write(source, name="mine.py"):
        file = tmp_path / name
        file.write_text(textwrap.dedent(source))
        return f"{file}:Mine"

    return write


def acted(opened):
    policy = opened.in_world(None, None)
    policy.reset(KEY)
    return policy.act(FakeWorld().observe())


def test_a_class_with_the_contracts_methods_as_in_the_documentation_is_used_as_it_is(written):
    page = (Path(__file__).parents[3] / "docs/evaluate.md").read_text()
    (source,) = re.findall(r"```python\n# my_contract_policy.py\n([^`]+)```", page)
    opened = open_python(written(source).replace(":Mine", ":MyPolicy"), {})
    compare(opened.interface, LIBERO)
    assert opened.remark is None
    assert acted(opened).shape == (10, 7)
    policy = opened.in_world(None, None)
    assert policy.rng.bit_generator.seed_seq.entropy == KEY.digest()


def test_a_file_imports_what_lies_beside_it_and_a_function_may_return_the_policy(written):
    written("SCALE = 0.25", "beside_mine.py")
    source = OPENPI.replace("import numpy as np", "import numpy as np\n    from beside_mine import SCALE", 1)
    target = written(source + "\n    def make(scale=SCALE):\n        return Mine(scale)\n")
    for kwargs, scale in (({}, 0.25), ({"scale": 2.0}, 2.0)):
        assert (acted(open_python(target.replace(":Mine", ":make"), kwargs)) == scale).all()


def test_a_class_names_its_robot_or_is_assumed_to_be_for_the_suites(written):
    target = written(OPENPI)
    reacher = open_suite("gym_reacher").interface
    opened = open_python(target, {}, assumed=keys_of_suite(reacher))
    assert re.search("keys of gym_reacher .observation/image, observation/joint", opened.remark)
    assert opened.image_sizes == {"image": (256, 256)}
    compare(opened.interface, reacher)
    for suite, robot in (("droid_tabletop_jointpos", "droid_jointpos"), ("libero_memory", "libero")):
        assert keys_of_suite(open_suite(suite).interface) == ROBOTS[robot]
    opened = open_python(target, {})
    compare(opened.interface, LIBERO)
    assert (opened.interface.name, opened.interface.horizon) == (target, None)
    assert re.search("observation/image.*embodiment", opened.remark)
    assert open_python(target, {"horizon": 10}).interface.horizon == 10
    droid = OPENPI.replace("class Mine:", "class Mine:\n        embodiment = 'droid'")
    opened = open_python(written(droid), {})
    assert (opened.remark, opened.interface.observation) == (None, DROID.observation)
    own = OPENPI.replace("class Mine:", "from oxygen.robots.conventions import LIBERO\n    class Mine:")
    own = own.replace("self.resets = 0", "self.resets, self.interface = 0, LIBERO")
    opened = open_python(written(own), {})
    assert (acted(opened) == 1).all()
    assert opened.remark is None
    assert "observation/gripper_joints" in opened.inputs["keys"]


@pytest.mark.parametrize(
    ("change", "kwargs", "why"),
    [
        (("def infer", "def predict"), {}, "lacks infer: give it infer"),
        (("def infer", "def act"), {}, "lacks complete, finish, interface: give it"),
        (("self.resets = 0", "self.embodiment = 'libro'"), {}, "unknown embodiment 'libro'"),
        (("self.resets = 0", "self.interface = 'libero'"), {}, "its interface is a str"),
        (("self.resets = 0", "self.interface = self.embodiment = 1"), {}, "give one of them"),
        (("self.resets = 0", "raise OSError('no weights')"), {}, r"OSError: no weights \(mine.py, line 7\)"),
        (("self.resets = 0", "exit()"), {}, "SystemExit"),
        (("import numpy as np", "import sys; sys.exit(0)"), {}, "SystemExit"),
        (("self.resets = 0", "self.horizon = 'ten'"), {}, "horizon is 'ten'"),
        (("self.resets = 0", "self.action_prefix = 'yes'"), {}, "action_prefix is 'yes'; give true or false"),
        (("import numpy as np", "import no_such_package"), {}, "no_such_package"),
        (("import numpy as np", "1 / 0"), {}, r"ZeroDivisionError: division by zero \(mine.py, line 2\)"),
        (("import numpy as np", "import numpy as"), {}, r"SyntaxError: [^()]+ \(mine.py, line 2\)$"),
        (("class Mine", "class Yours"), {}, "unknown class in .*'Mine'; did you mean 'Yours'"),
        (("class Mine", "Mine = 3\n\n    class Yours"), {}, "Mine is 3; give a class"),
        (("", ""), {"scael": 1}, "unexpected keyword argument 'scael'; its arguments: scale=1.0"),
        (("scale=1.0", "scale"), {}, "missing a required argument: 'scale'"),
    ],
)
def test_an_invalid_class_is_one_line(written, change, kwargs, why):
    target = written(OPENPI.replace(*change, 1))
    with pytest.raises(UsageError, match=why):
        open_python(target, kwargs)


@pytest.mark.parametrize(
    ("target", "why"),
    [
        ("no/such/file.py:Mine", "there is no file no/such/file.py"),
        ("no_such_package:Mine", "'no_such_package:Mine', which cannot be imported"),
        ("json:Decoder", "unknown object for policy in json"),
    ],
)
def test_a_missing_class_is_one_line(target, why):
    with pytest.raises(UsageError, match=why):
        open_python(target, {})


def test_arguments_are_yaml_scalars_by_name():
    given = read_kwargs(["a=3", "b=1e-3", "c=true", "d=", "e=left", "f='3'", "g=a=b"])
    assert given == {"a": 3, "b": 1e-3, "c": True, "d": None, "e": "left", "f": "3", "g": "a=b"}
    wrong = {"scale": "write key=value", "my-scale=3": "write key=value", "x=[1, 2]": "give a number"}
    for pair, why in wrong.items():
        with pytest.raises(UsageError, match=why):
            read_kwargs([pair])
    with pytest.raises(UsageError, match="'x' is given twice"):
        read_kwargs(["x=1", "x=2"])


CAMERAS = {"libero": ("image", "wrist_image"), "droid": ("exterior_image_1_left", "wrist_image_left")}
STATES = {
    "libero": {"observation/state": [*range(8)]},
    "droid": {"observation/joint_position": [*range(7)], "observation/gripper_position": [7]},
}


def sent_by(robot, image):
    """What a robot with the same image in all cameras sends."""
    return keys_of(robot).write(dict.fromkeys(CAMERAS[robot], image), np.arange(8.0), "lift it")


def answered(answer):
    policy = OpenpiPolicy(SimpleNamespace(infer=lambda obs: answer), keys_of("libero"))
    return policy, policy.act(FakeWorld(image_size=256).observe())


@pytest.mark.golden
@pytest.mark.parametrize(("robot", "name"), [("libero", "square256"), ("droid", "droid")])
def test_images_are_padded_as_openpi_client_does(golden, robot, name):
    with np.load(golden / "openpi_transforms.npz") as file:
        image, expected = file[f"resize.{name}.in"], file[f"resize.{name}.out"]
    for camera in CAMERAS[robot]:
        sent = sent_by(robot, image)[f"observation/{camera}"]
        assert sent.dtype == np.uint8
        assert np.abs(sent.astype(int) - expected).max() <= 1


@pytest.mark.parametrize("robot", CAMERAS)
def test_observations_have_the_keys_of_openpis_examples(robot):
    sent = sent_by(robot, np.zeros((180, 320, 3), np.uint8))
    assert sent.pop("prompt") == "lift it"
    assert {sent.pop(f"observation/{camera}").shape for camera in CAMERAS[robot]} == {(224, 224, 3)}
    assert {key: value.tolist() for key, value in sent.items()} == STATES[robot]


SEES = """
    import dataclasses
    import numpy as np
    from oxygen.robots.conventions import LIBERO

    def with_size(size):
        cameras = tuple(dataclasses.replace(each, size=size) for each in LIBERO.observation.cameras)
        observation = dataclasses.replace(LIBERO.observation, cameras=cameras)
        return dataclasses.replace(LIBERO, observation=observation)

    class Mine:
        DECLARED

        def __init__(self, seen):
            self.seen = seen

        def infer(self, obs):
            self.seen.append(obs["observation/image"])
            return {"actions": np.zeros((10, 7))}

        def reset(self):
            pass

    class OfOurContract(Mine):
        infer, finish = None, lambda self: None

        def reset(self, key):
            pass

        def act(self, observation):
            self.seen.append(observation.images["image"])
            return np.zeros((10, 7))

        complete = finish
"""
DISC = np.repeat((np.hypot(*np.ogrid[-128:128, -128:128]) <= 128)[..., None], 3, axis=2).astype(np.uint8)


_RENDERED, _PADDED = ((256, 256, 3), (0, 128)), ((100, 200, 3), (0, 100))


@pytest.mark.parametrize(
    ("declared", "name", "expected"),
    [
        ("interface = with_size((128, 128))", "Mine", ((128, 128, 3), (0, 64))),
        ("interface = with_size((128, 128))", "OfOurContract", ((128, 128, 3), (0, 64))),
        ("interface = with_size((100, 200))", "Mine", _PADDED),
        ("interface = with_size([100, 200])", "OfOurContract", _PADDED),
        ("image_resize, interface = 'stretch', with_size((100, 200))", "Mine", ((100, 200, 3), (50, 4))),
        (
            "image_resize, interface = 'stretch', with_size((100, 200))",
            "OfOurContract",
            ((100, 200, 3), (50, 4)),
        ),
        ("interface = LIBERO", "Mine", _RENDERED),
        ("interface = LIBERO", "OfOurContract", _RENDERED),
        ("interface = with_size(None)", "Mine", ((224, 224, 3), (0, 112))),
        ("interface = with_size(None)", "OfOurContract", _RENDERED),
        ("embodiment, image_resolution = 'libero', (100, 200)", "Mine", _PADDED),
        ("embodiment, image_resolution = 'libero', None", "Mine", _RENDERED),
        ("embodiment = 'libero'", "Mine", ((224, 224, 3), (0, 112))),
    ],
)
def test_a_class_sees_images_of_the_size_that_it_declares(written, declared, name, expected):
    """`expected` is the shape, and a pixel that the disc reaches."""
    seen = []
    target = written(SEES.replace("DECLARED", declared)).replace(":Mine", f":{name}")
    opened = open_python(target, {"seen": seen})
    images = dict.fromkeys(CAMERAS["libero"], 200 * DISC)
    observation = dataclasses.replace(FakeWorld().observe(), images=images)
    opened.in_world(None, None).act(observation)
    opened.groups[0].act({0: observation})
    for image in seen:
        assert (image.shape, image.dtype) == (expected[0], np.uint8)
        assert image[expected[1]].any()
        assert not image[0, 0].any()
    assert len(seen) == 2


@pytest.mark.parametrize(
    ("declared", "why"),
    [
        ("interface = with_size(128)", "size of camera 'image' is 128; give its height and width"),
        ("interface = with_size((0, 128))", r"size of camera 'image' is \(0, 128\)"),
        ("image_resolution = 'large'", "image_resolution of policy .* is 'large'"),
        ("image_resize = 'crop'", "unknown image_resize of policy .* 'crop'; did you mean 'pad'"),
        ("interface, image_resolution = LIBERO, (128, 128)", "leave out image_resolution"),
    ],
)
def test_an_invalid_size_is_one_line(written, declared, why):
    with pytest.raises(UsageError, match=why):
        open_python(written(SEES.replace("DECLARED", declared)), {"seen": []})


def test_an_embodiments_keys_show_all_of_its_interface_and_other_robots_the_names_of_theirs():
    for keys in map(keys_of, ROBOTS):
        seen = keys.interface.observation
        assert tuple(keys.images.values()) == seen.camera_names
        assert [part for parts in keys.state.values() for part in parts] == [part.name for part in seen.state]
    assert keys_for(DROID).names == keys_of("droid").names
    assert "observation/gripper_joints" in keys_for(LIBERO).names


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (None, "answered with NoneType"),
        (np.zeros((10, 7)), "answered with ndarray"),
        ({"action": np.zeros((10, 7))}, "no 'actions'; it has 'action'"),
        ({"actions": np.zeros((10, 7), complex)}, "actions are ndarray"),
        ({"actions": [[0.0], [0.0, 1.0]]}, "actions are list"),
        ({"actions": ["left"]}, "actions are list"),
    ],
)
def test_an_answer_without_actions_is_refused(answer, why):
    with pytest.raises(BadAnswerError, match=why):
        answered(answer)


@pytest.mark.parametrize("dtype", [np.float16, np.int64, np.float64])
def test_actions_of_any_real_type_are_taken_as_a_copy(dtype):
    answer = np.ones((10, 7), dtype)
    answer.flags.writeable = False
    _, actions = answered({"actions": answer})
    assert actions.dtype == np.float64
    assert (actions == 1).all()
    actions[:] = 0
    assert (answer == 1).all()


def test_a_query_is_timed_from_the_observation_to_the_actions():
    policy, _ = answered({"actions": np.zeros((10, 7))})
    timings = policy.complete().timings_ms
    assert sorted(timings) == ["action", "frame", "preprocess"]
    assert 0 < timings["preprocess"] < timings["action"] == timings["frame"]
