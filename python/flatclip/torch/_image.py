"""The image towers: ViT of several families, with visual prompts and other LayerNorm parameters, and CLIP's modified ResNet."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from ._block import Attention, Mlp, Norm, Rotation, Weights, activation, affine, blocks, layer_norm


class VisionTransformer:
    """The frozen vision transformer. ``config["form"]`` says in what it differs from OpenAI's."""

    def __init__(self, weights: Weights, config: dict[str, Any], act: str) -> None:
        form = config["form"]
        self.epsilon = form["epsilon"]
        self.patches, self.patch_bias = weights["visual.conv1.weight"], weights.get("visual.conv1.bias")
        self.class_token = weights["visual.class_embedding"] if form["class_token"] else None
        self.positions = weights["visual.positional_embedding"]
        # Absent in SigLIP: its widths are equal.
        self.projection, self.projection_bias = weights.get("visual.proj"), weights.get("visual.proj.bias")
        self.width = self.patches.shape[0]
        turn = rotation(form, len(self.positions), self.width // config["heads"], self.positions.device)
        self.blocks = blocks(weights, "visual.transformer.resblocks", config, act, self.epsilon, turn)
        pool = form["pool"]["attention"] if isinstance(form["pool"], dict) else None
        self.pool = AttentionPool(weights, pool["heads"], act, self.epsilon) if pool else None
        # Visual prompts, token statistics and other norms are those of OpenAI's form, as in our kernels.
        has_inner = form["gated"] or form["attention_norm"] or form["mlp_norm"]
        is_plain = self.pool is None and turn is None and form["pre_norm"] and not has_inner
        self.passes = ["vision", "norms"] if is_plain else []
        pre = [affine(weights, "visual.ln_pre")] if form["pre_norm"] else []
        self.norms = [*pre, *(norm for block in self.blocks for norm in block.norms), affine(weights, "visual.ln_post")]
        # Where those of the blocks begin.
        self.first = len(pre)

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
        x = self.embed(pixels)
        if prompts:
            x = torch.cat([x, prompts[0].to(x.dtype).expand(len(x), -1, -1)], 1)
        if self.first:
            x = layer_norm(x, norms[0], self.epsilon)
        for layer, block in enumerate(self.blocks):
            if 0 < layer < len(prompts):
                prompt = prompts[layer]
                x = torch.cat([x[:, : x.shape[1] - len(prompt)], prompt.to(x.dtype).expand(len(x), -1, -1)], 1)
            if seen is not None and layer in seen:
                seen[layer] = x
            if layer == last:
                return x
            at = self.first + 2 * layer
            x = block(x, list(norms[at : at + 2]))
        return self.head(x, norms[-1])

    def embed(self, pixels: Tensor) -> Tensor:
        """Class token, if there is one, and patches, with their positions."""
        x = F.conv2d(pixels, self.patches, self.patch_bias, stride=self.patches.shape[-1]).flatten(2).transpose(1, 2)
        if self.class_token is not None:
            x = torch.cat([self.class_token.to(x.dtype).expand(len(x), 1, -1), x], 1)
        return x + self.positions

    def head(self, x: Tensor, norm: Norm) -> Tensor:
        """Features of class tokens, or of all tokens where they are pooled."""
        if self.pool is None:
            x = layer_norm(x[:, 0], norm, self.epsilon)
        else:
            x = self.pool(layer_norm(x, norm, self.epsilon))
        return projected(x, self.projection, self.projection_bias)


class AttentionPool:
    """The MAP head: a learned query attends to all tokens, and an MLP follows."""

    def __init__(self, weights: Weights, heads: int, act: str, epsilon: float) -> None:
        name = "visual.attn_pool"
        self.latent = weights[f"{name}.latent"].reshape(1, -1)
        self.attention = Attention(weights, name, heads, epsilon)
        self.norm, self.epsilon = affine(weights, f"{name}.ln_2"), epsilon
        self.mlp = Mlp(weights, f"{name}.mlp", activation(act), epsilon)

    def __call__(self, x: Tensor) -> Tensor:
        query, keys, values = (self.attention.split(of, part) for part, of in enumerate((self.latent, x, x)))
        found = self.attention(query.expand(len(x), -1, -1, -1), keys, values)[:, 0]
        return found + self.mlp(layer_norm(found, self.norm, self.epsilon))


def rotation(form: dict[str, Any], tokens: int, channels: int, device: torch.device) -> Rotation | None:
    """The angles of a grid of patches for heads of this size; the class token is not turned. Half of the channels follow one
    coordinate, half the other."""
    rotary = form["rotary"]
    if rotary is None:
        return None
    first = int(form["class_token"])
    side = round((tokens - first) ** 0.5)
    place = (torch.arange(side, dtype=torch.float64) + rotary["offset"]) * ((rotary["reference"] or side) / side)
    bands = rotary["temperature"] ** (-torch.arange(channels // 4, dtype=torch.float64) / (channels // 4))
    rows = (place[:, None] * bands).repeat_interleave(side, 0)
    columns = (place[:, None] * bands).repeat(side, 1)
    angles = torch.cat([columns, rows] if rotary["column_first"] else [rows, columns], 1)
    angles = F.pad(angles, (0, 0, first, 0))
    return angles.cos().float().to(device), angles.sin().float().to(device)


def projected(x: Tensor, matrix: Tensor | None, bias: Tensor | None) -> Tensor:
    """In the joint space."""
    if matrix is None:
        return x
    return x @ matrix if bias is None else x @ matrix + bias


class ModifiedResNet:
    """The frozen ResNet of CLIP: three convolutions at its stem, average pools in place of strides, attention at its end."""

    def __init__(self, weights: Weights, config: dict[str, Any]) -> None:
        self.weights, self.blocks, self.heads = weights, config["blocks"], config["heads"]
        self.passes = ["norms"]
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
