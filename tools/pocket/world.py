"""The images and captions that `cargo run --release -p flatclip-pocket --example export` wrote."""

import json
import pathlib

import numpy as np
import torch
from PIL import Image

SIDE = 112
DOMAINS = ["photo", "sketch", "cartoon", "painting", "noise", "rendition", "hard"]
SHIFTS = DOMAINS[1:]
CLASSES = (
    "car bus truck bicycle boat airplane house tree flower mushroom cactus fish bird cat dog butterfly snail apple pear "
    "banana cup bottle vase chair table lamp clock umbrella key hammer guitar shoe"
).split()
MEAN = torch.tensor([0.48145466, 0.4578275, 0.40821073]).view(1, 3, 1, 1)
STD = torch.tensor([0.26862954, 0.26130258, 0.27577711]).view(1, 3, 1, 1)


class Images:
    """One split: `pixels` [N, 112, 112, 3] bytes and one record of facts and captions each."""

    def __init__(self, directory, world, domain):
        stem = pathlib.Path(directory) / f"{world}-{domain}"
        self.pixels = np.memmap(f"{stem}.rgb", np.uint8, "r").reshape(-1, SIDE, SIDE, 3)
        self.records = [json.loads(line) for line in open(f"{stem}.jsonl")]
        self.labels = np.array([record["class"] for record in self.records])
        assert len(self.pixels) == len(self.records)


def normalise(images):
    """A list of HWC byte arrays as CLIP sees them."""
    batch = torch.from_numpy(np.stack(images)).permute(0, 3, 1, 2).float() / 255
    return ((batch - MEAN) / STD).contiguous(memory_format=torch.channels_last)


def whole(image, size):
    return np.asarray(Image.fromarray(image).resize((size, size), Image.BICUBIC))


def crop(image, size, generator, smallest):
    """A random crop of `smallest` to 1 of the area, aspect 3/4 to 4/3."""
    side = image.shape[0]
    while True:
        area = generator.uniform(smallest, 1) * side * side
        ratio = np.exp(generator.uniform(np.log(3 / 4), np.log(4 / 3)))
        wide, high = round(np.sqrt(area * ratio)), round(np.sqrt(area / ratio))
        if wide <= side and high <= side:
            break
    left, top = generator.integers(side - wide + 1), generator.integers(side - high + 1)
    image = Image.fromarray(image[top : top + high, left : left + wide])
    return np.asarray(image.resize((size, size), Image.BICUBIC))
