#!/bin/bash
# An evaluation as a Slurm array: one task per shard, then one job that merges them.
#   DATA=imagenet_a METHOD=stss OUT=/shared/runs/ina sbatch --array=0-31 docs/cluster/slurm.sh
#   sbatch --dependency=afterok:JOB --wrap 'flatclip report merge /shared/runs/ina/shard-* --out /shared/runs/ina-whole'
# Submit a failed task again with the same line: --resume continues where it stopped.
#SBATCH --job-name=flatclip
#SBATCH --cpus-per-task=16
#SBATCH --mem=16G
#SBATCH --requeue
set -euo pipefail
flatclip --threads "$SLURM_CPUS_PER_TASK" eval --model "${MODEL:-ViT-B-16/openai}" --data "$DATA" --method "$METHOD" \
  --shard "$SLURM_ARRAY_TASK_ID/$SLURM_ARRAY_TASK_COUNT" --cache "${CACHE:-$OUT/cache}" --out "$OUT" --resume
