"""The image towers: ViT with visual prompts and other LayerNorm parameters, and CLIP's modified ResNet."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from ._block import Block, Norm, Weights, activation, layer_norm


class VisionTransformer:
    """The frozen vision transformer."""

    def __init__(self, weights: Weights, config: dict[str, Any], act: str) -> None:
        self.patches = weights["visual.conv1.weight"]
        self.class_token, self.positions = weights["visual.class_embedding"], weights["visual.positional_embedding"]
        self.projection = weights["visual.proj"]
        name, kind = "visual.transformer.resblocks", activation(act)
        self.blocks = [Block(weights, f"{name}.{layer}", config["heads"], kind) for layer in range(config["layers"])]
        self.width = self.patches.shape[0]

        def affine(name: str) -> Norm:
            return weights[f"visual.{name}.weight"], weights[f"visual.{name}.bias"]

        self.norms = [affine("ln_pre"), *(norm for block in self.blocks for norm in block.norms), affine("ln_post")]

    def __call__(
        self,
        pixels: Tensor,
        prompts: Sequence[Tensor] = (),
        norms: Sequence[Norm] | None = None,
        seen: dict[int, Tensor] | None = None,
        last: int | None = None,
    ) -> Tensor:
        """Raw features ``[n, D]``. The first prompt is appended before ``ln_pre``, the i-th overwrites the last tokens before
        block ``i``. The tokens that the blocks in ``seen`` read are put there; nothing is computed after block ``last``."""
        norms = self.norms if norms is None else norms
        x = F.conv2d(pixels, self.patches, stride=self.patches.shape[-1]).flatten(2).transpose(1, 2)
        x = torch.cat([self.class_token.to(x.dtype).expand(len(x), 1, -1), x], 1) + self.positions
        if prompts:
            x = torch.cat([x, prompts[0].to(x.dtype).expand(len(x), -1, -1)], 1)
        x = layer_norm(x, norms[0])
        for layer, block in enumerate(self.blocks):
            if 0 < layer < len(prompts):
                prompt = prompts[layer]
                x = torch.cat([x[:, : x.shape[1] - len(prompt)], prompt.to(x.dtype).expand(len(x), -1, -1)], 1)
            if seen is not None and layer in seen:
                seen[layer] = x
            if layer == last:
                return x
            x = block(x, list(norms[1 + 2 * layer : 3 + 2 * layer]))
        return layer_norm(x[:, 0], norms[-1]) @ self.projection


class ModifiedResNet:
    """The frozen ResNet of CLIP: three convolutions at its stem, average pools in place of strides, attention at its end."""

    def __init__(self, weights: Weights, config: dict[str, Any]) -> None:
        self.weights, self.blocks, self.heads = weights, config["blocks"], config["heads"]
        self.names = [f"visual.bn{i}" for i in (1, 2, 3)]
        for stage, count in enumerate(self.blocks):
            for block in range(count):
                name = f"visual.layer{stage + 1}.{block}"
                self.names += [f"{name}.bn{i}" for i in (1, 2, 3)]
                if f"{name}.downsample.0.weight" in weights:
                    self.names.append(f"{name}.downsample.1")

    def norms(self) -> list[tuple[str, Tensor]]:
        """Scales and shifts of all BatchNorms in turns, by their names."""
        return [(f"{name}.{part}", self.weights[f"{name}.{part}"]) for name in self.names for part in ("weight", "bias")]

    def __call__(self, pixels: Tensor, norms: dict[str, Tensor] | None = None) -> Tensor:
        """Raw features ``[n, D]``; with ``norms`` these scales and shifts on the statistics of the batch."""
        w = self.weights

        def convolve(x: Tensor, conv: str, bn: str, **how: int) -> Tensor:
            x = F.conv2d(x, w[f"{conv}.weight"], **how)
            if norms is not None:
                return F.batch_norm(x, None, None, norms[f"{bn}.weight"], norms[f"{bn}.bias"], training=True)
            mean, var = w[f"{bn}.running_mean"], w[f"{bn}.running_var"]
            return F.batch_norm(x, mean, var, w[f"{bn}.weight"], w[f"{bn}.bias"])

        x = pixels
        for i in (1, 2, 3):
            x = F.relu(convolve(x, f"visual.conv{i}", f"visual.bn{i}", stride=2 if i == 1 else 1, padding=1))
        x = F.avg_pool2d(x, 2)
        for stage, count in enumerate(self.blocks):
            for block in range(count):
                name = f"visual.layer{stage + 1}.{block}"
                stride = 2 if stage > 0 and block == 0 else 1
                y = F.relu(convolve(x, f"{name}.conv1", f"{name}.bn1"))
                y = F.relu(convolve(y, f"{name}.conv2", f"{name}.bn2", padding=1))
                y = convolve(F.avg_pool2d(y, stride) if stride > 1 else y, f"{name}.conv3", f"{name}.bn3")
                if f"{name}.downsample.0.weight" in w:
                    x = F.avg_pool2d(x, stride) if stride > 1 else x
                    x = convolve(x, f"{name}.downsample.0", f"{name}.downsample.1")
                x = F.relu(x + y)
        return self.pool(x.flatten(2).transpose(1, 2))

    def pool(self, x: Tensor) -> Tensor:
        """The mean of the cells attends to all of them."""
        w = self.weights
        x = torch.cat([x.mean(1, keepdim=True), x], 1) + w["visual.attnpool.positional_embedding"]

        def part(name: str, of: Tensor) -> Tensor:
            found = F.linear(of, w[f"visual.attnpool.{name}.weight"], w[f"visual.attnpool.{name}.bias"])
            return found.unflatten(-1, (self.heads, -1)).transpose(1, 2)

        found = F.scaled_dot_product_attention(part("q_proj", x[:, :1]), part("k_proj", x), part("v_proj", x))
        pooled = found.transpose(1, 2).flatten(2)[:, 0]
        return F.linear(pooled, w["visual.attnpool.c_proj.weight"], w["visual.attnpool.c_proj.bias"])
