"""Copies a checkpoint into the package: its provenance, recorded results and model card."""

import importlib.resources
import math
import re
import shutil
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, NotRequired

from jinja2 import Environment, StrictUndefined
from pydantic import BaseModel, Field
from typing_extensions import TypedDict

from configs.assets import badged
from configs.cli import format_option, ranges
from configs.errors import check
from configs.load import names
from configs.paths import read_json_object
from configs.schema import PolicyConfig, RunConfig
from configs.training import PipelineConfig
from contracts.errors import UsageError
from contracts.hashing import hash_file
from eval.metrics.language import Percentage
from eval.metrics.rows import RunRows
from eval.metrics.statistics import scaled, wilson_95
from eval.policies.resolved import read_policy
from eval.policies.unused_options import unused_in
from eval.records.json_files import write_json
from eval.records.reader import RunRecords, require_runs
from oxygen.model.config import preset
from oxygen.presets.policies import no_checkpoint, read_record
from oxygen.robots.norms import checkpoint_norms
from oxygen.robots.transforms import Prediction, embodiment
from oxygen.training import layout
from oxygen.weights.formats import SINGLE_FILE, open_safetensors
from oxygen.weights.loading import check_parameters
from oxygen.weights.source import CARD, RECORD, TOKENIZER, fetch
from sim_envs.suite import Assets

MANIFEST = "manifest.json"
_BEFORE = "before"  # key in a bundled `training.json` of the previous training's record

_KEY = re.compile(r"^(.+)\.\d+\.(\d+)\.\d{1,10}\.[^.]*\..+$")
"""The key of a demonstration: suite.task.init_id.seed.digest.noise. Suite and noise may have dots."""


_Keys = list[Annotated[str, Field(pattern=_KEY)]]


class _Collected(TypedDict):
    """The fields of a dataset's manifest that are read here."""

    policy: str
    learner: NotRequired[dict[str, Any] | None]
    demonstrations: _Keys
    failed: _Keys
    counts: dict[str, int]
    config: dict[str, Any]
    git: dict[str, str | bool | None]


class DatasetFacts(BaseModel, frozen=True):
    """A dataset of demonstrations, as its own manifest describes it."""

    name: str  # name of its folder
    policy: str  # the demonstrator
    learner: str | None  # the policy that it corrected; None if it played alone
    demonstrations: int  # number of episodes in it
    failures: int  # number of failed episodes; in the dataset, for their texts, only if failures were kept
    keeps_failures: bool  # whether failures were kept
    frames: int  # number of rows
    # Suite to initial states, of failed episodes too; those from 1000 on are sampled.
    init_ids: Mapping[str, tuple[int, ...]]
    commit: str | None  # commit of the code that collected it

    @property
    def demonstrator(self) -> str:
        """Who played, as the card says it."""
        kept = " (failures are kept, for their texts)" if self.keeps_failures else ""
        return self.policy + (f", correcting {self.learner}" if self.learner else "") + kept


class BundleManifest(BaseModel, frozen=True):
    """The `manifest.json` of a bundled checkpoint."""

    files: Mapping[str, str]  # SHA-256 of each file, by its path in the folder
    data: tuple[DatasetFacts, ...]  # the datasets it was trained on


def read_bundle_manifest(folder: Path) -> BundleManifest:
    """The manifest of a bundled checkpoint; damage to it, or to a file that it names, is a UsageError."""
    file = folder / MANIFEST
    manifest = check(BundleManifest, read_json_object(file), source=str(file))
    for path, sha256 in manifest.files.items():
        if not (folder / path).is_file() or hash_file(folder / path) != sha256:
            raise UsageError(f"{folder / path} is not the file that {MANIFEST} names; restore it")
    return manifest


def trainings_of(record: dict[str, Any]) -> list[dict[str, Any]]:
    """The records of all trainings behind a checkpoint, oldest first."""
    return [*(trainings_of(record[_BEFORE]) if _BEFORE in record else []), record]


def unknowns(folder: Path) -> list[str]:
    """Unknown trainings and datasets behind a bundled checkpoint, one line each."""
    trainings = trainings_of(read_record(folder))
    known = {each.name for each in read_bundle_manifest(folder).data}
    start = trainings[0]["start_from"]
    return [
        *([] if start is None else [f"how {start}, from which training began, was trained"]),
        *(f"what is in dataset {name}" for each in trainings for name in each["data"] if name not in known),
    ]


def provenance(checkpoint: Path) -> tuple[dict[str, Any], list[DatasetFacts]]:
    """The record of a checkpoint's training, which contains those before it, and the datasets of all.

    Datasets and checkpoints that are no longer where training found them are left out.
    """
    record = read_record(checkpoint)
    if (checkpoint / MANIFEST).is_file():  # is bundled, and has those before it
        return record, [*read_bundle_manifest(checkpoint).data]
    folders = map(Path, dict.fromkeys(record["data"]))
    data = [_dataset(folder) for folder in folders if (folder / layout.MANIFEST).is_file()]
    before = _start(record["start_from"], checkpoint)
    if before is not None:
        latest, earlier_data = provenance(before)
        own = _identity(record)  # a bundle that has replaced its start has it, and perhaps later ones
        trainings = [*takewhile(lambda each: _identity(each) != own, trainings_of(latest))]
        if trainings:
            record[_BEFORE] = trainings[-1]
            if record[_BEFORE].get("wordings") == record["wordings"]:  # most of a record's size
                del record[_BEFORE]["wordings"]
        used = {name for each in trainings for name in each["data"]}
        data = [*(each for each in earlier_data if each.name in used and each not in data), *data]
    record["data"] = [Path(folder).name for folder in record["data"]]  # no paths of this machine
    for key in {"start_from", "norm_stats"} & set(record):
        if record[key] is not None and "://" not in record[key]:
            record[key] = Path(record[key]).name
    return record, data


def _start(source: str | None, checkpoint: Path) -> Path | None:
    """The checkpoint that training started from, if training wrote it and it still exists."""
    try:
        folder = None if source is None else fetch(source)
    except UsageError:
        return None
    if folder is None or not ((folder / RECORD).is_file() and (folder / SINGLE_FILE).is_file()):
        return None
    return None if folder.samefile(checkpoint) else folder


def _identity(record: Mapping[str, Any]) -> tuple[Any, ...]:
    """Fields that distinguish trainings, with names instead of paths, as in a bundle."""
    paths = (*record["data"], str(record["start_from"]))
    return record["step"], record["recipe"], [Path(path).name for path in paths]


def _dataset(folder: Path) -> DatasetFacts:
    file = folder / layout.MANIFEST
    manifest = check(_Collected, read_json_object(file), source=str(file))
    init_ids = defaultdict[str, set[int]](set)
    for key in [*manifest["demonstrations"], *manifest["failed"]]:
        ((suite, init_id),) = _KEY.findall(key)
        init_ids[suite].add(int(init_id))
    facts = {
        "name": folder.name,
        "policy": Path(manifest["policy"]).name,
        "learner": (manifest.get("learner") or {}).get("policy"),
        **manifest["counts"],
        "keeps_failures": manifest["config"].get("keep_failures", False),
        "init_ids": {suite: tuple(sorted(states)) for suite, states in sorted(init_ids.items())},
        "commit": manifest["git"].get("commit"),
    }
    return check(DatasetFacts, facts, source=str(file))


TEST_STATES = range(500_000, 600_000)
"""Sampled initial states that suites reserve for tests (`test_init_ids`); no demonstrations start in them."""

_FILE = "results.json"
_NOT_OPTIONS = {
    *("mode", "suites", "init_ids", "num_trials_per_task", "assets"),  # fields of a result
    *("random_weights", "video", "video_every"),  # no effect on it
}


class BundledResult(BaseModel, frozen=True):
    """The result of one run on one suite."""

    run_id: str  # the run
    suite: str
    mode: str  # scheduling mode
    assets: Assets  # the asset set
    protocol: str  # hash of the suite's protocol
    init_ids: tuple[int, ...]  # initial states of its episodes; those from 1000 on are sampled
    options: Mapping[str, Any]  # other options that differ from the defaults, by their names in `RunConfig`
    tasks: Mapping[int, tuple[int, int]]  # task id to successful and graded episodes
    n_errors: int  # episodes with errors, which are not graded
    latency_ms: Mapping[str, float]  # stage to median over all queries, milliseconds
    texts: Mapping[str, Mapping[str, Percentage]]  # language task to the grades of its texts at request
    machine: str  # processor, cores and accelerators
    commit: str | None  # commit of the code that ran
    finished: str  # time it finished


class _Results(BaseModel, frozen=True):
    results: tuple[BundledResult, ...]


def read_results(folder: Path) -> tuple[BundledResult, ...]:
    """The results of a bundled checkpoint."""
    file = folder / _FILE
    return check(_Results, read_json_object(file), source=str(file)).results


def write_results(folder: Path, results: Iterable[BundledResult]) -> None:
    """Write the results of a bundled checkpoint in the card's order; of the same run, the last one."""
    last = {(each.suite, each.assets, each.init_ids, each.run_id): each for each in results}
    ordered = sorted(last.values(), key=lambda each: (each.suite, each.assets.name, each.mode, each.finished))
    write_json(folder / _FILE, _Results(results=tuple(ordered)).model_dump(mode="json"))


def results_of(run: RunRecords, *, name: str, predicts: Prediction, weights: str) -> list[BundledResult]:
    """The results of a recorded run, whose options have another preset's name than `name`, if it is of one.

    Raises:
        UsageError: The run is incomplete, of weights with another SHA-256 than `weights`, or of a preset with
            these weights that predicts something else than they do.
    """
    identity, manifest, path = run.identity, run.folder.read_manifest(), run.folder.path
    if identity.status != "complete":
        raise UsageError(f"{path} is {identity.status}; complete it with --resume, or leave it out")
    if identity.weights_sha256 != weights:
        raise UsageError(
            f"{path} is a run of {identity.policy} with other weights than {weights[:12]} "
            f"({identity.weights or 'unknown'}); leave it out, or repeat it with the bundled checkpoint"
        )
    rows, hardware = RunRows(run), manifest["hardware"]
    config, defaults = manifest["config"], RunConfig().model_dump(mode="json")
    left_out = _NOT_OPTIONS | unused_in(config["mode"])
    if config["policy"] == name or config["policy"] not in names(PolicyConfig):
        left_out |= {"policy"}
        acted = manifest["policy_inputs"].get("predicts", Prediction.ACTIONS)
        if acted != predicts:
            raise UsageError(
                f"{path} is a run of {config['policy']}, whose weights predict {acted}, and {name}'s "
                f"{predicts}; leave it out, or repeat it with a preset"
            )
    machine = [hardware["processor"], f"{hardware['cores']} cores", *hardware["accelerators"]]
    return [
        BundledResult(
            run_id=identity.run_id,
            suite=suite,
            mode=identity.mode,
            assets=identity.assets,
            protocol=identity.suite_hashes[suite],
            init_ids=tuple(sorted({key.init_id for key in run.episodes if key.suite == suite})),
            options={
                option: value
                for option, value in config.items()
                if option not in left_out and value != defaults.get(option)
            },
            tasks={
                task.task_id: (task.n_success, task.n_episodes) for task in rows.tasks if task.suite == suite
            },
            n_errors=row.n_errors,
            latency_ms={stage: quantiles.p50 for stage, quantiles in row.latency_ms.items()},
            texts={task: texts.at_request for task, texts in row.texts.items()},
            machine=", ".join(part for part in machine if part != "cpu: cpu"),
            commit=manifest["git"]["commit"],
            finished=manifest["finished"],
        )
        for suite, row in rows.suites.items()
        if row.n_episodes
    ]


CARD_FILE = "MODEL_CARD.md"

_TEMPLATE = importlib.resources.files("eval") / "bundle" / "model_card.md.j2"
_MEASURES = {"narration": ("phase", "object", "target"), "memory": ("f1",), "textual_memory": ("exact",)}
"""Measures of graded language tasks on the card; `results.json` has the others."""


def render(folder: Path) -> str:
    """The model card of the checkpoint bundled in a folder, in Markdown."""
    manifest, record, results = read_bundle_manifest(folder), read_record(folder), read_results(folder)
    demonstrated = {
        (suite, state) for each in manifest.data for suite, of in each.init_ids.items() for state in of
    }
    held_out = all(len(wordings) > 1 for wordings in record["wordings"].values())
    test = [
        result
        for result in results
        if all(state in TEST_STATES for state in result.init_ids)
        and (not held_out or result.options.get("wordings") == "held_out")
        and not demonstrated & {(result.suite, state) for state in result.init_ids}
    ]
    tensors = open_safetensors(folder / SINGLE_FILE).tensors
    environment = Environment(undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters["ranges"] = ranges
    return environment.from_string(_TEMPLATE.read_text(encoding="utf-8")).render(
        name=folder.name,
        parameters=sum(math.prod(tensor.shape) for tensor in tensors.values()),
        weights_file=SINGLE_FILE,
        sha256=manifest.files[SINGLE_FILE],
        record=record,
        noise_scale=preset(str(read_policy(str(folder)).model)).noise_scale,
        data=manifest.data,
        suites=sorted(
            {suite for each in manifest.data if each.name in record["data"] for suite in each.init_ids}
        ),
        trainings=trainings_of(record),
        has_pipeline=folder.name in names(PipelineConfig),
        unknowns=unknowns(folder),
        test_states=TEST_STATES,
        test=[_row(result) for result in test],
        held_out=held_out,
        machines=sorted({result.machine for result in test}),
        has_other_policies=any("policy" in result.options for result in test),
        n_development=len(results) - len(test),
    )


def _row(result: BundledResult) -> dict[str, Any]:
    successes = sum(solved for solved, _ in result.tasks.values())
    episodes = sum(graded for _, graded in result.tasks.values())
    low, high = scaled(wilson_95(successes, episodes), 100) or (0.0, 100.0)
    rates = {task: solved / of for task, (solved, of) in result.tasks.items() if of}
    lowest = min(rates.values())
    weakest = ", ".join(ranges(task for task, rate in rates.items() if rate == lowest))
    texts = []
    for task, measures in _MEASURES.items():
        scores = result.texts.get(task, {})
        shown = ", ".join(f"{each} {scores[each].pc:.1f}" for each in measures if each in scores)
        texts += [f"{task} {shown}"] if task in result.texts else []
    options = [("mode", result.mode), ("init_ids", ranges(result.init_ids)), *sorted(result.options.items())]
    return {
        "suite": result.suite,
        "assets": badged(result.assets.name, result.assets.name),
        "options": " ".join(format_option(name, value) for name, value in options),
        "success": f"{successes} of {episodes}: {100 * successes / episodes:.1f} % ({low:.1f} – {high:.1f})",
        "weakest": f"{weakest}: {100 * lowest:.0f} %",
        "texts": "; ".join(texts) or "–",
        "latency": " / ".join(f"{result.latency_ms[stage]:.0f}" for stage in ("action", "frame")),
    }


MAX_BYTES = 16_000_000
"""Size limit, since every installation of the package downloads it."""


def bundle(checkpoint: Path, runs: Sequence[Path], target: Path) -> None:
    """Write a bundle: the files that serving needs, their manifest, results and the model card.

    `checkpoint` may be `target`, to add results. `runs` are runs of it, or folders of runs; results that
    `target` has of the same weights are kept. `target` is replaced when all is written.

    Raises:
        UsageError: The checkpoint is incomplete, too large, or does not fit its model; or a run is not
            complete, or of other weights; or `target` holds something else.
    """
    if target.is_dir() and any(target.iterdir()) and not (target / MANIFEST).is_file():
        raise UsageError(f"{target} holds other files than a bundle; give another folder")
    served = _served(checkpoint)
    record, data = provenance(checkpoint)
    weights = hash_file(checkpoint / SINGLE_FILE)
    robot = embodiment(str(read_policy(str(checkpoint)).embodiment))
    recorded = [run for path in runs for run in require_runs([path])]
    about = {"name": target.name, "weights": weights}
    results = [each for run in recorded for each in results_of(run, predicts=robot.predicts, **about)]
    if (target / SINGLE_FILE).is_file() and hash_file(target / SINGLE_FILE) == weights:
        results = [*read_results(target), *results]
    target.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=f".{target.name}.", dir=target.parent) as scratch:
        draft = Path(scratch) / target.name
        write_json(draft / RECORD, record)
        for path in served:
            (draft / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(checkpoint / path, draft / path)
        files = {path: hash_file(draft / path) for path in (*served, RECORD)}
        write_json(draft / MANIFEST, BundleManifest(files=files, data=tuple(data)).model_dump(mode="json"))
        write_results(draft, results)
        (draft / CARD_FILE).write_text(render(draft), encoding="utf-8")
        if target.exists():
            target.rename(Path(scratch) / "before")
        draft.rename(target)


def _served(checkpoint: Path) -> list[str]:
    """The files needed for serving, by their paths in the checkpoint, without the optimiser's state."""
    if not checkpoint.is_dir():
        raise no_checkpoint(str(checkpoint), checkpoint)
    policy = read_policy(str(checkpoint))
    norms = checkpoint_norms(checkpoint, embodiment(str(policy.embodiment)).asset_id)
    files = [SINGLE_FILE, norms.relative_to(checkpoint).as_posix(), TOKENIZER, CARD]
    for path in files:
        if not (checkpoint / path).is_file():
            raise UsageError(f"{checkpoint} is not a complete checkpoint: it has no {path}; give another")
    check_parameters(
        open_safetensors(checkpoint / SINGLE_FILE).tensors, preset(str(policy.model)), str(checkpoint)
    )
    size = sum((checkpoint / path).stat().st_size for path in files)
    if size > MAX_BYTES:
        raise UsageError(f"{checkpoint} has {size} bytes to serve; at most {MAX_BYTES} are bundled")
    return files
