"""LIBERO-plus: its list, what each task changes, what the policy is told, and what its assets lack."""

import ast
import collections
import contextlib
import gc
import os
import re
import shutil

import numpy as np
import pytest

from contracts.episode import EpisodeKey
from contracts.errors import UsageError
from sim_envs.blas import pin_kernels
from sim_envs.libero import assets, definitions, parity, tasks
from sim_envs.libero.bddl import instruction_in
from sim_envs.libero.perturbation import Perturbation
from sim_envs.libero.plus.names import CATEGORIES, View, read_name
from sim_envs.libero.plus.poses import arm_pose, camera_pose
from sim_envs.libero.plus.suite import LIBERO_PLUS
from sim_envs.libero.sim import SETTLE_ACTION, read_problem
from sim_envs.perturbations import noise
from sim_envs.suite import open_suite
from sim_envs.testing import check_suite
from tests.sim_envs.libero.small_copy import BASE, PARAPHRASE, UNSEEN, write

SUITES = [f"libero_plus_{name}" for name in ("spatial", "object", "goal", "10")]
CAMERA, ROBOT, LANGUAGE, LIGHT, TEXTURE, NOISE, LEVEL, ADD = range(8)
"""Tasks of the small copy."""
MOVED = f"{BASE}_moved_level3_sample1"


@pytest.mark.parametrize(
    ("suffix", "category", "changes"),
    [
        ("", "", {}),
        ("_view_71_15_100_0_0_initstate_0", "Camera Viewpoints", {"view": View(horizontal=71, vertical=15)}),
        ("_view_0_0_100_0_0_initstate_88", "Robot Initial States", {"robot": 88}),
        (f"_language_3_{UNSEEN}", "Language Instructions", {"problem": f"{BASE}_language_3"}),
        ("_light_7", "Light Conditions", {"problem": f"{BASE}_light_7"}),
        ("_table_2", "Background Textures", {"problem": f"{BASE}_table_2"}),
        (f"_{UNSEEN}_noise_6", "Sensor Noise", {"noise": 6}),
        ("_add_4", "Objects Layout", {"problem": f"{BASE}_add_4", "states": f"{BASE}_add_4"}),
        ("_moved_level3_sample1", "Objects Layout", dict.fromkeys(("problem", "states"), MOVED)),
    ],
)
def test_a_name_says_what_is_perturbed(suffix, category, changes):
    parts = read_name(f"{BASE}{suffix}")
    assert (parts.base, parts.category) == (BASE, category)
    unchanged = {"problem": BASE, "states": BASE, "view": View(), "robot": 0, "noise": 0}
    assert {name: getattr(parts, name) for name in unchanged} == {**unchanged, **changes}


def test_arm_poses_are_the_published_ones(golden):
    with np.load(golden / "libero_plus_tables.npz") as tables:
        np.testing.assert_array_equal([arm_pose(robot) for robot in range(501)], tables["robot_init_qpos"])


def test_cameras_are_the_published_ones(golden):
    """Given LIBERO's of each room."""
    table = ([0.6586131746834771, 0, 1.6103500240372423], [0.6380177736282349, 0.3048497438430786])
    floor = ([0.8965773716836134, 5.216182733499864e-07, 0.65], [0.6182166934013367, 0.3432307541370392])
    table[1].extend([0.30484986305236816, 0.6380177736282349])
    floor[1].extend([0.3432314395904541, 0.6182177066802979])
    with np.load(golden / "libero_plus_rollouts.npz") as recorded:
        episodes = [name.removesuffix(".task") for name in recorded.files if name.endswith(".task")]
        seen = 0
        for episode in episodes:
            name, suite = str(recorded[f"{episode}.task"]), episode.partition(".")[0]
            if suite == "libero_10" and not name.startswith("KITCHEN"):
                continue
            position, quaternion = camera_pose(
                read_name(name).view, *map(np.array, floor if suite == "libero_object" else table)
            )
            quaternion /= np.linalg.norm(quaternion)
            camera = f"{episode}.camera.agentview"
            np.testing.assert_array_equal(position, recorded[f"{camera}.pos"])
            np.testing.assert_allclose(quaternion, recorded[f"{camera}.quat"], rtol=0, atol=1e-15)
            seen += 1
    assert seen >= 15


def test_noise_equals_the_published_code_s_in_every_pixel_and_draws_as_many_numbers(golden):
    with np.load(golden / "libero_plus_rollouts.npz") as recorded:
        arrays = {name.removeprefix("noise."): recorded[name] for name in recorded if "noise." in name}
    assert list(arrays["noise"]) == list(noise.SETTINGS)
    for name, computed in parity._noisy(arrays).items():
        np.testing.assert_array_equal(computed, arrays[name], err_msg=name)


def test_noise_is_a_function_of_episode_and_step_and_not_of_what_was_rendered():
    clean = np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8)
    often, seldom, other = (noise.SensorNoise(6, 64, digest=digest) for digest in (1, 1, 2))
    shown = [often.apply(clean)]
    for _ in range(3):
        for each in (often, seldom, other):
            each.step()
        shown += [often.apply(clean)]
    np.testing.assert_array_equal(often.apply(clean), seldom.apply(clean))
    assert len({picture.tobytes() for picture in [clean, *shown, other.apply(clean)]}) == 6


def _told(suite: str, choice: str, **how) -> dict[str, str]:
    opened = open_suite(suite, environment={"plus_instruction": choice}, **how)

    def told(task_id: int) -> str:
        key = EpisodeKey(suite=suite, task_id=task_id, init_id=0, seed=7)
        return opened.instruction(key, "benchmark")

    return {task.name: told(task.task_id) for task in opened.tasks()}


VANILLA = BASE.replace("_", " ")
LOWER = "lift the dark bowl"


def test_the_policy_is_told_what_was_chosen_and_a_paraphrase_in_any_case(small_copy, standins):
    tree = str(standins.path)
    vanilla = list(_told(SUITES[0], "vanilla", assets=tree).values())
    assert vanilla == [VANILLA, VANILLA, LOWER, *[VANILLA] * 5]
    bddl = list(_told(SUITES[0], "bddl", assets=tree).values())
    own = "pick the akita black bowl from table center and place it on the plate"
    assert bddl == [own, own, LOWER, *[own] * 5]
    published = list(_told(SUITES[0], "published", assets=tree).values())
    assert published == [
        *(f"{VANILLA} view 71 15 100 0 0 initstate 0", f"{VANILLA} view 0 0 100 0 0 initstate 88", LOWER),
        *(f"{VANILLA} light 7", f"{VANILLA} table 2", f"{VANILLA} view 0 0 100 0 0 initstate 0 noise 6"),
        *(f"{VANILLA} level2 sample1", f"{VANILLA} add 4"),
    ]
    assert PARAPHRASE.lower() != LOWER, "the parser of BDDL collapses spaces"


def test_the_choices_are_in_the_protocol_and_an_unknown_one_is_refused(small_copy):
    suite = open_suite(SUITES[0], assets="standins", environment={"plus_noise": "published"})
    assert suite.protocol.environment == {"plus_instruction": "vanilla", "plus_noise": "published"}
    assert suite.describe("benchmark")["benchmark"]["name"] == "LIBERO-plus"
    with pytest.raises(UsageError, match=r"plain.*environment of suite libero_plus_spatial"):
        open_suite(SUITES[0], assets="standins", environment={"plus_instruction": "plain"})


def test_a_changed_copy_has_another_digest(small_copy):
    def digest():
        return open_suite(SUITES[0], assets="standins").describe("benchmark")["benchmark"]["digest"]

    def code():
        definitions.code_digest.cache_clear()
        return open_suite(SUITES[0], assets="standins").describe("benchmark")["benchmark"]["code"]

    before, own = digest(), code()
    file = small_copy / "envs/objects/custom_objects.py"
    file.write_text(file.read_text().replace("0.0005", "0.5"))
    assert code() != own
    file = small_copy / "bddl_files/libero_spatial" / f"{BASE}_light_7.bddl"
    file.write_text(file.read_text() + "\n")
    assert digest() != before


def test_what_is_added_to_the_originals_counts_in_perturbed_suites_alone(small_copy, tmp_path):
    tree = tmp_path / "tree"

    def digests(*suites):
        return [open_suite(suite, assets=str(tree)).assets.digest for suite in suites]

    tree.symlink_to(assets.installed_assets().path)
    (plain,) = set(digests(SUITES[0], "libero_spatial"))
    tree.unlink()
    shutil.copytree(assets.installed_assets().path, tree, copy_function=os.symlink)
    found = []
    for xml in ("<mujoco/>", "<mujoco></mujoco>"):
        write(tree / "new_objects/soda/soda.xml", xml)
        perturbed, own = digests(SUITES[0], "libero_spatial")
        assert own == plain
        found.append(perturbed)
    assert len({plain, *found}) == 3


def test_a_problem_that_does_not_parse_is_named_with_its_line(small_copy):
    file = small_copy / "bddl_files/libero_spatial" / f"{BASE}.bddl"
    text = file.read_text()
    suite = open_suite(SUITES[0], assets="standins")
    file.write_text(text.replace("(:goal\n", "(:goal (\n"))
    with pytest.raises(UsageError, match=rf"{BASE}.bddl, line 1: expected a \) for the \( in this line"):
        suite.check(suite.tasks()[:1])
    file.write_text(text.replace(":language", ":tongue"))
    with pytest.raises(UsageError, match=rf"{BASE}.bddl, line 1: expected \(:language …\)"):
        open_suite(SUITES[0], assets="standins", environment={"plus_instruction": "bddl"})


def test_tasks_whose_assets_are_missing_are_refused_by_name_with_the_number_of_the_others(
    small_copy, plus_assets
):
    suite = open_suite(SUITES[0], assets="standins")
    lacking = {task.task_id: task.missing for task in suite.tasks() if task.missing}
    assert {task_id: missing.split(" of ")[0] for task_id, missing in lacking.items()} == {
        LIGHT: "scenes/lights/dim.xml",
        TEXTURE: "textures/tiny.png",
        ADD: "can_of_soda__1",
    }
    said = "needs scenes/lights/dim.xml .*2 others.* --only-available plays the 5 of 8 tasks"
    with pytest.raises(UsageError, match=rf"task 3, {BASE}_light_7, {said}"):
        suite.check(suite.tasks())
    suite.check(task for task in suite.tasks() if not task.missing)
    with_theirs = open_suite(SUITES[0], assets=str(plus_assets)).tasks()
    assert [task.task_id for task in with_theirs if task.missing] == [TEXTURE]


@pytest.fixture
def opened(small_copy, plus_assets):
    """Opens a task of the small copy and lets it settle."""
    with contextlib.ExitStack() as stack:

        def begun(task_id: int, *, settle_steps: int = 2, **environment):
            suite = open_suite(SUITES[0], assets=str(plus_assets), camera_size=64, environment=environment)
            world = stack.enter_context(contextlib.closing(suite.open(suite.tasks()[task_id])))
            world.reset(init_id=0, seed=7, settle_steps=settle_steps)
            return world

        yield begun


def test_each_perturbation_changes_its_own_thing(opened):
    plain, pictures = opened(LEVEL), {}
    clean = plain.observe()
    for task_id in (CAMERA, ROBOT, LIGHT, NOISE):
        world = opened(task_id)
        seen = world.observe()
        assert np.array_equal(world.flat_state(), plain.flat_state()) == (task_id != ROBOT)
        pictures[task_id] = seen.images["image"]
        changed = not np.array_equal(seen.images["wrist_image"], clean.images["wrist_image"])
        assert changed == (task_id in (ROBOT, LIGHT)), "camera and noise are of agentview alone"
    shown = [clean.images["image"], *pictures.values()]
    assert len({picture.tobytes() for picture in shown}) == 5
    assert pictures[LIGHT].mean() < clean.images["image"].mean() - 20


def test_another_arm_pose_stays_in_the_controller_and_not_in_the_joints(opened):
    plain, world = opened(LEVEL, settle_steps=0), opened(ROBOT, settle_steps=0)
    np.testing.assert_array_equal(world.flat_state(), plain.flat_state())
    controller = world.env.robots[0].controller
    np.testing.assert_array_equal(controller.initial_joint, arm_pose(88))
    world.advance(np.tile(SETTLE_ACTION, (10, 1)))
    plain.advance(np.tile(SETTLE_ACTION, (10, 1)))
    assert np.abs(world.flat_state() - plain.flat_state())[1:8].max() > 0.02


def test_an_added_object_is_the_copy_s_and_libero_s_own_classes_stay(opened):
    from libero.libero.envs.base_object import OBJECTS_DICT

    before = {name: kind for name, kind in OBJECTS_DICT.items() if name != "can_of_soda__1"}
    world = opened(ADD, settle_steps=0)
    assert "can_of_soda__1_1" in world.env.objects_dict
    assert before.items() <= OBJECTS_DICT.items()


@pytest.mark.slow
def test_a_perturbed_suite_conforms(small_copy, standins):
    suite = open_suite(SUITES[0], assets=str(standins.path), camera_size=64)
    check_suite(suite, task_ids=(CAMERA, ROBOT, NOISE))


@pytest.mark.slow
def test_published_draws_go_on_from_the_reset_as_in_libero_s_environment(opened, plus_assets):
    world = opened(NOISE, settle_steps=3, plus_noise="published")
    seen, size = world.observe().images["image"], {"camera_heights": 64, "camera_widths": 64}
    with assets.use_assets(plus_assets):
        usual = assets.load_libero().OffScreenRenderEnv(bddl_file_name=str(world.task.bddl_file), **size)
        with contextlib.closing(usual):
            usual.seed(7)
            usual.reset()
            noise.draw(6, (64, 64), np.random.mtrand._rand)
            usual.set_init_state(tasks.get_init_state(world.task, 0))
            for _ in range(3):
                usual.step(SETTLE_ACTION)
                drawn = noise.draw(6, (64, 64), np.random.mtrand._rand)
    clean = opened(LEVEL, settle_steps=3)
    Perturbation(view=View()).apply(clean.env, "agentview")
    picture = noise.apply(6, np.ascontiguousarray(clean.observe().images["image"][::-1, ::-1]), drawn)
    np.testing.assert_array_equal(seen, picture[::-1, ::-1])


def test_a_truncated_state_file_and_a_folder_of_something_else_are_one_line(
    small_copy, monkeypatch, tmp_path
):
    file = small_copy / "init_files/libero_spatial" / f"{BASE}.pruned_init"
    file.write_bytes(file.read_bytes()[:1000])
    suite = open_suite(SUITES[0], assets="standins")
    with pytest.raises(UsageError, match=r"pruned_init holds no initial states"):
        suite.init_ids(suite.tasks()[0])
    (tmp_path / "other").mkdir()
    for place, complaint in (("other", "holds no benchmark/"), ("none", "not a folder")):
        monkeypatch.setenv(LIBERO_PLUS.variable, str(tmp_path / place))
        with pytest.raises(UsageError, match=rf"--libero-plus .*{complaint}.*oxygen-eval setup libero-plus"):
            open_suite(SUITES[0], assets="standins")


@pytest.mark.parametrize("suite", SUITES)
def test_the_list_is_the_published_one(plus_copy, golden, suite):
    listed = open_suite(suite, assets="standins").tasks()
    with np.load(golden / "libero_plus_tables.npz") as tables:
        of = suite.replace("libero_plus_", "libero_")
        assert [task.name for task in listed] == str(tables[f"tasks.{of}"]).split("\n")
        names = [str(name) for name in tables["category_names"]]
        assert [task.category for task in listed] == [names[number] for number in tables[f"category.{of}"]]
        if (plus_copy / "benchmark/task_classification.json").is_file():
            assert [task.difficulty or 0 for task in listed] == list(tables[f"difficulty.{of}"])


AVAILABLE = {"spatial": 1644, "object": 1827, "goal": 1791, "10": 1783}
"""Tasks that need nothing but LIBERO's own assets: 7,045 of 10,030."""


@pytest.mark.parametrize(("suite", "number"), AVAILABLE.items())
def test_7045_tasks_need_libero_s_own_assets_alone(plus_copy, originals, suite, number):
    listed = open_suite(f"libero_plus_{suite}", assets=str(originals.path)).tasks()
    available = collections.Counter(task.category for task in listed if not task.missing)
    assert available.total() == number
    assert CATEGORIES[3] not in available, "lights"


@pytest.mark.slow
@pytest.mark.parametrize("suite", SUITES)
def test_every_instruction_is_what_the_published_code_says(plus_copy, suite):
    """Its own function, taken from the copy, with LIBERO's parser of BDDL."""
    listed, of = open_suite(suite, assets="standins").tasks(), suite.replace("plus_", "")
    source = ast.parse((plus_copy / "benchmark/__init__.py").read_text())
    names = {"os": os, "get_libero_path": lambda _: str(plus_copy / "bddl_files"), "BDDLUtils": _Parser}
    function = [node for node in source.body if getattr(node, "name", "") == "grab_language_from_filename"]
    exec(compile(ast.Module(function, []), "benchmark", "exec"), names)  # noqa: S102
    expected = {task.name: names["grab_language_from_filename"](of, f"{task.name}.bddl") for task in listed}
    assert _told(suite, "published", assets="standins") == expected
    vanilla, bddl = (_told(suite, choice, assets="standins") for choice in ("vanilla", "bddl"))
    originals = {task.language for task in tasks.list_tasks(of)}
    for task in listed:
        assert bddl[task.name] == _Parser.get_problem_info(task.bddl_file)["language_instruction"]
        if task.category == CATEGORIES[2]:
            assert vanilla[task.name] == bddl[task.name] == expected[task.name]
        else:
            assert vanilla[task.name] in originals
            assert re.match(rf"{vanilla[task.name]} \w", expected[task.name])


class _Parser:
    @staticmethod
    def get_problem_info(file):
        assets.load_libero()
        from libero.libero.envs.bddl_utils import get_problem_info

        return get_problem_info(str(file))


@pytest.mark.slow
def test_recorded_episodes_of_the_published_code_are_equal(plus_copy, golden, reference_assets, capsys):
    if not pin_kernels():
        pytest.skip("this CPU cannot run the kernels that the reference was made with (AVX-512)")
    file = golden / "libero_plus_rollouts.npz"
    assert parity.main([str(file), "--assets", str(reference_assets)]) == 0, capsys.readouterr().out


def test_instructions_are_read_as_libero_s_parser_reads_them(small_copy, standins):
    for task in open_suite(SUITES[0], assets=str(standins.path)).tasks():
        assert instruction_in(task.bddl_file) == " ".join(read_problem(task)["language_instruction"])


@pytest.mark.slow
@pytest.mark.timeout(10_800)
@pytest.mark.usefixtures("plus_copy")
@pytest.mark.parametrize("suite", SUITES)
def test_every_scene_opens_and_begins_as_stored(originals, suite):
    """Cameras, arms, noise and words are the same of 798; with `OXYGEN_EVERY_TASK`, all 7,045 tasks."""
    opened = open_suite(suite, assets=str(originals.path))
    available = [task for task in opened.tasks() if not task.missing]
    scenes = {(without_words(task.bddl_file), task.states_file): task for task in available}
    for number, task in enumerate(available if os.environ.get("OXYGEN_EVERY_TASK") else scenes.values()):
        if number % 10 == 0:
            gc.collect()  # closing a simulator does not, in tests
        with opened.open(task) as sim:
            sim.reset(init_id=0, seed=7, settle_steps=1)
            sim.reset(init_id=0, seed=7, settle_steps=0)
            np.testing.assert_array_equal(sim.flat_state(), tasks.get_init_state(task, 0), err_msg=task.name)
            assert not sim.env._check_success(), task.name


def without_words(bddl):
    return re.sub(r"\(:language [^()]*\)", "", bddl.read_text())
