"""The text tower with the prefix that all classes share: where it is causal, the keys and values of the start token and of a
shared context are computed once per layer, and each class runs its own tokens only. Exact. A tower that is not causal (SigLIP)
runs all positions of all classes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from .._towers import ClassTokens
from ._block import Block, Weights, affine, blocks, layer_norm
from ._image import projected


class TextTransformer:
    """The frozen text tower. ``config["form"]`` says in what it differs from OpenAI's."""

    def __init__(self, weights: Weights, config: dict[str, Any], act: str) -> None:
        form = config["form"]
        self.causal, self.padding, self.epsilon = form["causal"], form["padding"], form["epsilon"]
        self.reads_last = form["pool"] == "last"
        self.embedding = weights["token_embedding.weight"]
        self.positions = weights["positional_embedding"]
        self.final = affine(weights, "ln_final")
        self.projection, self.projection_bias = weights["text_projection"], weights.get("text_projection.bias")
        self.passes = ["contexts", "context_gradient", *(["deep"] if self.causal else [])]
        self.blocks = blocks(weights, "transformer.resblocks", config, form["activation"] or act, self.epsilon)

    def texts(self, ids: Tensor, ends: Tensor) -> Tensor:
        """Raw features ``[n, D]`` of padded token ids ``[n, length]``."""
        if not self.causal:
            ids = self.filled(ids, ids.new_full((len(ids),), ids.shape[1] - 1))
        x = self.embedding[ids] + self.positions[: ids.shape[1]]
        mask = causal(ids.shape[1], 0, x) if self.causal else None
        for block in self.blocks:
            x = block(x, block.norms, mask)
        return self.head(x, ends)

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
        contexts = contexts[:, classes] if own else contexts
        if not self.causal:
            return self.everywhere(self.filled(ids, ends), self.filled(slots, ends, -1), ends, contexts)
        shared = self.shared(tokens, own)
        rows = self.rows(ids, slots, contexts)
        prefix, rest = rows[:, 0, :shared], rows[:, :, shared:]
        mask, inner = causal(rest.shape[2], shared, rest), causal(shared, 0, rest)
        for layer, block in enumerate(self.blocks):
            if 0 < layer <= len(deep):
                prefix = torch.cat([prefix[:, :1], deep[layer - 1].expand(len(prefix), -1, -1)], 1)
            queries, keys, values = block.split(prefix, block.norms[0])
            if layer < skipped:
                with torch.no_grad():
                    rest = self.beside(block, rest.detach(), keys.detach(), values.detach(), mask)
            else:
                rest = self.beside(block, rest, keys, values, mask)
            prefix = block.mlp(prefix + block.attention(queries, keys, values, inner), block.norms[1])
        return self.head(rest, ends - shared)

    def everywhere(self, ids: Tensor, slots: Tensor, ends: Tensor, contexts: Tensor) -> Tensor:
        """The same where every position sees all others: nothing is shared, and padding takes part."""
        x = self.rows(ids, slots, contexts)
        for block in self.blocks:
            x = block(x, block.norms)
        return self.head(x, ends)

    def shared(self, tokens: ClassTokens, own: bool) -> int:
        """Positions that are computed once for all classes; ``own`` is whether each class has its own context."""
        return 0 if not self.causal else 1 if own else tokens.shared

    def filled(self, rows: Tensor, ends: Tensor, padding: int | None = None) -> Tensor:
        """All positions; those after the end of a row are padding."""
        padding = self.padding if padding is None else padding
        rows = F.pad(rows, (0, len(self.positions) - rows.shape[1]))
        return torch.where(torch.arange(rows.shape[1], device=rows.device) > ends[:, None], padding, rows)

    def rows(self, ids: Tensor, slots: Tensor, contexts: Tensor) -> Tensor:
        """The input ``[m, K, length, W]``: token embeddings, with contexts inserted, plus positional embeddings."""
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

        def joined(prefix: Tensor, own: Tensor) -> Tensor:
            wide = prefix[:, None].expand(-1, own.shape[1], -1, -1, -1)
            return torch.cat([wide.to(own.dtype), own], -2)

        queries, own_keys, own_values = block.split(x, block.norms[0])
        found = block.attention(queries, joined(keys, own_keys), joined(values, own_values), mask)
        return block.mlp(x + found, block.norms[1])

    def head(self, x: Tensor, ends: Tensor) -> Tensor:
        """Features of the rows ``[..., texts, length, W]`` where texts are read: at their ends, or at the last position."""
        at = torch.arange(len(ends), device=x.device)
        x = x[..., -1, :] if self.reads_last else x[..., at, ends, :]
        return projected(layer_norm(x, self.final, self.epsilon), self.projection, self.projection_bias)


def causal(rows: int, before: int, like: Tensor) -> Tensor:
    """Row ``i`` sees the ``before`` rows of a prefix and its own rows up to ``i``."""
    at = torch.arange(rows, device=like.device)
    return torch.arange(before + rows, device=like.device)[None] <= before + at[:, None]
