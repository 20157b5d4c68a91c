"""Trains pocket-vit's image tower: `train_vit.py DATA TEACHER OUT --minutes 75`. TEACHER is a run of train.py or its shipped folder.

The teacher's text tower is kept as it is, so both models share one space; the new tower learns from captions, from class names
and from the teacher's embedding of the same crop. The schedule follows the clock, so that a run ends when it is told to.
Two processes: one draws, crops and asks the teacher, one trains.
"""

import argparse
import math
import pathlib
import time

import numpy as np
import torch

import bpe
import evaluate
import model as pocket
import muon
import pairs
import vit
import world

WARM_UP = 200


class Batches(torch.utils.data.IterableDataset):
    """Endless batches: pixels, teacher's image features, captions' text features, truth matrix, labels."""

    def __init__(self, data, teacher, tokenizer, size, seed):
        self.data, self.teacher, self.tokenizer, self.size, self.seed = data, teacher, tokenizer, size, seed

    @torch.no_grad()
    def __iter__(self):
        torch.set_num_threads(1)
        generator = np.random.default_rng(self.seed)
        splits = {domain: world.Images(self.data, "train", domain) for domain in world.DOMAINS}
        draws = pairs.Draws(splits, pocket.IMAGE, generator)
        while True:
            images, records, captions = draws.batch(self.size)
            # The world has no left and right: half of the images are seen in the mirror.
            images = [p[:, ::-1] if generator.random() < 0.5 else p for p in images]
            pixels = world.normalise(images)
            told = pocket.image_features(self.teacher, pixels)
            text = pocket.text_features(self.teacher, self.tokenizer.batch([c["text"] for c in captions]))
            labels = torch.tensor([record["class"] for record in records])
            yield pixels.contiguous(), told, text, pairs.truth(records, captions), labels


def accuracy(model, text, split):
    model.eval()
    share = (evaluate.answers(vit, model, text, split.pixels) == split.labels).mean()
    model.train()
    return share


def choose(model, trained, args):
    """Muon for the blocks' matrices, AdamW for the rest."""
    blocks = [p for p in model.vision_model.encoder.parameters() if p.ndim == 2]
    inside = set(map(id, blocks))
    groups = [
        {"params": [p for p in trained if p.ndim > 1 and id(p) not in inside], "weight_decay": 0.05},
        {"params": [p for p in trained if p.ndim <= 1], "weight_decay": 0.0},
    ]
    optimisers = [torch.optim.AdamW(groups, lr=args.lr, betas=(0.9, 0.98)), muon.Muon(blocks, args.muon)]
    for group in (group for optimiser in optimisers for group in optimiser.param_groups):
        group["top"] = group["lr"]
    return optimisers


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("data")
    parser.add_argument("teacher")
    parser.add_argument("out")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=75)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--lr", type=float, default=1e-3, help="AdamW's, for all but the blocks' matrices")
    parser.add_argument("--muon", type=float, default=0.02, help="Muon's learning rate, for the blocks' matrices")
    parser.add_argument("--distil", type=float, default=10, help="weight of 1 - cosine to the teacher's embedding")
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    out = pathlib.Path(args.out)
    out.mkdir(parents=True, exist_ok=True)

    teacher, tokenizer = pocket.load(args.teacher), bpe.Tokenizer.load(args.teacher)
    tokenizer.save(out)
    watch = world.Images(args.data, "validation", "photo")
    names = evaluate.class_features(pocket, teacher, tokenizer)
    model = vit.build(teacher).train()
    model.config.save_pretrained(out)
    image = [p for n, p in model.named_parameters() if n.startswith("vis")]
    print(f"parameters: {sum(p.numel() for p in image)} image, {sum(p.numel() for p in model.parameters())} in all", flush=True)

    trained = [*image, model.logit_scale]
    optimisers = choose(model, trained, args)
    batches = iter(
        torch.utils.data.DataLoader(
            Batches(args.data, teacher, tokenizer, args.batch, args.seed), batch_size=None, num_workers=1, prefetch_factor=4
        )
    )
    next(batches)
    start, told, mean, step, progress = time.time(), time.time(), None, 0, 0.0
    while progress < 1:
        progress = min(1.0, (time.time() - start) / (60 * args.minutes))
        rate = min(1.0, (step + 1) / WARM_UP) * (0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * progress)))
        for group in (group for optimiser in optimisers for group in optimiser.param_groups):
            group["lr"] = group["top"] * rate
        pixels, shown, text, target, labels = next(batches)
        features = vit.image_features(model, pixels)
        scale = model.logit_scale.exp()
        losses = (
            pairs.contrastive(scale * features @ text.T, target),
            torch.nn.functional.cross_entropy(scale * features @ names.T, labels),
            1 - (features * shown).sum(1).mean(),
        )
        loss = losses[0] + losses[1] + args.distil * losses[2]
        model.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        for optimiser in optimisers:
            optimiser.step()
        with torch.no_grad():
            model.logit_scale.clamp_(0, math.log(100))
        now = torch.tensor([value.item() for value in losses])
        mean = now if mean is None else 0.98 * mean + 0.02 * now
        step += 1
        if time.time() - told > 60 or progress >= 1:
            told = time.time()
            seen = step * args.batch
            print(
                f"{told - start:.0f} s, step {step}, {seen} samples, {seen / (told - start):.0f}/s, captions {mean[0]:.3f}, names {mean[1]:.3f}, "
                f"teacher {mean[2]:.3f}, scale {model.logit_scale.exp():.1f}, photo validation {accuracy(model, names, watch):.3f}",
                flush=True,
            )
            torch.save(model.state_dict(), out / "last.pt")
    torch.save(model.state_dict(), out / "model.pt")


if __name__ == "__main__":
    main()
