"""A torch model of one's own on a folder of one's own images: evaluated beside the usual methods, with a report.

    python python/examples/own_model.py FOLDER OUT [DEVICE]

FOLDER has one subfolder of images per class. Replace `TinyClip` by your model: two functions are all that flatclip asks for.
"""

from __future__ import annotations

import hashlib
import sys

import torch
from torch import Tensor, nn

import flatclip

SIZE, WIDTH, VOCABULARY = 64, 32, 512


class TinyClip(nn.Module):
    """Stands for a model of one's own; these weights are random."""

    def __init__(self) -> None:
        super().__init__()
        self.image = nn.Sequential(
            nn.Conv2d(3, 16, 8, stride=8), nn.GELU(), nn.Conv2d(16, 32, 2, stride=2), nn.GELU(), nn.Flatten(), nn.Linear(512, WIDTH)
        )
        self.words = nn.EmbeddingBag(VOCABULARY, WIDTH)

    def encode_text(self, texts: list[str]) -> Tensor:
        ids = [[int(hashlib.sha256(word.encode()).hexdigest(), 16) % VOCABULARY for word in text.split()] for text in texts]
        return torch.stack([self.words(torch.tensor([row], device=self.words.weight.device))[0] for row in ids])


def main(folder: str, out: str, device: str = "cpu") -> None:
    torch.manual_seed(0)
    module = TinyClip().to(device).eval()

    @torch.inference_mode()
    def image(pixels):  # [n, 3, SIZE, SIZE], normalised
        return module.image(torch.from_numpy(pixels).to(device))

    @torch.inference_mode()
    def text(texts):
        return module.encode_text(texts)

    # The weights name the features: other weights never meet these in the cache or in a resumed run.
    weights = hashlib.sha256(b"".join(p.detach().cpu().numpy().tobytes() for p in module.parameters())).hexdigest()
    model = flatclip.Encoder(
        image, text, size=SIZE, mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5), logit_scale=30.0, fingerprint=weights, device=device, name="tiny"
    )
    methods = ["zero-shot", "zero", "mta", "tda"]
    flatclip.evaluate(model, f"folder:{folder}", methods, views=16, cache=f"{out}/cache", out=f"{out}/runs", resume=True)
    print(flatclip.report(f"{out}/runs").tables[0])


if __name__ == "__main__":
    main(*sys.argv[1:])
