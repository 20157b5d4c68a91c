"""Writes a trained run as an open_clip directory in f16: `ship.py RUN OUT`."""

import json
import pathlib
import sys

import torch
from safetensors.torch import save_file

import bpe
import world

run, out = map(pathlib.Path, sys.argv[1:])
out.mkdir(parents=True, exist_ok=True)
cfg = json.loads((run / "config.json").read_text())
state = torch.load(run / ("model.pt" if (run / "model.pt").exists() else "last.pt"))
# The batch counters and the causal mask are not weights. The temperature is one number: kept in f32.
kept = {n: t for n, t in state.items() if not n.endswith("num_batches_tracked") and n != "attn_mask"}
kept = {n: (t.float() if n == "logit_scale" else t.half()).contiguous() for n, t in sorted(kept.items())}
assert all(torch.isfinite(t).all() for t in kept.values())
save_file(kept, out / "open_clip_model.safetensors", metadata={"format": "pt"})
preprocess = {
    "mean": world.MEAN.flatten().tolist(),
    "std": world.STD.flatten().tolist(),
    "interpolation": "bicubic",
    "resize_mode": "shortest",
}
config = {"model_cfg": cfg, "preprocess_cfg": preprocess}
(out / "open_clip_config.json").write_text(json.dumps(config, indent=2) + "\n")
bpe.Tokenizer.load(run).save(out)
