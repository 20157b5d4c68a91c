"""The building blocks of all transformers. Weights are a mapping of tensors by their names in OpenAI's checkpoints; they are
never copied."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

Weights = Mapping[str, Tensor]
Norm = tuple[Tensor, Tensor]
Act = Callable[[Tensor], Tensor]
# Cosines and sines of the rotary angles of queries and keys, each ``[tokens, channels / 2]``.
Rotation = tuple[Tensor, Tensor]

ACTIVATIONS: dict[str, Act] = {
    "quick_gelu": lambda x: x * torch.sigmoid(1.702 * x),
    "gelu": lambda x: F.gelu(x),
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
}


def activation(name: str) -> Act:
    """The non-linearity of the MLPs."""
    if name not in ACTIVATIONS:
        raise ValueError(f"activation {name!r} is not among those of the torch towers: {', '.join(ACTIVATIONS)}")
    return ACTIVATIONS[name]


def affine(weights: Weights, name: str) -> Norm:
    """Weight and bias."""
    return weights[f"{name}.weight"], weights[f"{name}.bias"]


def layer_norm(x: Tensor, norm: Norm, epsilon: float) -> Tensor:
    """Over the last axis, with these scales and shifts."""
    return F.layer_norm(x, x.shape[-1:], norm[0], norm[1], epsilon)


class Attention:
    """Attention with frozen weights. EVA-02 has a norm before its projection; EVA-02 and PE-Core rotate queries and keys."""

    def __init__(self, weights: Weights, name: str, heads: int, epsilon: float, rotation: Rotation | None = None) -> None:
        if f"{name}.in_proj_weight" in weights:
            into = weights[f"{name}.in_proj_weight"], weights[f"{name}.in_proj_bias"]
            self.qkv = list(zip(into[0].chunk(3), into[1].chunk(3)))
        else:  # three matrices, as transformers has them
            self.qkv = [affine(weights, f"{name}.{part}") for part in ("q_proj", "k_proj", "v_proj")]
        self.out, self.heads = affine(weights, f"{name}.out_proj"), heads
        self.inner = affine(weights, f"{name}.ln_inner") if f"{name}.ln_inner.weight" in weights else None
        self.epsilon, self.rotation = epsilon, rotation

    def split(self, x: Tensor, part: int) -> Tensor:
        """Queries, keys or values ``[batch, heads, tokens, channels]`` of normalised tokens."""
        found = F.linear(x, *self.qkv[part]).unflatten(-1, (self.heads, -1)).transpose(-2, -3)
        return found if self.rotation is None or part == 2 else rotated(found, self.rotation)

    def __call__(self, queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None = None) -> Tensor:
        """What tokens attend to."""
        found = F.scaled_dot_product_attention(queries, keys, values, mask).transpose(-2, -3).flatten(-2)
        return F.linear(found if self.inner is None else layer_norm(found, self.inner, self.epsilon), *self.out)


def rotated(x: Tensor, rotation: Rotation) -> Tensor:
    """Rotates pairs of neighbouring channels of each token by its angles."""
    cosine, sine = rotation
    a, b = x[..., 0::2], x[..., 1::2]
    return torch.stack([a * cosine - b * sine, b * cosine + a * sine], -1).flatten(-2).to(x.dtype)


class Mlp:
    """Two frozen layers. That of EVA-02 is gated, and has a norm before its second layer."""

    def __init__(self, weights: Weights, name: str, act: Act, epsilon: float) -> None:
        self.up, self.down = affine(weights, f"{name}.c_fc"), affine(weights, f"{name}.c_proj")
        self.gated = self.up[0].shape[0] == 2 * self.down[0].shape[1]
        self.inner = affine(weights, f"{name}.ln_inner") if f"{name}.ln_inner.weight" in weights else None
        self.act, self.epsilon = act, epsilon

    def __call__(self, x: Tensor) -> Tensor:
        x = F.linear(x, *self.up)
        if self.gated:
            gate, x = x.chunk(2, -1)
            x = F.silu(gate) * x
        else:
            x = self.act(x)
        return F.linear(x if self.inner is None else layer_norm(x, self.inner, self.epsilon), *self.down)


class Block:
    """A frozen pre-norm transformer block. Its norms are arguments of each call, since SAR changes them."""

    def __init__(
        self, weights: Weights, name: str, heads: int, act: Act, epsilon: float, rotation: Rotation | None = None
    ) -> None:
        self.norms = [affine(weights, f"{name}.ln_1"), affine(weights, f"{name}.ln_2")]
        self.attention = Attention(weights, f"{name}.attn", heads, epsilon, rotation)
        self.layers, self.epsilon = Mlp(weights, f"{name}.mlp", act, epsilon), epsilon

    def split(self, x: Tensor, norm: Norm) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values of tokens."""
        normal = layer_norm(x, norm, self.epsilon)
        return self.attention.split(normal, 0), self.attention.split(normal, 1), self.attention.split(normal, 2)

    def mlp(self, x: Tensor, norm: Norm) -> Tensor:
        """Tokens plus the MLP of them."""
        return x + self.layers(layer_norm(x, norm, self.epsilon))

    def __call__(self, x: Tensor, norms: list[Norm], mask: Tensor | None = None) -> Tensor:
        queries, keys, values = self.split(x, norms[0])
        return self.mlp(x + self.attention(queries, keys, values, mask), norms[1])


def blocks(
    weights: Weights, name: str, config: dict[str, Any], act: str, epsilon: float, rotation: Rotation | None = None
) -> list[Block]:
    """All blocks of a tower."""
    kind, heads = activation(act), config["heads"]
    return [Block(weights, f"{name}.{layer}", heads, kind, epsilon, rotation) for layer in range(config["layers"])]
