"""Trains a pocket CLIP from scratch: `train.py DATA OUT --seed 0`. Writes OUT/last.pt while it runs, OUT/model.pt at the end."""

import argparse
import json
import math
import pathlib
import time

import numpy as np
import torch

import bpe
import model as pocket
import pairs
import world

parser = argparse.ArgumentParser()
parser.add_argument("data")
parser.add_argument("out")
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--samples", type=int, default=200_000)
parser.add_argument("--batch", type=int, default=96)
parser.add_argument("--lr", type=float, default=2e-3)
parser.add_argument("--text-layers", type=int, default=2)
parser.add_argument("--longest", type=int, default=4, help="letters in a word piece")
parser.add_argument("--crops", type=float, default=0.5, help="fraction of samples that are random crops")
parser.add_argument("--smallest", type=float, default=0.35, help="smallest crop, as a fraction of the area")
parser.add_argument("--shift", type=float, default=0.01, help="fraction of samples from each shifted domain")
parser.add_argument("--threads", type=int, default=1)
args = parser.parse_args()

torch.set_num_threads(args.threads)
torch.manual_seed(args.seed)
generator = np.random.default_rng(args.seed)
out = pathlib.Path(args.out)
out.mkdir(parents=True, exist_ok=True)

train = {domain: world.Images(args.data, "train", domain) for domain in world.DOMAINS}
draws = pairs.Draws(train, pocket.IMAGE, generator, args.crops, args.smallest, args.shift)
watch = world.Images(args.data, "validation", "photo")
tokenizer = bpe.Tokenizer(
    bpe.learn([c["text"] for split in train.values() for r in split.records[:4000] for c in r["captions"]], args.longest)
)
tokenizer.save(out)
cfg = pocket.config(len(tokenizer.vocab), args.text_layers)
(out / "config.json").write_text(json.dumps(cfg))
model = pocket.initialise(pocket.build(cfg))
counts = [sum(p.numel() for p in part.parameters()) for part in (model.visual, model)]
print(f"parameters: {counts[0]} image, {counts[1]} in all; {len(tokenizer.vocab)} tokens", flush=True)
print("names:", " ".join("+".join(tokenizer.pieces(name)) for name in world.CLASSES), flush=True)

matrices = [p for p in model.parameters() if p.ndim > 1]
vectors = [p for p in model.parameters() if p.ndim <= 1]
groups = [{"params": matrices, "weight_decay": 0.05}, {"params": vectors, "weight_decay": 0.0}]
optimiser = torch.optim.AdamW(groups, lr=args.lr, betas=(0.9, 0.98), eps=1e-8)


@torch.no_grad()
def validation_accuracy():
    model.eval()
    text = pocket.text_features(model, tokenizer.batch([f"a photo of a {name}." for name in world.CLASSES]))
    hits = 0
    for start in range(0, len(watch.labels), 128):
        batch = world.normalise([world.whole(p, pocket.IMAGE) for p in watch.pixels[start : start + 128]])
        answers = (pocket.image_features(model, batch) @ text.T).argmax(1).numpy()
        hits += (answers == watch.labels[start : start + 128]).sum()
    model.train()
    return hits / len(watch.labels)


steps = args.samples // args.batch
start, told, mean = time.time(), time.time(), None
for step in range(steps):
    warm = min(1.0, (step + 1) / 100)
    rate = args.lr * warm * (0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * step / steps)))
    for group in optimiser.param_groups:
        group["lr"] = rate
    images, records, captions = draws.batch(args.batch)
    image = pocket.image_features(model, world.normalise(images))
    text = pocket.text_features(model, tokenizer.batch([caption["text"] for caption in captions]))
    logits = model.logit_scale.exp() * image @ text.T
    loss = pairs.contrastive(logits, pairs.truth(records, captions))
    optimiser.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimiser.step()
    with torch.no_grad():
        model.logit_scale.clamp_(0, math.log(100))
    mean = loss.item() if mean is None else 0.98 * mean + 0.02 * loss.item()
    if time.time() - told > 60 or step + 1 == steps:
        told = time.time()
        seen = (step + 1) * args.batch
        print(
            f"{told - start:.0f} s, step {step + 1} of {steps}, {seen} samples, {seen / (told - start):.0f}/s, loss {mean:.3f}, "
            f"scale {model.logit_scale.exp():.1f}, photo validation {validation_accuracy():.3f}",
            flush=True,
        )
        torch.save(model.state_dict(), out / "last.pt")
torch.save(model.state_dict(), out / "model.pt")
