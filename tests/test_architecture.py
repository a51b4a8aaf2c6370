"""Only LIBERO's own modules name it; comments and docstrings may."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
ITS_OWN = ("sim_envs/libero/", "eval/libero.py")
EXCEPTIONS = {
    "eval/__main__.py",  # the command
    "eval/records/provenance.py",  # the version of its package
    "eval/rollout/preflight.py",  # whether it is installed
    "eval/setup.py",  # installs it
    "eval/train/__main__.py",  # the default robot
    "eval/train/training.py",
}
"""Other files whose code may name it."""


def names_libero(text: str) -> bool:
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(body := getattr(node, "body", None), list):
            said = [each for each in body if isinstance(getattr(each, "value", None), ast.Constant)]
            node.body = [each for each in body if not (isinstance(each, ast.Expr) and each in said)]
    return "libero" in ast.unparse(tree).lower()


def test_only_its_own_modules_name_libero():
    """An exception that is no longer needed is an error, too."""
    files = [
        path for name in ("configs", "eval", "sim_envs", "videos") for path in (ROOT / name).rglob("*.py")
    ]
    named = {path.relative_to(ROOT).as_posix() for path in files if names_libero(path.read_text())}
    assert {name for name in named if not name.startswith(ITS_OWN)} == EXCEPTIONS


@pytest.mark.parametrize(
    ("code", "named"),
    [
        ("from sim_envs.libero import sim\n", True),
        ('x = "LIBERO"\n', True),
        ("def f(libero):\n    pass\n", True),
        ('"""About LIBERO."""\n\nx = 1  # as LIBERO has it\n"""LIBERO again."""\n', False),
    ],
)
def test_code_is_told_from_comments_and_docstrings(code, named):
    assert names_libero(code) == named
