"""A small LIBERO-plus: one vanilla task, perturbed in every way, with what it needs."""

import io
import pickle
import shutil
import zipfile
from pathlib import Path

import numpy as np

from sim_envs.libero.tasks import get_task, init_states

BASE = "pick_up_the_black_bowl_from_table_center_and_place_it_on_the_plate"
"""The vanilla task of the small copy, whose name looks like a perturbed table's."""
PARAPHRASE = "Lift the dark   bowl"
UNSEEN = "view_0_0_100_0_0_initstate_0"

_PROBLEMS = """
class Libero_Tabletop_Manipulation(BDDLBaseDomain):
    pass
class Libero_Tabletop_Manipulation_tabletop_light_sync_modified_5(Libero_Tabletop_Manipulation):
    def __init__(self, *args, **kwargs):
        if "scene_xml" not in kwargs:
            kwargs.update({"scene_xml": "scenes/lights/dim.xml"})
class Libero_Tabletop_Manipulation_Floordark(Libero_Tabletop_Manipulation):
    def __init__(self, *args, **kwargs):
        kwargs.update({"scene_properties": {"floor_style": "tiny", "wall_style": "light-gray-plaster"}})
"""
_OBJECTS = """
from libero.libero.envs.base_object import register_object
absolute_path = "/nowhere"
class CustomObjects(MujocoXMLObject):
    def __init__(self, custom_path, name, obj_name):
        joints = [dict(type="free", damping="0.0005")]
        how = {"obj_type": "all", "duplicate_collision_geoms": False}
        super().__init__(custom_path, name=name, joints=joints, **how)
        self.category_name = "can_of_soda_1"
        self.object_properties = {"vis_site_names": {}}
@register_object
class CanOfSoda_1(CustomObjects):
    def __init__(self, name="can_of_soda__1", obj_name="can_of_soda__1"):
        custom_path = os.path.join(str(absolute_path), f"assets/new_objects/soda/soda.xml")
        super().__init__(custom_path=custom_path, name=name, obj_name=obj_name)
        self.rotation = (0.0, 0.0)
        self.rotation_axis = "z"
"""


def write_small_copy(folder: Path) -> Path:
    """Writes it as a checkout into a folder; returns the folder with its data."""
    copy, vanilla = folder / "libero" / "libero", get_task("libero_spatial", 2)
    assert vanilla.name == BASE
    bddl = vanilla.bddl_file.read_text()
    soda = bddl.replace("plate_1 - plate", "plate_1 - plate\n    can_of_soda__1_1 - can_of_soda__1")
    scene = "(problem LIBERO_Tabletop_Manipulation"
    files = {
        BASE: bddl,
        f"{BASE}_language_3": _said(bddl, PARAPHRASE),
        f"{BASE}_light_7": bddl.replace(scene, f"{scene}_tabletop_light_sync_modified_5"),
        f"{BASE}_table_2": bddl.replace(scene, f"{scene}_Floordark"),
        f"{BASE}_level2_sample1": bddl,
        f"{BASE}_add_4": soda.replace("(:init", "(:init\n    (On can_of_soda__1_1 main_table_table_front)"),
    }
    for stem, text in files.items():
        write(copy / "bddl_files" / "libero_spatial" / f"{stem}.bddl", text)
    names = [
        *(f"{BASE}_view_71_15_100_0_0_initstate_0", f"{BASE}_view_0_0_100_0_0_initstate_88"),
        *(f"{BASE}_language_3_{UNSEEN}", f"{BASE}_light_7", f"{BASE}_table_2"),
        *(f"{BASE}_{UNSEEN}_noise_6", f"{BASE}_level2_sample1", f"{BASE}_add_4"),
    ]
    write(copy / "benchmark/libero_suite_task_map.py", f"libero_task_map = {{'libero_spatial': {names}}}")
    states = init_states(vanilla)
    base = copy / "init_files" / "libero_spatial" / f"{BASE}.pruned_init"
    base.parent.mkdir(parents=True)
    shutil.copy(vanilla.states_file, base)
    layouts = copy / "init_files/libero_newobj/libero_spatial"
    _save_states(layouts / f"{BASE}_level2_sample1.pruned_init", states[0])
    _save_states(layouts / f"{BASE}_add_4.pruned_init", np.concatenate([states[0], np.zeros(13)]))
    write(copy / "envs/problems/libero_tabletop_manipulation.py", _PROBLEMS)
    write(copy / "envs/objects/custom_objects.py", _OBJECTS)
    walls = {"light-gray-plaster": "light-gray-plaster.png"}
    styles = {"floor": {"tiny": "tiny.png"}, "wall": walls}
    write(copy / "envs/arenas/style.py", f"STYLE_MAPPING = {styles}")
    return copy


def _said(bddl: str, words: str) -> str:
    head, _, rest = bddl.partition("(:language")
    return f"{head}(:language {words}){rest.partition(')')[2]}"


def write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def _save_states(file: Path, states: np.ndarray) -> None:
    """As torch saves one pickled array."""
    file.parent.mkdir(parents=True, exist_ok=True)
    pickled = io.BytesIO()
    pickle.dump(states, pickled, protocol=2)
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("archive/data.pkl", pickled.getvalue())
