"""pocket-vit: transformers' own CLIPModel, small, with the text tower and the tokenizer of a trained pocket CLIP."""

import pathlib

import torch
from safetensors.torch import load_file
from transformers import CLIPConfig, CLIPModel

import model as pocket

PATCH, WIDTH, LAYERS, HEADS = 8, 128, 4, 4


def config(vocab, text_layers, text_width):
    """Every number that `CLIPModel` needs. The end token is the last of the vocabulary; what follows it is idle."""
    both = {"hidden_act": "quick_gelu", "projection_dim": pocket.EMBED, "layer_norm_eps": 1e-5, "attention_dropout": 0.0}
    text = both | {
        "vocab_size": vocab,
        "hidden_size": text_width,
        "intermediate_size": 4 * text_width,
        "num_hidden_layers": text_layers,
        "num_attention_heads": text_width // pocket.HEAD,
        "max_position_embeddings": pocket.CONTEXT,
        "bos_token_id": vocab - 2,
        "eos_token_id": vocab - 1,
        "pad_token_id": vocab - 1,
    }
    image = both | {
        "image_size": pocket.IMAGE,
        "patch_size": PATCH,
        "hidden_size": WIDTH,
        "intermediate_size": 4 * WIDTH,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
    }
    return CLIPConfig(text_config=text, vision_config=image, projection_dim=pocket.EMBED)


def build(teacher):
    """A new image tower beside the teacher's text tower and temperature."""
    (vocab, text_width), text_layers = teacher.token_embedding.weight.shape, len(teacher.transformer.resblocks)
    model = CLIPModel(config(vocab, text_layers, text_width))
    missing, unexpected = model.load_state_dict(text_tower(teacher.state_dict()), strict=False)
    assert not unexpected and all(n.startswith(("vision_model.", "visual_projection.")) for n in missing), (missing, unexpected)
    with torch.no_grad():
        model.vision_model.embeddings.position_embedding.weight.copy_(positions(pocket.IMAGE // PATCH, WIDTH))
    return model


def text_tower(state):
    """open_clip's text weights under transformers' names."""
    out = {
        "logit_scale": state["logit_scale"],
        "text_projection.weight": state["text_projection"].T,
        "text_model.embeddings.token_embedding.weight": state["token_embedding.weight"],
        "text_model.embeddings.position_embedding.weight": state["positional_embedding"],
        "text_model.final_layer_norm.weight": state["ln_final.weight"],
        "text_model.final_layer_norm.bias": state["ln_final.bias"],
    }
    renamed = {
        "ln_1": "layer_norm1",
        "ln_2": "layer_norm2",
        "attn.out_proj": "self_attn.out_proj",
        "mlp.c_fc": "mlp.fc1",
        "mlp.c_proj": "mlp.fc2",
    }
    for layer in range(len({name.split(".")[2] for name in state if name.startswith("transformer.resblocks.")})):
        old, new = f"transformer.resblocks.{layer}", f"text_model.encoder.layers.{layer}"
        for kind in ("weight", "bias"):
            for theirs, ours in renamed.items():
                out[f"{new}.{ours}.{kind}"] = state[f"{old}.{theirs}.{kind}"]
            for part, value in zip("qkv", state[f"{old}.attn.in_proj_{kind}"].chunk(3)):
                out[f"{new}.self_attn.{part}_proj.{kind}"] = value
    return out


def positions(grid, width):
    """Sine and cosine of row and column, small, after a zero for the class token."""
    rates = 100.0 ** (-torch.arange(width // 4) / (width // 4))
    angles = torch.arange(grid)[:, None] * rates
    waves = torch.cat([angles.sin(), angles.cos()], 1)
    row = waves[:, None].expand(grid, grid, -1)
    column = waves[None].expand(grid, grid, -1)
    table = torch.cat([row, column], 2).reshape(grid * grid, width)
    return 0.1 * torch.cat([torch.zeros(1, width), table])


def is_one(directory):
    """Whether a directory holds such a model: its config.json is transformers'."""
    config = pathlib.Path(directory) / "config.json"
    return config.exists() and '"model_type": "clip"' in config.read_text()


def load(directory):
    """A run of train_vit.py, finished or not, or its shipped form, read in f32 from its f16 weights."""
    directory = pathlib.Path(directory)
    model = CLIPModel(CLIPConfig.from_pretrained(directory))
    if (directory / "model.safetensors").exists():
        state = {name: tensor.float() for name, tensor in load_file(directory / "model.safetensors").items()}
    else:
        best = directory / "model.pt"
        state = torch.load(best if best.exists() else directory / "last.pt")
    model.load_state_dict(state)
    return model.eval()


def text_features(model, tokens):
    pooled = model.text_model(input_ids=tokens).pooler_output
    return torch.nn.functional.normalize(model.text_projection(pooled), dim=-1)


def image_features(model, pixels):
    pooled = model.vision_model(pixel_values=pixels).pooler_output
    return torch.nn.functional.normalize(model.visual_projection(pooled), dim=-1)
