"""What the documentation shows runs as it is written."""

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
_BLOCK = re.compile(r"^```(?:python|yaml)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"# (\S+\.(?:py|yaml))\n")


def test_worlds_are_added_as_the_documentation_says(tmp_path):
    """Blocks that begin with a file's name become that file; the others are run, one after the other."""
    program = []
    for block in _BLOCK.findall((ROOT / "docs/worlds.md").read_text()):
        named = _FILE.match(block)
        if named:
            (tmp_path / named[1]).write_text(block)
        else:
            program.append(block)
    assert len(program) == 3
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", "\n".join(program)],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "False reach the red ball with the fingertip\n"
