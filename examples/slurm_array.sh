#!/bin/bash
# The published protocol of libero_object in 16 shares, one node each, then one run of them all:
#   shares=$(sbatch --parsable examples/slurm_array.sh)
#   sbatch --dependency=afterok:$shares --wrap "oxygen-eval merge runs/shards/*/* -o runs"
# Submitting the same array again completes shares that were cut short or have errors, and skips the others.
# With few episodes a share may have none; it ends without an error, so that the others are joined.
#SBATCH --job-name=oxygen-eval
#SBATCH --array=1-16
#SBATCH --gres=gpu:1
#SBATCH --cpus-per-task=16
#SBATCH --mem=32G
#SBATCH --time=02:00:00
set -euo pipefail

share=$SLURM_ARRAY_TASK_ID/$SLURM_ARRAY_TASK_COUNT
folder=runs/shards/$SLURM_ARRAY_TASK_ID
said=$(mktemp)
play() {  # srun does not inherit --cpus-per-task
    srun --cpus-per-task="$SLURM_CPUS_PER_TASK" \
        oxygen-eval libero --suite libero_object --policy pi05_libero --video none \
        --num-envs "$SLURM_CPUS_PER_TASK" --shard "$share" --output-dir "$folder" "$@" 2>&1 | tee "$said" \
        || grep -q "error: --shard $share has none of the" "$said"
}

if ! compgen -G "$folder/*/manifest.json" > /dev/null; then
    play
elif ! grep -q '"status": "complete"' "$folder"/*/manifest.json \
    || grep -q '"n_errors": [1-9]' "$folder"/*/results.json; then
    play --resume
else
    echo "share $share is complete"
fi
