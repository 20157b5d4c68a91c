"""The pocket CLIP: open_clip's own classes, so that the layout and the names are CLIP's."""

import json
import math
import pathlib

import torch
from open_clip.model import CLIP, CLIPTextCfg, CLIPVisionCfg
from safetensors.torch import load_file

EMBED, IMAGE, CONTEXT, HEAD = 128, 64, 32, 64


def config(vocab, text_layers=2, text_width=128):
    """The `model_cfg` of open_clip_config.json. Heads of 64, as in every CLIP."""
    return {
        "embed_dim": EMBED,
        "quick_gelu": True,
        "vision_cfg": {"image_size": IMAGE, "layers": [1, 1, 1, 1], "width": 16, "patch_size": None},
        "text_cfg": {
            "context_length": CONTEXT,
            "vocab_size": vocab,
            "width": text_width,
            "heads": text_width // HEAD,
            "layers": text_layers,
        },
    }


def build(cfg):
    model = CLIP(cfg["embed_dim"], CLIPVisionCfg(**cfg["vision_cfg"]), CLIPTextCfg(**cfg["text_cfg"]), quick_gelu=True)
    return model.to(memory_format=torch.channels_last)


def initialise(model):
    """open_clip leaves the small tower's tokens at 0.02 and the last norm of each bottleneck at zero; both are fine."""
    with torch.no_grad():
        model.logit_scale.fill_(math.log(1 / 0.07))
    return model


def load(directory):
    """A run of train.py, or its shipped form: read in f32 from its f16 weights, so that what is measured is what is shipped."""
    directory = pathlib.Path(directory)
    shipped = directory / "open_clip_model.safetensors"
    if shipped.exists():
        cfg = json.loads((directory / "open_clip_config.json").read_text())["model_cfg"]
        state = {name: tensor.float() for name, tensor in load_file(shipped).items()}
    else:
        cfg = json.loads((directory / "config.json").read_text())
        best = directory / "model.pt"
        state = torch.load(best if best.exists() else directory / "last.pt")
    model = build(cfg)
    missing, unexpected = model.load_state_dict(state, strict=False)
    # The shipped file leaves out the batch counters and the causal mask; nothing else may differ.
    assert not unexpected and all(n.endswith("num_batches_tracked") or n == "attn_mask" for n in missing), (missing, unexpected)
    return model.eval()


def text_features(model, tokens):
    """`encode_text` for rows shorter than the context: the tower is causal, so what follows the end token is idle."""
    length = tokens.shape[1]
    x = model.token_embedding(tokens) + model.positional_embedding[:length]
    x = model.transformer(x, attn_mask=model.attn_mask[:length, :length])
    x = model.ln_final(x)[torch.arange(len(tokens)), tokens.argmax(1)]
    return torch.nn.functional.normalize(x @ model.text_projection, dim=-1)


def image_features(model, pixels):
    return torch.nn.functional.normalize(model.visual(pixels), dim=-1)
