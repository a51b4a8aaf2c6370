"""The command line: spellings of lists, one-line errors, and imports with the policy's packages alone."""

import os
import pkgutil
import subprocess
import sys

import pytest

import eval.bench
from eval.bench.__main__ import main
from eval.bench.options import read, workloads_of


@pytest.mark.parametrize(
    "arguments",
    [
        ["--tokens-per-frame", "1", "5"],
        ["--tokens-per-frame", "1,5"],
        ["--tokens-per-frame", "1", "--tokens-per-frame", "5"],
        ["--tokens-per-frame=1, 5", "--tokens-per-frame", "1"],
    ],
)
def test_all_spellings_of_a_list_are_equal(arguments):
    assert read(arguments).tokens_per_frame == (1, 5)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--mode", "unified"], "'--modes'"),
        (["--modes", "unifed"], "'unified'"),
        (["--robots", "0"], "at least 1"),
        (["--deadline-ms", "soon"], "'soon'"),
        (["--deadline-ms", "50", "--tokens-per-frame", "1"], "leave out --tokens-per-frame"),
        (["--slots", "1", "--robots", "2"], "one for each robot"),
        (["--arrivals", "evry:1"], "every:QUERIES"),
        (["--text-tokens", "30", "--arrivals", "every:1@8-40"], "up to 40 tokens"),
        (["--dtype", "float16"], "bfloat16"),
        (["--policy", "smal"], "'small'"),
        (["--policy", "expert"], "no model"),
        (["--prompt-tokens", "999"], "999"),
        (["--prompt-tokens", "2"], "at least 3"),
        (["stray"], "stray"),
        (["--roofline", "--resume", "--slots", "3"], "--slots, --resume"),
        (["--peaks", "measured"], "--roofline"),
        (["--modes", "shared", "--tokens-per-frame", "2,3"], "--tokens-per-frame 2 3 is for mode unified"),
        (["--modes", "actions,shared", "--deadline-ms", "9"], "--modes is actions shared; leave it out, or"),
        (["--modes", "actions", "--adapter", "exact"], "--adapter exact is for mode isolated or"),
        (["--modes", "actions", "--arrivals", "every:2"], "--arrivals every:2 is for mode"),
        (["--modes", "actions", "--text-tokens", "10", "20"], "--text-tokens 10 20 is for mode"),
        (["--quick", "--resume"], "--output FILE"),
        (["--quick", "--save-profile", "pyproject.toml"], "name it NAME.yaml"),
        (["--quick", "--save-profile", "configs/profiles/h200.yaml"], "exists and is not replaced"),
        (["--modes", "actions", "--save-profile", "mine.yaml"], "needs mode isolated and unified"),
        (["--text-tokens", "10", "30", "--save-profile", "mine.yaml"], "not 2"),
        (["--adapter", "off", "exact", "--save-profile", "mine.yaml"], "not 2"),
        (["--robots", "2", "--save-profile", "mine.yaml"], "not of 2 and every:1"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(arguments, said, capsys):
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert said in err


def test_memory_is_allocated_on_demand_in_all_modes(monkeypatch):
    monkeypatch.setenv("XLA_PYTHON_CLIENT_PREALLOCATE", "true")  # so that it is put back afterwards
    monkeypatch.delenv("XLA_PYTHON_CLIENT_PREALLOCATE")
    assert main(["--policy", "smal"]) == 2
    assert os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] == "false"


def test_the_grid_has_all_combinations_and_k_is_an_axis_of_unified_only():
    asked = (
        "--modes actions isolated unified --denoise-steps 5 10 --text-tokens 4 30 --tokens-per-frame 1 5 40"
    )
    found = workloads_of(read(asked.split()))
    assert [(one.denoise_steps, one.text_tokens) for one, _ in found] == [(5, 4), (5, 30), (10, 4), (10, 30)]
    assert [one.label for one in found[0][1]] == ["actions", "isolated", "unified, k = 1", "unified, k = 4"]
    assert [one.tokens_per_frame for one in found[1][1]] == [None, None, 1, 5, 30]
    ((_, by_deadline),) = workloads_of(read(["--modes", "actions,unified", "--deadline-ms", "50,100.5"]))
    assert [one.label for one in by_deadline] == ["actions", "unified, 50 ms", "unified, 100.5 ms"]
    quick = read(["--quick", "--policy", "small", "--queries", "3"])
    assert (quick.policy, quick.queries) == ("small", 3)
    assert quick.repetitions < read([]).repetitions


def test_help_describes_every_option_and_its_default(capsys):
    with pytest.raises(SystemExit):
        read(["--help"])
    out = " ".join(capsys.readouterr().out.split())
    for name in vars(read([])):
        assert f"--{name.replace('_', '-')} " in out
    assert "tokens of a text; default: 30" in out
    assert "None" not in out


_ABSENT = (
    "mujoco robosuite libero gymnasium bddl imageio pydantic cyclopts matplotlib psutil sentencepiece "
    "PIL jaxtyping beartype hypothesis jinja2"
)
_PROGRAM = """
import importlib, sys
for name in sys.argv[1].split():
    sys.modules[name] = None  # what Python makes of a module that cannot be imported
for name in sys.argv[2].split():
    importlib.import_module(name)
from eval.bench.__main__ import main
sys.exit(main(["--policy", "tiny"]))
"""


def test_every_module_imports_with_only_the_policys_packages():
    """And a preset that takes one more is refused with the way around it."""
    modules = [module.name for module in pkgutil.walk_packages(eval.bench.__path__, "eval.bench.")]
    modules.remove("eval.bench.page")  # left out where its packages are not installed
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", _PROGRAM, _ABSENT, " ".join(modules)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr.count("\n") == 1, done.stderr
    assert done.returncode == 2
    assert "needs pydantic" in done.stderr
    assert "--random-weights" in done.stderr
