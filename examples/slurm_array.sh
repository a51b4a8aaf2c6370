#!/bin/bash
# The published protocol of libero_object in 16 shares, one node each, then one run of them all:
#   shares=$(sbatch --parsable examples/slurm_array.sh)
#   sbatch --dependency=afterok:$shares --wrap "python -m eval.merge runs/shards/*/* -o runs"
# A share that was cut short is completed by submitting the same array again.
#SBATCH --job-name=oxygen-eval
#SBATCH --array=1-16
#SBATCH --gres=gpu:1
#SBATCH --cpus-per-task=16
#SBATCH --mem=32G
#SBATCH --time=02:00:00
set -euo pipefail

share=$SLURM_ARRAY_TASK_ID/$SLURM_ARRAY_TASK_COUNT
play() {
    srun python -m eval.libero --suite libero_object --policy pi05_libero --video none \
        --num-envs "$SLURM_CPUS_PER_TASK" --shard "$share" --output-dir "runs/shards/$SLURM_ARRAY_TASK_ID" "$@"
}

if compgen -G "runs/shards/$SLURM_ARRAY_TASK_ID/*/manifest.json" > /dev/null; then
    play --resume
else
    play
fi
