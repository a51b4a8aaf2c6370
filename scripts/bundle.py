"""Copies a trained checkpoint into the package: `python -m scripts.bundle CHECKPOINT NAME`.

Its model card is written by hand, with the results of `oxygen-eval export RUN --format model-card`.
"""

import shutil
import sys
from pathlib import Path

from contracts.hashing import hash_file
from eval.policies.resolved import read_policy
from eval.records.json_files import write_json
from oxygen.model.config import preset
from oxygen.presets.policies import read_record
from oxygen.robots.norms import checkpoint_norms
from oxygen.robots.transforms import embodiment
from oxygen.weights.formats import SINGLE_FILE, open_safetensors
from oxygen.weights.loading import check_parameters
from oxygen.weights.source import CARD, RECORD, TOKENIZER, bundled


def main(checkpoint: Path, target: Path) -> None:
    """Copy what serving needs, without the optimiser's state and paths of this machine, with SHA-256 sums."""
    policy = read_policy(str(checkpoint))
    parameters = open_safetensors(checkpoint / SINGLE_FILE).tensors
    check_parameters(parameters, preset(str(policy.model)), str(checkpoint))
    norms = checkpoint_norms(checkpoint, embodiment(str(policy.embodiment)).asset_id)
    served = [SINGLE_FILE, norms.relative_to(checkpoint).as_posix(), TOKENIZER, CARD]
    for path in served:
        (target / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(checkpoint / path, target / path)
    record = read_record(checkpoint)
    record["data"] = [Path(folder).name for folder in record["data"]]
    write_json(target / RECORD, record)
    write_json(
        target / "manifest.json", {"files": {path: hash_file(target / path) for path in (*served, RECORD)}}
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]), bundled(sys.argv[2]))
