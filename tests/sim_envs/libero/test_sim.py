"""LIBERO's assets, tasks and wordings; a trajectory is a function of key and actions, and LIBERO's own."""

import collections
import concurrent.futures
import contextlib
import hashlib
import multiprocessing
import os
import pickle
import shutil
import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from configs.paths import read_json_object
from contracts.errors import UsageError
from oxygen.robots import tokenizer
from sim_envs.blas import pin_kernels
from sim_envs.libero import assets, tasks
from sim_envs.libero.assets import ORIGINALS, STANDINS, AssetSet, find_assets
from sim_envs.libero.sim import SETTLE_ACTION, LiberoSim, movable, read_problem
from sim_envs.libero.tasks import FIRST_SAMPLED, SUITES, LiberoTask, get_task, init_states, list_tasks
from sim_envs.libero.truth import Names
from sim_envs.libero.wordings import wordings
from sim_envs.suite import open_suite
from sim_envs.truth.scene import SceneError
from sim_envs.world import read_truth
from tests.sim_envs.vocabulary import ALL_TASKS

STANDIN_DIGEST, ORIGINAL_DIGEST = "05bb9ab96238", "3d456366c01e"
"""Records of earlier runs name them: another digest makes their episodes incomparable."""


def _tree(folder: Path) -> Path:
    for part in assets._PARTS:
        (folder / part).mkdir(parents=True)
        (folder / part / "thing.xml").write_text("<mujoco/>")
    return folder


@pytest.fixture
def places(tmp_path, monkeypatch):
    """A machine without assets, on which the originals are small trees."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv(assets.ENVIRONMENT_VARIABLE, raising=False)
    monkeypatch.setattr(assets, "package_root", lambda: tmp_path / "package")
    monkeypatch.setattr(assets, "_WHEELS", "no-such-distribution")
    digests = {f"{part}/thing.xml": hashlib.sha256(b"<mujoco/>").hexdigest() for part in assets._PARTS}
    monkeypatch.setattr(assets, "_original_digests", lambda: digests)
    return tmp_path


def test_the_originals_that_setup_installs_are_the_default(originals, monkeypatch):
    monkeypatch.delenv(assets.ENVIRONMENT_VARIABLE, raising=False)
    found = find_assets()
    assert (found.name, found.digest) == (ORIGINALS, ORIGINAL_DIGEST)
    assert found.path == find_assets("auto").path == assets._wheels()
    assert (originals.name, originals.digest) == (ORIGINALS, ORIGINAL_DIGEST), "the same files elsewhere"


def test_without_assets_both_ways_are_named_and_stand_ins_are_never_the_default(places):
    with pytest.raises(UsageError, match=r"not installed: `oxygen-eval setup libero` .*--assets standins"):
        find_assets()
    found = find_assets(STANDINS)
    assert (found.name, found.digest) == (STANDINS, STANDIN_DIGEST)
    assert found.path.parent == places / "cache/oxygen-eval"
    assert [child.name for child in found.path.parent.iterdir()] == [found.path.name]  # no draft is left


def test_the_variable_comes_first_then_the_package_the_wheels_and_an_earlier_download(places, monkeypatch):
    def found():
        return find_assets().name, find_assets().path

    download = _tree(places / "home/.cache/libero/assets")
    assert found() == (ORIGINALS, download)
    wheels = _tree(places / "wheels")
    monkeypatch.setattr(assets, "_wheels", lambda: wheels)
    assert found() == (ORIGINALS, wheels)
    package = _tree(places / "package/assets")
    assert found() == (ORIGINALS, package)
    mine = _tree(places / "mine")
    (mine / "scenes" / "more.xml").write_text("<mujoco/>")
    monkeypatch.setenv(assets.ENVIRONMENT_VARIABLE, str(mine))
    assert found() == (ORIGINALS, mine), "files that no task uses do not count"
    (other := _tree(places / "other")).joinpath("scenes/thing.xml").write_text("<other/>")
    monkeypatch.setenv(assets.ENVIRONMENT_VARIABLE, str(other))
    assert found() == ("other", other)


@pytest.mark.parametrize(
    ("spoil", "complaint"),
    [
        (lambda tree: (tree / "scenes/thing.xml").unlink(), "scenes/thing.xml is missing; "),
        (lambda tree: (tree / "scenes/thing.xml").write_text("<other/>"), "scenes/thing.xml is changed; "),
        (shutil.rmtree, r"articulated_objects/thing.xml is missing, and 4 others of 5; "),
        (lambda tree: (tree / "robosuite").mkdir(), "robosuite is not one of them; "),
    ],
)
def test_what_is_missing_or_changed_in_installed_originals_is_named(places, spoil, complaint, monkeypatch):
    tree = _tree(places / "wheels")
    monkeypatch.setattr(assets, "_wheels", lambda: tree)
    spoil(tree)
    with pytest.raises(UsageError, match=rf"wheels' are not the originals: {complaint}`oxygen-eval setup"):
        find_assets()


def test_what_a_tree_is_called_follows_from_its_files_and_not_from_its_folder(places):
    elsewhere = shutil.copytree(assets.unpack_standins(), places / "mine")
    assert find_assets(elsewhere).name == STANDINS
    for name in (STANDINS, ORIGINALS):
        (_tree(places / name) / "scenes" / "thing.xml").write_text("<other/>")
        assert find_assets(places / name).name == f"{places.name}/{name}"


def test_the_digest_changes_with_any_content_and_with_nothing_else(tmp_path):
    first, second = _tree(tmp_path / "first"), _tree(tmp_path / "second")
    before = find_assets(first).digest
    assert find_assets(second).digest == before
    (first / ".cache").mkdir()
    (first / ".cache" / "etag").write_text("bookkeeping")
    assert find_assets(first).digest == before
    (first / "scenes" / "thing.xml").write_text("<mujoco></mujoco>")
    assert find_assets(first).digest != before


def test_processes_that_unpack_at_once_agree(tmp_path):
    root = tmp_path / "shared"
    with concurrent.futures.ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as pool:
        assert list(pool.map(assets.unpack_standins, [root] * 2)) == [root] * 2
    assert AssetSet(name=STANDINS, path=root).digest == STANDIN_DIGEST
    assert [child.name for child in tmp_path.iterdir()] == ["shared"]


GREY_LEVELS = 2.0
"""Mean difference of pictures that other renderers may make."""

REST_POSE_UNITS = np.array([1e-4] * 3 + [1e-3] * 4)
"""Units of stored rest poses with the real assets: metres, and parts of a unit quaternion (w, x, y, z)."""

TASKS = [("libero_object", 3), ("libero_spatial", 5), ("libero_goal", 0)]
TASKS += [("libero_10", task_id) for task_id in (0, 2, 3, 4, 5, 9)]
"""They hold every category and room of the four suites, and the bowl that LIBERO drops on a ramekin's rim."""


def up(quaternion: np.ndarray) -> np.ndarray:
    """Direction of a body's own z axis; a turn about it does not count."""
    w, x, y, z = quaternion / np.linalg.norm(quaternion)
    return np.array([2 * (x * z + w * y), 2 * (y * z - w * x), 1 - 2 * (x * x + y * y)])


@pytest.mark.parametrize(("suite", "task_id"), TASKS)
def test_objects_rest_where_and_as_they_rest_with_the_real_assets(open_standin, suite, task_id):
    sim = open_standin(suite, task_id)
    stored = read_json_object(Path(__file__).with_name("rest_poses.json"))[f"{suite}.{task_id}"]
    for init_id in (0, 9):
        sim.reset(init_id=init_id, seed=7, settle_steps=10)
        data, bodies = sim.env.sim.data, sim.env.obj_body_id
        assert bodies.keys() == stored.keys()
        for name, body in bodies.items():
            expected = np.array(stored[name][init_id]) * REST_POSE_UNITS
            assert np.linalg.norm(data.body_xpos[body] - expected[:3]) <= 0.005, (init_id, name)
            assert up(data.body_xquat[body]) @ up(expected[3:]) >= np.cos(np.radians(5)), (init_id, name)


def test_the_light_robot_moves_as_the_installed_one(standins, tmp_path):
    for part in standins.path.iterdir():
        if part.name != "robosuite":
            (tmp_path / part.name).symlink_to(part)
    heavy = AssetSet(name=STANDINS, path=tmp_path)
    actions = np.random.default_rng(3).uniform(-1, 1, (8, 7))
    states, faces = [], []
    for tree in (standins, heavy):
        with LiberoSim(get_task("libero_goal", 2), assets=tree) as sim:
            sim.reset(init_id=1, seed=7, settle_steps=2)
            sim.advance(actions)
            states.append(sim.flat_state())
            faces.append(sim.env.sim.model.nmeshface)
    np.testing.assert_array_equal(*states)
    assert faces[0] * 3 < faces[1]


def test_a_task_with_other_objects_is_refused(standins):
    with pytest.raises(UsageError, match=r"libero_90 task \d+ needs .*--assets"):
        LiberoSim(get_task("libero_90", 88), assets=standins)


@pytest.mark.parametrize("suite", [*SUITES, tasks.MEMORY_SUITE, tasks.SHORT_SUITE])
def test_every_task_has_its_problem_and_fifty_initial_states(suite):
    for task in list_tasks(suite):
        assert task.bddl_file.is_file()
        assert len({state.tobytes() for state in init_states(task)}) == 50


def test_task_ids_follow_libero_not_the_file_listing(golden):
    with np.load(golden / "libero_reference_rollouts.npz") as recorded:
        for name in recorded.files:
            if name.endswith(".bddl"):
                suite, task_id, *_ = name.split(".")
                assert get_task(suite, int(task_id)).name == str(recorded[name])


@pytest.mark.parametrize(
    ("call", "complaint"),
    [
        (lambda: find_assets("standin"), r"'standin'; did you mean 'standins'\?.*path of a folder"),
        (lambda: list_tasks("libero-object"), "did you mean 'libero_object'"),
        (lambda: get_task("libero_goal", 10), "task ids are 0 to 9"),
        (lambda: tasks.get_init_state(get_task("libero_goal", 0), 50), "give ids from 0 to 49"),
    ],
)
def test_what_does_not_exist_is_named_with_what_does(call, complaint):
    with pytest.raises(UsageError, match=complaint):
        call()


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"control_hz": 7}, "control_hz is 7, but interface 'LIBERO' of its world has 20; give 20"),
        ({"environment": {"nonsense": 3}}, "--nonsense 3: libero_object has no such choice"),
    ],
)
def test_a_protocol_that_the_suite_cannot_follow_is_one_line(changes, complaint):
    with pytest.raises(UsageError, match=complaint):
        open_suite("libero_object", assets="standins", **changes)


def test_a_pickle_that_would_run_something_is_refused(tmp_path):
    file = tmp_path / "evil.pruned_init"
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps({"call": os.system}))
    with pytest.raises(UsageError, match=r"posix\.system"):
        tasks._read_torch_array(file)


_SAMPLE = get_task("libero_90", 61)
_OTHERS = [task for task in ALL_TASKS if task != _SAMPLE]


@pytest.mark.parametrize(
    "task",
    [_SAMPLE, *(pytest.param(task, marks=pytest.mark.slow) for task in _OTHERS)],
    ids=lambda task: f"{task.suite}.{task.task_id}",
)
def test_a_task_loads_resets_and_moves_and_leaves_numpy_s_global_generator_alone(task, originals):
    before = np.random.get_state()  # noqa: NPY002
    with LiberoSim(task, assets=originals) as sim:
        last = len(init_states(task)) - 1
        sim.reset(init_id=last, seed=7, settle_steps=0)
        np.testing.assert_array_equal(sim.flat_state(), init_states(task)[last])
        advanced = sim.advance(np.full((2, 7), 0.5))
        assert (advanced.steps, advanced.success) == (2, False)
        elapsed = sim.flat_state()[0] - init_states(task)[last][0]
        assert elapsed == pytest.approx(2 / tasks.CONTROL_HZ)
    np.testing.assert_equal(np.random.get_state(), before)  # noqa: NPY002


VERBS = {"pick", "up", "put", "place", "take", "grab", "set", "goes", "go", "push", "slide", "shove", "stack"}
VERBS |= {"open", "pull", "get", "close", "closed", "shut", "turn", "switch", "power", "please"}
VERBS |= {"and", "then", "it", "them", "they"}


def nouns(words: str) -> collections.Counter[str]:
    """The words of things and places, how often each."""
    return collections.Counter(word for word in words.split() if word not in VERBS)


def test_every_task_can_be_said_in_other_words_of_the_same_things_and_places_some_of_them_held_out():
    """The bundled policy has room for those of its suites, in tokens."""
    vocabulary = tokenizer.tiny()
    suites = [open_suite(suite, assets="standins").training_wordings() for suite in SUITES]
    training = {instruction: shown for suite in suites for instruction, shown in suite.items()}
    taught = {words for shown in training.values() for words in shown}
    assert set(training) == {task.language for task in ALL_TASKS}
    for task in ALL_TASKS:
        shown, held_out = training[task.language], wordings(task.language, "held_out")
        said = [*shown, *held_out]
        assert (shown[0], len(shown) >= 5, len(held_out)) == (task.language, True, 3)
        assert len(set(said)) == len(said)
        assert not taught & set(held_out)
        assert set(" ".join(held_out).split()) <= set(" ".join(shown).split())
        for words in said:
            assert nouns(words) == nouns(task.language), words
            assert len(words) <= 1.7 * len(task.language)
            assert words == words.lower()
            assert task.suite not in SUITES[:3] or len(vocabulary.encode(words)) <= 22


def _start(sim: LiberoSim, init_id: int, seed: int) -> np.ndarray:
    sim.reset(init_id=init_id, seed=seed, settle_steps=0)
    return sim.flat_state()


def _replay(sim: LiberoSim, recorded: Mapping[str, np.ndarray], name: str, *, pictures: bool = True) -> None:
    """Plays a recorded episode after another one, and compares its states and two pictures."""

    def compare_picture(when: str) -> None:
        if pictures:
            picture = np.concatenate(list(sim.observe().images.values()), axis=1).astype(float)
            assert np.abs(picture - recorded[f"{name}.image_{when}"]).mean() <= GREY_LEVELS, (name, when)

    if not pin_kernels():
        pytest.skip("this CPU cannot run the kernels that the reference was made with (AVX-512)")
    sim.reset(init_id=4, seed=8, settle_steps=2)
    sim.advance(np.random.default_rng(1).uniform(-1, 1, (6, 7)))
    sim.reset(init_id=int(name.rsplit(".", 1)[1]), seed=7, settle_steps=10)
    compare_picture("after_settle")
    actions = recorded[f"{name}.actions"].reshape(-1, 5, 7)
    for chunk, expected in zip(actions, recorded[f"{name}.sim_state"], strict=True):
        sim.advance(chunk)
        np.testing.assert_array_equal(sim.flat_state(), expected, err_msg=name)
    compare_picture("last")


@pytest.mark.parametrize(
    "name",
    [
        *("libero_10.6.2", "libero_goal.4.7"),
        *(
            pytest.param(name, marks=pytest.mark.slow)
            for name in ("libero_object.2.1", "libero_spatial.0.0", "libero_spatial.5.3")
        ),
    ],
)
def test_reference_trajectories_are_reproduced_to_the_last_bit_and_their_pictures_but_for_the_renderer(
    reference_assets, golden, name
):
    suite, task_id, _ = name.split(".")
    with (
        np.load(golden / "libero_reference_rollouts.npz") as recorded,
        LiberoSim(get_task(suite, int(task_id)), assets=find_assets(reference_assets)) as sim,
    ):
        _replay(sim, recorded, name)


def test_the_originals_have_the_same_physics(open_sim, golden):
    with np.load(golden / "libero_reference_rollouts.npz") as recorded:
        _replay(open_sim("libero_object", 2), recorded, "libero_object.2.1", pictures=False)


@pytest.mark.parametrize(
    ("suite", "task_id"), [("libero_object", 2), ("libero_spatial", 9), ("libero_10", 3)]
)
def test_a_sampled_initial_state_is_its_own_and_like_the_stored_ones(open_standin, suite, task_id):
    sim = open_standin(suite, task_id)
    sampled = [_start(sim, init_id, 7) for init_id in (1000, 1001, 1002, 1003)]
    np.testing.assert_array_equal(_start(sim, 1000, 7), sampled[0])
    assert not np.array_equal(_start(sim, 1000, 8), sampled[0])
    stored = init_states(sim.task)
    spread = stored.std(axis=0)
    apart = np.ptp(sampled, axis=0)
    assert np.all(apart[spread > 1e-4] > 0)
    np.testing.assert_array_equal(apart[spread == 0], 0)
    np.testing.assert_allclose(np.mean(sampled, axis=0), stored.mean(axis=0), atol=0.05)


@pytest.mark.slow
@pytest.mark.parametrize(("suite", "task_id"), [("libero_goal", 7), ("libero_10", 3)])
def test_the_same_calls_give_the_same_states_and_pictures_as_in_liberos_environment(open_sim, suite, task_id):
    """Of a task that turns on a stove, and of one that closes a drawer."""
    sim, actions = open_sim(suite, task_id), np.random.default_rng(1).uniform(-1, 1, (6, 7))
    how = {"bddl_file_name": str(sim.task.bddl_file), "camera_heights": 256, "camera_widths": 256}
    libero_env = assets.load_libero().OffScreenRenderEnv
    with assets.use_assets(sim.assets.path), contextlib.closing(libero_env(**how)) as usual:
        usual.seed(11)
        usual.reset()
        usual.set_init_state(tasks.get_init_state(sim.task, 5))
        for action in [SETTLE_ACTION, SETTLE_ACTION, *actions]:
            expected, _, done, _ = usual.step(action)
        sim.reset(init_id=5, seed=11, settle_steps=2)
        assert sim.advance(actions).success == done
        seen = sim.observe()
        np.testing.assert_array_equal(sim.flat_state(), usual.get_sim_state())
        np.testing.assert_array_equal(seen.state[:3], expected["robot0_eef_pos"])
        np.testing.assert_array_equal(seen.state[6:], expected["robot0_gripper_qpos"])
        for name, camera in (("image", "agentview"), ("wrist_image", "robot0_eye_in_hand")):
            np.testing.assert_array_equal(seen.images[name], expected[f"{camera}_image"][::-1, ::-1])


@settings(
    max_examples=settings().max_examples // 4, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(seed=st.integers(0, 2**32 - 1))
def test_contacts_are_those_that_robosuite_finds(open_standin, seed):
    from robosuite.environments.base import MujocoEnv

    sim = open_standin("libero_goal", 7)
    random = np.random.default_rng(seed)
    sim.reset(init_id=int(random.integers(50)), seed=0, settle_steps=int(random.integers(4)))
    env = sim.env
    pad = ["gripper0_finger1_pad_collision", "no_such_geom"]
    groups = [*env.objects, *env.fixtures, "table_collision", pad]
    for _ in range(20):
        first, second = (groups[index] for index in random.integers(len(groups), size=2))
        assert env.check_contact(first, second) == MujocoEnv.check_contact(env, first, second)
        assert env.check_contact(first) == MujocoEnv.check_contact(env, first)


_GOAL = "(On akita_black_bowl_1 plate_1)"
_BOTH = (_GOAL, f"{_GOAL} (On akita_black_bowl_2 plate_1)")


@pytest.fixture
def change_bddl(tmp_path, monkeypatch):
    """Changes the problem file of a task, which it returns: a scene of one's own."""

    def changed(*changes: tuple[str, str]) -> LiberoTask:
        task, own = get_task("libero_spatial", 0), tmp_path / "own.bddl"
        bddl = task.bddl_file.read_text()
        for old, new in changes:
            assert bddl.count(old) == 1
            bddl = bddl.replace(old, new)
        own.write_text(bddl)
        monkeypatch.setattr(LiberoTask, "bddl_file", own)
        return task

    return changed


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        (
            [_BOTH, ("main_table_next_to_ramekin_region", "wooden_cabinet_1_top_side")],
            "no words tell 2 objects apart that are each a black bowl: akita_black_bowl_1, akita_",
        ),
        ([(_GOAL, f"{_GOAL} (Up akita_black_bowl_2)")], "no words say what up(akita_black_bowl_2) requires"),
    ],
    ids=["bowls on different supports", "another predicate"],
)
def test_an_episode_of_a_scene_that_no_words_describe_is_played_without_truth(
    standins, change_bddl, changes, why
):
    with LiberoSim(change_bddl(*changes), assets=standins, camera_size=64) as sim:
        sim.reset(init_id=FIRST_SAMPLED, seed=7, settle_steps=1)
        for _ in range(2):
            truth, error = read_truth(sim)
            assert truth is None
            assert why in error
            assert (sim.advance(np.tile(SETTLE_ACTION, (12, 1))).steps, sim.progress()) == (12, 0.0)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        (
            [_BOTH, ("bowl_2 main_table_next_to_ramekin", "bowl_2 main_table_between_plate_ramekin")],
            "no words tell 2 objects apart that are each a black bowl",
        ),
        (
            [_BOTH, ("akita_black_bowl_2 - akita", "akita_black_bowl_2 akita_black_bowl_3 bowl_4 - akita")],
            "no words tell 4 objects apart that are each a black bowl",
        ),
        (
            [("flat_stove_1 - flat_stove", "flat_stove_1 flat_stove_2 - flat_stove")],
            "no words tell 2 fixtures apart that are each a stove",
        ),
        ([("cookies_1 - cookies", "cookies_1 - popcorn")], "no noun for objects of category popcorn"),
        ([("flat_stove_1 - flat_stove", "flat_stove_1 - faucet")], "no noun for fixtures of category faucet"),
    ],
)
def test_names_are_refused_where_they_would_be_arbitrary(change_bddl, changes, why):
    problem = read_problem(change_bddl(*changes))
    assert movable(problem)[0] == "akita_black_bowl_1"  # it does not need their nouns
    with pytest.raises(SceneError, match=why):
        Names(problem, "put both bowls on the plate")
