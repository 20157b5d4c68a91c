"""A torch model and a method of one's own on a folder of one's own images: evaluated beside the usual methods, with a report.

    python python/examples/own_model.py FOLDER OUT [DEVICE]

FOLDER has one subfolder of images per class. Replace `TinyClip` by your model: two functions are all that flatclip asks for.
"""

from __future__ import annotations

import hashlib
import sys

import numpy as np
import torch
from torch import Tensor, nn

import flatclip

SIZE, WIDTH, VOCABULARY = 64, 32, 512


class TinyClip(nn.Module):
    """Stands for a model of one's own; these weights are random."""

    def __init__(self) -> None:
        super().__init__()
        cells = nn.Sequential(nn.Conv2d(3, 16, 8, stride=8), nn.GELU(), nn.Conv2d(16, 32, 2, stride=2), nn.GELU())
        self.image = nn.Sequential(cells, nn.Flatten(), nn.Linear(512, WIDTH))
        self.words = nn.EmbeddingBag(VOCABULARY, WIDTH)

    def encode_text(self, texts: list[str]) -> Tensor:
        ids = [[int(hashlib.sha256(word.encode()).hexdigest(), 16) % VOCABULARY for word in text.split()] for text in texts]
        return torch.stack([self.words(torch.tensor([row], device=self.words.weight.device))[0] for row in ids])


@flatclip.register_adapter("sharp-mean", options={"power": flatclip.Option(4.0, minimum=0.0, doc="Exponent of the weights.")})
def sharp_mean(views, text, scale, *, power):
    """Mean probability of all views, weighted by their largest probability."""
    logits = scale * views @ text.T  # [V, K]
    p = np.exp(logits - logits.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    return p.max(1) ** power @ p


def main(folder: str, out: str, device: str = "cpu") -> None:
    torch.manual_seed(0)
    module = TinyClip().to(device).eval().requires_grad_(False)
    # The weights name the features: other weights never meet these in the cache or in a resumed run.
    weights = hashlib.sha256(b"".join(p.cpu().numpy().tobytes() for p in module.parameters())).hexdigest()
    model = flatclip.Encoder(
        lambda pixels: module.image(torch.from_numpy(pixels).to(device)),  # [n, 3, SIZE, SIZE], normalised
        module.encode_text, size=SIZE, mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5), logit_scale=30.0, fingerprint=weights,
        device=device, name="tiny",
    )  # fmt: skip
    methods = ["zero-shot", "zero", "mta", "tda", "sharp-mean"]
    flatclip.evaluate(model, f"folder:{folder}", methods, views=16, cache=f"{out}/cache", out=f"{out}/runs", resume=True)
    print(flatclip.report(f"{out}/runs").tables[0])


if __name__ == "__main__":
    main(*sys.argv[1:])
