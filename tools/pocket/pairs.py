"""Training pairs: images with one caption each, and which captions of a batch are true of which image."""

import torch

import world


class Draws:
    """Samples of the train world: mostly photos, a little of each shifted domain; crops and whole images."""

    def __init__(self, splits, size, generator, crops=0.5, smallest=0.35, shift=0.01):
        self.splits, self.size, self.generator = splits, size, generator
        self.crops, self.smallest, self.shift = crops, smallest, shift

    def sample(self):
        draw = self.generator.random()
        shift = int(draw / self.shift) if draw < self.shift * len(world.SHIFTS) else None
        split = self.splits["photo" if shift is None else world.SHIFTS[shift]]
        at = self.generator.integers(len(split.records))
        record, image = split.records[at], split.pixels[at]
        if self.generator.random() < self.crops:
            image = world.crop(image, self.size, self.generator, self.smallest)
        else:
            image = world.whole(image, self.size)
        captions = record["captions"]
        return image, record, captions[self.generator.integers(len(captions))]

    def batch(self, count):
        return zip(*(self.sample() for _ in range(count)))


def agrees(record, caption):
    """Whether all that the caption claims holds for the image."""
    return (
        caption["class"] == record["class"]
        and caption["colour"] in (None, record["colour"])
        and caption["second_colour"] in (None, record["second_colour"])
        and caption["background"] in (None, record["background"])
        and caption["style"] in (None, "photo" if record["domain"] == "hard" else record["domain"])
    )


def truth(records, captions):
    """Rows are images, columns captions. A caption counts for its own image even where it is wrong."""
    matrix = [[float(agrees(record, caption)) for caption in captions] for record in records]
    return torch.tensor(matrix).fill_diagonal_(1.0)


def contrastive(logits, target):
    """Both ways; a row's target is spread evenly over all that is true of it."""

    def one_way(logits, target):
        return -(target / target.sum(1, keepdim=True) * logits.log_softmax(1)).sum(1).mean()

    return (one_way(logits, target) + one_way(logits.T, target.T)) / 2
