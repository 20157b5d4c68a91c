#!/bin/bash
# The same shards under torchrun, which sets RANK and WORLD_SIZE for every process.
#   DATA=imagenet_a METHOD=stss OUT=/shared/runs/ina torchrun --nnodes 4 --nproc-per-node 8 --no-python docs/cluster/torchrun.sh
# Afterwards: flatclip report merge $OUT/shard-* --out $OUT-whole
set -euo pipefail
flatclip --threads "${THREADS:-4}" eval --model "${MODEL:-ViT-B-16/openai}" --data "$DATA" --method "$METHOD" \
  --shard auto --cache "${CACHE:-$OUT/cache}" --out "$OUT" --resume
