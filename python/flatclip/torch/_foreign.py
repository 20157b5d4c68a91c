"""Torch CLIP models of other libraries: their weights, and their own functions."""

from __future__ import annotations

import json
import warnings
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from .._encoder import MEAN, STD, Encoder
from .._native import Model
from ._towers import Towers, numpy

# transformers' names of the parts of a block, and OpenAI's.
PARTS = {
    "layer_norm1": "ln_1", "layer_norm2": "ln_2", "self_attn.q_proj": "attn.q_proj", "self_attn.k_proj": "attn.k_proj",
    "self_attn.v_proj": "attn.v_proj", "self_attn.out_proj": "attn.out_proj", "mlp.fc1": "mlp.c_fc", "mlp.fc2": "mlp.c_proj",
}  # fmt: skip
# Names of transformers outside of blocks; projections are transposed.
SINGLE = {
    "text_model.embeddings.token_embedding.weight": "token_embedding.weight",
    "text_model.embeddings.position_embedding.weight": "positional_embedding",
    "text_model.final_layer_norm.weight": "ln_final.weight", "text_model.final_layer_norm.bias": "ln_final.bias",
    "text_projection.weight": "text_projection", "vision_model.embeddings.class_embedding": "visual.class_embedding",
    "vision_model.embeddings.patch_embedding.weight": "visual.conv1.weight",
    "vision_model.embeddings.position_embedding.weight": "visual.positional_embedding",
    "vision_model.pre_layrnorm.weight": "visual.ln_pre.weight", "vision_model.pre_layrnorm.bias": "visual.ln_pre.bias",
    "vision_model.post_layernorm.weight": "visual.ln_post.weight", "vision_model.post_layernorm.bias": "visual.ln_post.bias",
    "visual_projection.weight": "visual.proj", "logit_scale": "logit_scale",
    # SigLIP's.
    "logit_bias": "logit_bias", "text_model.head.weight": "text_projection", "text_model.head.bias": "text_projection.bias",
    "vision_model.embeddings.patch_embedding.bias": "visual.conv1.bias", "vision_model.head.probe": "visual.attn_pool.latent",
}  # fmt: skip
TRANSPOSED = ("text_projection.weight", "visual_projection.weight", "text_model.head.weight")
# Parts of SigLIP's attention pool.
POOL = {
    "attention.in_proj_weight": "in_proj_weight", "attention.in_proj_bias": "in_proj_bias", "attention.out_proj": "out_proj",
    "layernorm": "ln_2", "mlp.fc1": "mlp.c_fc", "mlp.fc2": "mlp.c_proj",
}  # fmt: skip
HALF = (0.5, 0.5, 0.5)


@dataclass
class Foreign:
    """A model of another library."""

    library: str
    device: torch.device
    full: bool
    size: int
    context_length: int
    vocab: int
    logit_scale: float
    mean: tuple[float, ...] = MEAN
    std: tuple[float, ...] = STD
    activation: str | None = None
    # transformers' config.json, for a model that has other parts than OpenAI's CLIP.
    config: str | None = None
    heads: dict[str, int] = field(default_factory=dict)
    # As the library names them, and by OpenAI's names; both are the model's own tensors.
    state: dict[str, Tensor] = field(default_factory=dict)
    tensors: dict[str, Tensor] = field(default_factory=dict)
    # Why its own functions must be used; empty if flatclip's towers can be used.
    reason: str = ""


def describe(model: Any, preprocess: Any) -> Foreign:
    """What the model is."""
    first = next(model.parameters())
    known = {"device": first.device, "full": first.dtype == torch.float32}
    scale = float(model.logit_scale.detach().float().exp())
    mean, std = _pixels(preprocess, model)
    if hasattr(model, "get_image_features"):
        config = model.config
        text, vision = config.text_config, config.vision_config
        found = Foreign(
            "transformers", **known, size=vision.image_size, context_length=text.max_position_embeddings,
            vocab=text.vocab_size, logit_scale=scale, mean=mean, std=std,
        )  # fmt: skip
        if config.model_type == "siglip":
            found.config = json.dumps(config.to_dict(), default=str)
        else:
            found.activation = text.hidden_act
            found.heads = {"image_heads": vision.num_attention_heads, "text_heads": text.num_attention_heads}
            if text.hidden_act != vision.hidden_act or config.model_type != "clip":
                found.reason = f"a {config.model_type} model"
        found.state = {name: value for name, value in model.state_dict().items() if not name.endswith("position_ids")}
        found.tensors = dict(_renamed(found.state))
    elif hasattr(model, "encode_image") and hasattr(model, "visual"):
        size = model.visual.image_size
        size = size if isinstance(size, int) else size[0]
        length, vocab = getattr(model, "context_length", 77), getattr(model, "vocab_size", 49408)
        found = Foreign("open_clip", **known, size=size, context_length=length, vocab=vocab, logit_scale=scale, mean=mean, std=std)
        found.state = found.tensors = dict(model.state_dict())
        names = {type(part).__name__ for part in model.modules()}
        found.activation = "quick_gelu" if "QuickGELU" in names else "gelu"
        blocks = [part for part in model.modules() if isinstance(part, torch.nn.MultiheadAttention)]
        in_image = {id(part) for part in model.visual.modules()}
        for part in blocks:
            found.heads["image_heads" if id(part) in in_image else "text_heads"] = part.num_heads
        if "attnpool.q_proj.weight" in " ".join(found.state):
            found.heads["image_heads"] = model.visual.attnpool.num_heads
        if not hasattr(model, "token_embedding"):
            found.reason = (
                f"{type(model).__name__} has another form than OpenAI's CLIP, and does not say which "
                "(flatclip.load(NAME, device=...) reads SigLIP, PE-Core and EVA-02 from their files)"
            )
    else:
        raise TypeError(
            f"model: expected open_clip's or transformers' CLIP, found {type(model).__name__}; "
            "flatclip.Encoder takes functions of any model"
        )
    return found


def _pixels(preprocess: Any, model: Any) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and deviation: of a torchvision pipeline, of a transformers processor, of the model, or those of its family."""
    steps = [*getattr(preprocess, "transforms", ()), getattr(preprocess, "image_processor", preprocess), getattr(model, "visual", None)]
    for step in steps:
        for mean, std in (("mean", "std"), ("image_mean", "image_std")):
            if getattr(step, mean, None) is not None and getattr(step, std, None) is not None:
                return tuple(map(float, getattr(step, mean))), tuple(map(float, getattr(step, std)))
    siglip = getattr(getattr(model, "config", None), "model_type", "") == "siglip"
    return (HALF, HALF) if siglip else (MEAN, STD)


def _renamed(state: dict[str, Tensor]) -> Any:
    """Tensors of transformers by OpenAI's names."""
    for name, value in state.items():
        if name in SINGLE:
            yield SINGLE[name], value.T if name in TRANSPOSED else value
            continue
        pool, _, part = name.removeprefix("vision_model.head.").rpartition(".")
        if name.startswith("vision_model.head."):
            yield (f"visual.attn_pool.{POOL[pool]}.{part}" if pool in POOL else f"visual.attn_pool.{POOL[f'{pool}.{part}']}"), value
            continue
        tower, _, rest = name.partition(".encoder.layers.")
        layer, _, part = rest.partition(".")
        part, _, kind = part.rpartition(".")
        if rest and part in PARTS:
            prefix = "transformer" if tower == "text_model" else "visual.transformer"
            yield f"{prefix}.resblocks.{layer}.{PARTS[part]}.{kind}", value


def own_features(model: Any, found: Foreign, pixels: Tensor, ids: Tensor) -> tuple[Tensor, Tensor]:
    """The module's own features."""
    with torch.no_grad():
        if found.library == "transformers":
            return _plain(model.get_image_features(pixel_values=pixels)), _plain(model.get_text_features(input_ids=ids))
        return model.encode_image(pixels), model.encode_text(ids)


def _plain(output: Any) -> Tensor:
    """The features; some versions return them together with other outputs."""
    features: Tensor = output if isinstance(output, Tensor) else output.pooler_output
    return features


def lowest_cosine(model: Any, found: Foreign, towers: Towers) -> float:
    """Between the module's own features and those of our towers, over 8 images and 8 texts."""
    draw = torch.Generator().manual_seed(8)
    pixels = torch.randn(8, 3, found.size, found.size, generator=draw)
    ids = torch.zeros(8, found.context_length, dtype=torch.long)
    for row in range(8):
        length = 2 + row % max(1, found.context_length - 3)
        ids[row, 0], ids[row, length + 1] = found.vocab - 2, found.vocab - 1
        ids[row, 1 : length + 1] = torch.randint(1, found.vocab - 2, (length,), generator=draw)
    kind = next(model.parameters()).dtype
    was = model.training
    model.eval()
    own = own_features(model, found, pixels.to(found.device, kind), ids.to(found.device))
    model.train(was)
    ours = torch.from_numpy(towers.images(pixels.numpy())), torch.from_numpy(towers.texts(ids.tolist()))
    lows = [float(F.cosine_similarity(a.float().cpu(), b, dim=1).min()) for a, b in zip(own, ours)]
    return min(lows)


def own_functions(model: Any, found: Foreign, tokenizer: Any, name: str, reason: str) -> Model:
    """The module's own functions as an encoder."""
    warnings.warn(
        f"{name}: {reason}; its own functions are used, as flatclip.Encoder does, without gradients of contexts and prompts"
        + ("" if tokenizer else ", and without texts: give tokenizer="),
        stacklevel=3,
    )
    kind, device = next(model.parameters()).dtype, found.device
    bias = getattr(model, "logit_bias", None)  # SigLIP's
    # Texts of SigLIP fill all positions.
    padding = {"padding": "max_length", "max_length": found.context_length} if bias is not None else {"padding": True}

    def image(pixels: Any) -> Any:
        given = torch.from_numpy(pixels).to(device, kind)
        with torch.no_grad():
            if found.library == "transformers":
                return _plain(model.get_image_features(pixel_values=given))
            return model.encode_image(given)

    def text(texts: list[str]) -> Any:
        with torch.no_grad():
            if found.library == "transformers":
                batch = tokenizer(texts, **padding, truncation=True, return_tensors="pt").to(device)
                return _plain(model.get_text_features(**batch))
            return model.encode_text(tokenizer(texts).to(device))

    return Encoder(
        image, text if tokenizer else None, size=found.size, mean=found.mean, std=found.std, logit_scale=found.logit_scale,
        logit_bias=0.0 if bias is None else float(bias.detach()), fingerprint=Towers.digest(found.state),
        device=f"torch {device.type}", dtype=str(kind).removeprefix("torch."), name=name,
    )  # fmt: skip


__all__ = ["describe", "lowest_cosine", "numpy", "own_features", "own_functions"]
