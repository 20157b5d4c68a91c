"""Writes a trained run in f16: `ship.py RUN OUT`. A run of train.py becomes an open_clip directory, one of train_vit.py a
Hugging Face directory."""

import json
import pathlib
import sys

import torch
from safetensors.torch import save_file

import bpe
import model as pocket
import vit
import world

MEAN, STD = world.MEAN.flatten().tolist(), world.STD.flatten().tolist()


def save(state, path):
    """The temperature is one number: kept in f32."""
    state = {n: (t.float() if n == "logit_scale" else t.half()).contiguous() for n, t in sorted(state.items())}
    assert all(torch.isfinite(t).all() for t in state.values())
    save_file(state, path, metadata={"format": "pt"})


def write(value, path):
    path.write_text(json.dumps(value, indent=2) + "\n")


def as_open_clip(run, out):
    # The batch counters and the causal mask are not weights.
    state = pocket.load(run).state_dict()
    save(
        {n: t for n, t in state.items() if not n.endswith("num_batches_tracked") and n != "attn_mask"},
        out / "open_clip_model.safetensors",
    )
    preprocess = {"mean": MEAN, "std": STD, "interpolation": "bicubic", "resize_mode": "shortest"}
    write({"model_cfg": json.loads((run / "config.json").read_text()), "preprocess_cfg": preprocess}, out / "open_clip_config.json")


def as_hugging_face(run, out):
    model = vit.load(run)
    save(model.state_dict(), out / "model.safetensors")
    model.config.architectures = ["CLIPModel"]
    model.config.save_pretrained(out)
    preprocess = {
        "image_processor_type": "CLIPImageProcessor",
        "do_convert_rgb": True,
        "do_resize": True,
        "size": {"shortest_edge": pocket.IMAGE},
        "resample": 3,
        "do_center_crop": True,
        "crop_size": {"height": pocket.IMAGE, "width": pocket.IMAGE},
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": MEAN,
        "image_std": STD,
    }
    write(preprocess, out / "preprocessor_config.json")


run, out = map(pathlib.Path, sys.argv[1:])
out.mkdir(parents=True, exist_ok=True)
(as_hugging_face if vit.is_one(run) else as_open_clip)(run, out)
bpe.Tokenizer.load(run).save(out)
