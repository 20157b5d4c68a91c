"""What both transformers are made of. Weights come as a mapping of tensors by their names in OpenAI's checkpoints; they are
held, never copied."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor
from torch.nn import functional as F

Weights = Mapping[str, Tensor]
Norm = tuple[Tensor, Tensor]
EPSILON = 1e-5


def activation(name: str) -> Callable[[Tensor], Tensor]:
    """The non-linearity of the MLPs."""
    if name == "quick_gelu":
        return lambda x: x * torch.sigmoid(1.702 * x)
    if name == "gelu":
        return lambda x: F.gelu(x)
    raise ValueError(f"activation {name!r} is not among those of the torch towers: quick_gelu, gelu")


def layer_norm(x: Tensor, norm: Norm) -> Tensor:
    """Over the last axis, with these scales and shifts."""
    return F.layer_norm(x, x.shape[-1:], norm[0], norm[1], EPSILON)


class Block:
    """A frozen pre-norm transformer block. Its norms are given with each call, since SAR moves them."""

    def __init__(self, weights: Weights, prefix: str, heads: int, act: Callable[[Tensor], Tensor]) -> None:
        def affine(name: str) -> Norm:
            return weights[f"{prefix}.{name}.weight"], weights[f"{prefix}.{name}.bias"]

        self.norms = [affine("ln_1"), affine("ln_2")]
        if f"{prefix}.attn.in_proj_weight" in weights:
            into = weights[f"{prefix}.attn.in_proj_weight"], weights[f"{prefix}.attn.in_proj_bias"]
            self.qkv = list(zip(into[0].chunk(3), into[1].chunk(3)))
        else:  # three matrices, as transformers has them
            self.qkv = [affine(f"attn.{part}") for part in ("q_proj", "k_proj", "v_proj")]
        self.out, self.up, self.down = affine("attn.out_proj"), affine("mlp.c_fc"), affine("mlp.c_proj")
        self.heads, self.act = heads, act

    def split(self, x: Tensor, part: int) -> Tensor:
        """Queries, keys or values ``[batch, heads, tokens, channels]`` of normalised tokens."""
        found = F.linear(x, *self.qkv[part])
        return found.unflatten(-1, (self.heads, -1)).transpose(-2, -3)

    def attend(self, x: Tensor, queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
        """Tokens plus what they attend to."""
        found = F.scaled_dot_product_attention(queries, keys, values, mask)
        return x + F.linear(found.transpose(-2, -3).flatten(-2), *self.out)

    def mlp(self, x: Tensor, norm: Norm) -> Tensor:
        """Tokens plus the MLP of them."""
        return x + F.linear(self.act(F.linear(layer_norm(x, norm), *self.up)), *self.down)

    def __call__(self, x: Tensor, norms: list[Norm], mask: Tensor | None = None) -> Tensor:
        normal = layer_norm(x, norms[0])
        x = self.attend(x, self.split(normal, 0), self.split(normal, 1), self.split(normal, 2), mask)
        return self.mlp(x, norms[1])
