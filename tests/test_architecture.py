"""The rules of `scripts/check_architecture.py` hold, and it finds violations."""

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
_SPEC = importlib.util.spec_from_file_location("check_architecture", ROOT / "scripts/check_architecture.py")
architecture = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(architecture)


def test_only_its_own_modules_name_libero():
    assert architecture.check(ROOT, libero_exceptions=architecture.LIBERO_EXCEPTIONS) == []


def violations(tmp_path, files, *, libero=()):
    for path, text in files.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    return architecture.check(tmp_path, libero_exceptions=frozenset(libero))


@pytest.mark.parametrize(
    "code", ["from sim_envs.libero import sim\n", 'x = "libero"\n', "def f(libero):\n    pass\n"]
)
def test_code_that_names_libero_is_found(tmp_path, code):
    assert violations(tmp_path, {"eval/a.py": code}) == ["eval/a.py: code that names LIBERO"]
    assert violations(tmp_path, {}, libero=["eval/a.py"]) == []


def test_its_own_modules_docstrings_and_comments_may_name_it(tmp_path):
    said = '"""About LIBERO."""\n\nx = 1  # as LIBERO has it\n"""LIBERO again."""\n'
    files = {"eval/a.py": said, "sim_envs/libero/b.py": "libero = 1\n", "eval/libero.py": "libero = 1\n"}
    assert violations(tmp_path, files) == []


def test_an_exception_that_is_no_longer_needed_is_found(tmp_path):
    left = violations(tmp_path, {"eval/a.py": "x = 1\n"}, libero=["eval/a.py"])
    assert [line.split(":")[0] for line in left] == ["eval/a.py"]
