"""The command line, the workloads that it describes, and the shapes that a configuration is served with."""

import dataclasses
import os
import pkgutil
import shlex
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

import eval.bench
from contracts.errors import UsageError
from contracts.mode import Mode
from eval.bench.__main__ import main
from eval.bench.options import read, workloads_of
from eval.bench.serving import Bench, sizes_of
from eval.bench.workloads import BenchConfiguration, max_queries_per_text, parse_arrivals, running_texts
from oxygen.serving.language import Burst, EveryN, Poisson, RandomLength
from oxygen.serving.runner import ProgramSizes
from tests.commands import IMPORT_WITHOUT, ROOT, execute
from tests.eval.bench.conftest import MODEL, workload


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--mode", "unified"], "'--modes'"),
        (["--modes", "unifed"], "'unified'"),
        (["--robots", "0"], "at least 1"),
        (["--deadline-ms", "soon"], "'soon' is not a number"),
        (["--deadline-ms", "50", "--tokens-per-frame", "1"], "leave out --tokens-per-frame"),
        (["--arrivals", "evry:1"], "every:QUERIES"),
        (["--text-tokens", "30", "--arrivals", "every:1@8-40"], "up to 40 tokens"),
        (["--dtype", "float16"], "bfloat16"),
        (["--policy", "smal"], "'small'"),
        (["--policy", "expert"], "no model"),
        (["--prompt-tokens", "999"], "999"),
        (["--prompt-tokens", "2"], "at least 3"),
        (["stray"], "stray"),
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
    assert (out, err[:7], err.count("\n")) == ("", "error: ", 1)
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
    for spelled in ("1 5", "1,5", "1 --tokens-per-frame 5", "1,5 --tokens-per-frame=1"):
        assert read(["--tokens-per-frame", *spelled.split()]).tokens_per_frame == (1, 5)
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


def test_commands_of_the_documentation_are_accepted():
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    lines = [line for page in pages for line in page.read_text(encoding="utf-8").splitlines()]
    given = [shlex.split(line, comments=True) for line in lines if line.startswith("oxygen-eval bench ")]
    assert len(given) >= 6
    for _, _, *arguments in given:
        read(arguments)


_ABSENT = (
    "mujoco robosuite libero gymnasium bddl imageio pydantic cyclopts matplotlib psutil sentencepiece "
    "PIL jaxtyping beartype hypothesis jinja2"
)
_PROGRAM = f"""{IMPORT_WITHOUT}
from eval.bench.__main__ import main
sys.exit(main(["--policy", "tiny"]))
"""


def test_every_module_imports_with_only_the_policys_packages():
    """And a preset that takes one more is refused with the way around it."""
    modules = [module.name for module in pkgutil.walk_packages(eval.bench.__path__, "eval.bench.")]
    modules += [f"benchmarks.{name}" for name in ("roofline", "endurance", "oxygen_reference.__main__")]
    done = execute(sys.executable, "-W", "error", "-c", _PROGRAM, _ABSENT, " ".join(modules))
    assert done.stderr.count("\n") == 1, done.stderr
    assert done.returncode == 2
    assert "needs pydantic" in done.stderr
    assert "--random-weights" in done.stderr


def test_arrivals_are_parsed():
    assert parse_arrivals("every:1") == EveryN(1)
    assert parse_arrivals("burst:4:8") == Burst(n=4, every=8)
    assert parse_arrivals("poisson:0.5") == Poisson(rate=0.5, seed=7)
    some = RandomLength(arrivals=EveryN(2), min_tokens=8, max_tokens=30, seed=7)
    assert parse_arrivals("every:2@8-30") == some


@pytest.mark.parametrize(
    ("text", "said"),
    [
        *((text, "every:QUERIES") for text in ("evry:1", "every", "burst:4", "poisson:often", "every:1@8")),
        ("every:0", "at least 1"),
        ("poisson:0", "above 0"),
        ("poisson:1e19", "at most 32768"),
        ("every:1@30-8", "max_tokens"),
    ],
)
def test_invalid_arrivals_are_refused_with_their_syntax(text, said):
    with pytest.raises(UsageError, match=said) as refused:
        parse_arrivals(text)
    assert repr(text) in str(refused.value)


@given(
    arrivals=st.sampled_from(["every:1", "every:3", "burst:4:8", "poisson:0.7", "poisson:1.2@2-17"]),
    robots=st.integers(1, 3),
    k=st.integers(1, 17),
)
def test_the_texts_at_once_are_those_of_a_count_query_by_query(arrivals, robots, k):
    asked, queries = workload(arrivals, text_tokens=17, robots=robots), 40
    most = 0
    for robot in range(robots):
        left = []
        for query in range(queries):
            left += asked.lengths(robot, query)
            most = max(most, len(left))
            left = [tokens - k for tokens in left if tokens > k]
    assert running_texts(asked, k, queries) == most


@pytest.mark.parametrize(
    ("mode", "k", "queries"), [("unified", 1, 6), ("interleaved", 4, 2), ("shared", None, 1)]
)
def test_a_text_takes_as_many_queries_as_it_has_shares_of_tokens(mode, k, queries):
    configuration = BenchConfiguration(mode=Mode(mode), tokens_per_frame=k)
    assert max_queries_per_text(workload(text_tokens=6), configuration) == queries


def sizes(asked, mode, k=None) -> ProgramSizes:
    return sizes_of(asked, BenchConfiguration(mode=Mode(mode), tokens_per_frame=k))


@pytest.mark.parametrize(
    ("asked", "mode", "k", "slots", "rows", "forks"),
    [
        *(({}, "unified", k, texts, (texts,), 1) for k, texts in ((1, 30), (2, 15), (5, 6), (30, 1))),
        *(({}, mode, None, 1, (1,), 1) for mode in ("actions", "isolated", "shared", "parallel")),
        ({}, "interleaved", 12, 3, (1,), 1),
        # Texts requested together have a slot each, even if they are decoded one by one.
        ({"arrivals": "burst:4:8", "robots": 2}, "isolated", None, 8, (2,), 2),
        ({"arrivals": "burst:4:8", "robots": 2}, "shared", None, 8, (2, 8), 8),
        ({"arrivals": "burst:4:8", "robots": 2}, "actions", None, 2, (2,), 2),
    ],
)
def test_a_configuration_has_the_slots_rows_and_forks_that_it_can_fill(asked, mode, k, slots, rows, forks):
    size = sizes(workload(**asked), mode, k)
    assert (size.slots, size.rows, size.forks) == (slots, rows, (forks,))


@pytest.mark.slow
@pytest.mark.usefixtures("compiled_soon")
def test_pools_of_several_sizes_share_prefill_and_denoise():
    bench = Bench(MODEL)
    small = sizes(workload(text_tokens=4), "unified", 4)
    large = dataclasses.replace(small, slots=3, rows=(3,))
    runners = bench.runners(1, [small, large])
    one, other = (runners[size].programs for size in (small, large))
    assert one.prefill is other.prefill
    assert one.denoise is other.denoise
    assert one.fork is not other.fork
    assert bench.runners(1, [large])[large] is runners[large], "kept for the next workload"


BURST = {
    ("actions", None): [],
    ("isolated", None): [(1, 6, 1)] * 2,
    ("interleaved", 2): [(1, 2, 1)] * 2,
    ("shared", None): [(0, 6, 2)],
    ("unified", 2): [(0, 2, 4)],
}
"""Prefills, decode steps and batch of each job, where two texts of six tokens are requested at once."""


@pytest.mark.slow
@pytest.mark.usefixtures("compiled_soon")
def test_a_query_reports_the_programs_that_it_runs():
    """Predictions are sums of their times."""
    burst = workload("burst:2:2", text_tokens=6, queries=4, repetitions=1, warm_up_queries=0)
    asked = [BenchConfiguration(mode=Mode(mode), tokens_per_frame=k) for mode, k in BURST]
    with Bench(MODEL).prepare(burst, asked) as runners:
        for runner, jobs in zip(runners, BURST.values(), strict=True):
            first, *_ = run = runner.run(4)
            assert [(job.prefills, job.steps, job.batch) for job in first.work] == jobs
            if runner.configuration.mode is Mode.ISOLATED:
                assert [len(query.request_ms) for query in run] == [2, 0, 2, 0]
