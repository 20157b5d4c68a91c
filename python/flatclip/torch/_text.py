"""The text tower with the prefix that all classes share: it is causal, so the keys and values of the start token and of a
shared context are computed once per layer, and each class runs its own tokens only. Exact."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from .._towers import ClassTokens
from ._block import Block, Weights, activation, layer_norm


class TextTransformer:
    """The frozen text tower."""

    def __init__(self, weights: Weights, config: dict[str, Any], act: str) -> None:
        self.embedding = weights["token_embedding.weight"]
        self.positions = weights["positional_embedding"]
        self.final = weights["ln_final.weight"], weights["ln_final.bias"]
        self.projection = weights["text_projection"]
        name, kind = "transformer.resblocks", activation(act)
        self.blocks = [Block(weights, f"{name}.{layer}", config["heads"], kind) for layer in range(config["layers"])]

    def texts(self, ids: Tensor, ends: Tensor) -> Tensor:
        """Raw features ``[n, D]`` of padded token ids ``[n, length]``."""
        x = self.embedding[ids] + self.positions[: ids.shape[1]]
        mask = causal(ids.shape[1], 0, x)
        for block in self.blocks:
            x = block(x, block.norms, mask)
        return self.head(x[torch.arange(len(ids), device=x.device), ends])

    def contexts(
        self, tokens: ClassTokens, classes: slice, contexts: Tensor, deep: Sequence[Tensor] = (), skipped: int = 0
    ) -> Tensor:
        """Raw features ``[m, K, D]`` of some classes with contexts ``[m, T, W]`` or ``[m, K, T, W]``.

        ``deep[i - 1]`` overwrites the context before block ``i``. Rows of classes are not differentiated in the first
        ``skipped`` blocks; what reaches the context through the keys and values of those is ignored."""
        device = contexts.device
        ids = torch.as_tensor(tokens.ids[classes], device=device)
        slots = torch.as_tensor(tokens.slots[classes], device=device)
        ends = torch.as_tensor(tokens.ends[classes], device=device)
        own = contexts.dim() == 4
        shared = 1 if own else tokens.shared
        rows = self.rows(ids, slots, contexts[:, classes] if own else contexts)
        prefix, rest = rows[:, 0, :shared], rows[:, :, shared:]
        mask, inner = causal(rest.shape[2], shared, rest), causal(shared, 0, rest)
        for layer, block in enumerate(self.blocks):
            if 0 < layer <= len(deep):
                prefix = torch.cat([prefix[:, :1], deep[layer - 1].expand(len(prefix), -1, -1)], 1)
            normal = layer_norm(prefix, block.norms[0])
            queries, keys, values = (block.split(normal, part) for part in range(3))
            if layer < skipped:
                with torch.no_grad():
                    rest = self.beside(block, rest.detach(), keys.detach(), values.detach(), mask)
            else:
                rest = self.beside(block, rest, keys, values, mask)
            prefix = block.mlp(block.attend(prefix, queries, keys, values, inner), block.norms[1])
        at = torch.arange(len(ends), device=device)
        return self.head(rest[:, at, ends - shared])

    def rows(self, ids: Tensor, slots: Tensor, contexts: Tensor) -> Tensor:
        """The input ``[m, K, length, W]``: embeddings of tokens, contexts where they stand, positions."""
        is_context = (slots >= 0)[..., None]
        tokens = torch.where(is_context, 0.0, self.embedding[ids.clamp(min=0)])
        place = slots.clamp(min=0)
        if contexts.dim() == 4:
            filled = contexts[:, torch.arange(len(ids), device=ids.device)[:, None], place]
        else:
            filled = contexts[:, place] if contexts.shape[1] else contexts.new_zeros(len(contexts), *place.shape, contexts.shape[2])
        return torch.where(is_context, filled, tokens) + self.positions[: ids.shape[1]]

    @staticmethod
    def beside(block: Block, x: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> Tensor:
        """Tokens of the classes, which attend to the prefix and to themselves."""
        normal = layer_norm(x, block.norms[0])

        def joined(prefix: Tensor, own: Tensor) -> Tensor:
            wide = prefix[:, None].expand(-1, own.shape[1], -1, -1, -1)
            return torch.cat([wide.to(own.dtype), own], -2)

        keys, values = joined(keys, block.split(normal, 1)), joined(values, block.split(normal, 2))
        return block.mlp(block.attend(x, block.split(normal, 0), keys, values, mask), block.norms[1])

    def head(self, ends: Tensor) -> Tensor:
        """Features of the rows at the ends of texts."""
        return layer_norm(ends, self.final) @ self.projection


def causal(rows: int, before: int, like: Tensor) -> Tensor:
    """Row ``i`` sees the ``before`` rows of a prefix and its own rows up to ``i``."""
    at = torch.arange(rows, device=like.device)
    return torch.arange(before + rows, device=like.device)[None] <= before + at[:, None]
