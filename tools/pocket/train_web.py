"""Trains a pocket CLIP on web captions: `train_web.py DATA START OUT --seed 0`, by InfoNCE as CLIP was.

START is a model whose image tower is trained already (a run or a shipped folder of either kind), or `none` for a new ResNet; the
text tower is new. All styles are seen (`--photos` of the samples are photos, the shifts share the rest evenly), so that to a prompt tuned on photos a shift is new,
not to the model. Writes OUT/last.pt while it runs, OUT/model.pt at the end.
"""

import argparse
import json
import math
import pathlib
import time

import numpy as np
import torch

import bpe
import captions
import evaluate
import model as pocket
import vit
import world

parser = argparse.ArgumentParser()
parser.add_argument("data")
parser.add_argument("start")
parser.add_argument("out")
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--samples", type=int, default=36_000)
parser.add_argument("--batch", type=int, default=96)
parser.add_argument("--lr", type=float, default=1.5e-3, help="of what is new; an image tower that is trained already has half")
parser.add_argument("--scale-lr", type=float, default=10, help="of the temperature, as a multiple of the text tower's")
parser.add_argument("--text-layers", type=int, default=4)
parser.add_argument("--text-width", type=int, default=64)
parser.add_argument("--longest", type=int, default=4, help="letters in a word piece")
parser.add_argument("--crops", type=float, default=0.6, help="fraction of samples that are random crops")
parser.add_argument("--smallest", type=float, default=0.25, help="smallest crop, as a fraction of the area")
parser.add_argument("--photos", type=float, default=0.4)
parser.add_argument("--own", type=float, default=0.03, help="share of names that are the evaluation's own")
args = parser.parse_args()

torch.set_num_threads(1)
torch.manual_seed(args.seed)
generator = np.random.default_rng(args.seed)
out = pathlib.Path(args.out)
out.mkdir(parents=True, exist_ok=True)
print(json.dumps(vars(args)), flush=True)

train = {domain: world.Images(args.data, "train", domain) for domain in world.DOMAINS}
watch = world.Images(args.data, "validation", "photo")
writer = captions.Writer(generator, args.own)


def learn_tokenizer():
    """From captions of their own, so that every seed has the same pieces."""
    first = captions.Writer(np.random.default_rng(0), args.own)
    return bpe.Tokenizer(bpe.learn([first.write(r) for split in train.values() for r in split.records[:4000]], args.longest))


def build():
    """A new text tower beside the image tower of START."""
    cfg = pocket.config(len(tokenizer.vocab), args.text_layers, args.text_width)
    model = pocket.initialise(pocket.build(cfg))
    if not vit.is_one(args.start):
        (out / "config.json").write_text(json.dumps(cfg))
        if args.start == "none":
            return pocket, model, model.visual.parameters()
        model.visual.load_state_dict(pocket.load(args.start).visual.state_dict())
        return pocket, model, model.visual.parameters()
    model, start = vit.build(model), vit.load(args.start)
    model.vision_model.load_state_dict(start.vision_model.state_dict())
    model.visual_projection.load_state_dict(start.visual_projection.state_dict())
    model.config.save_pretrained(out)
    return vit, model, [*model.vision_model.parameters(), *model.visual_projection.parameters()]


def draw():
    shift = world.SHIFTS[int(generator.random() * len(world.SHIFTS))]
    split = train["photo" if generator.random() < args.photos else shift]
    at = int(generator.integers(len(split.records)))
    image = split.pixels[at]
    if generator.random() < args.crops:
        image = world.crop(image, pocket.IMAGE, generator, args.smallest)
    else:
        image = world.whole(image, pocket.IMAGE)
    # The world has no left and right.
    return image[:, ::-1] if generator.random() < 0.5 else image, writer.write(split.records[at])


def tokens(texts):
    """Rows padded to the longest; a caption longer than the tower's context is cut before its end token."""
    rows = [tokenizer.sequence(text) for text in texts]
    rows = [row if len(row) <= pocket.CONTEXT else row[: pocket.CONTEXT - 1] + row[-1:] for row in rows]
    length = max(map(len, rows))
    return torch.tensor([row + [0] * (length - len(row)) for row in rows])


def accuracy(template, count=512):
    model.eval()
    text = evaluate.class_features(towers, model, tokenizer, template)
    found = evaluate.answers(towers, model, text, watch.pixels[:count])
    model.train()
    return (found == watch.labels[:count]).mean()


tokenizer = learn_tokenizer()
tokenizer.save(out)
towers, model, image = build()
model.train()
image = set(image)
groups = [{"params": [model.logit_scale], "weight_decay": 0.0, "factor": args.scale_lr}]
for of_image, factor in ((True, 1.0 if args.start == "none" else 0.5), (False, 1.0)):
    for matrices, decay in ((True, 0.05), (False, 0.0)):
        chosen = [p for p in model.parameters() if p is not model.logit_scale and (p in image) == of_image and (p.ndim > 1) == matrices]
        groups.append({"params": chosen, "weight_decay": decay, "factor": factor})
optimiser = torch.optim.AdamW(groups, lr=args.lr, betas=(0.9, 0.98), eps=1e-8)
count = sum(p.numel() for p in image), sum(p.numel() for p in model.parameters())
print(f"parameters: {count[0]} image, {count[1]} in all; {len(tokenizer.vocab)} tokens", flush=True)

steps, both = args.samples // args.batch, torch.nn.functional.cross_entropy
targets = torch.arange(args.batch)
start, told, mean = time.time(), time.time(), None
for step in range(steps):
    rate = args.lr * min(1.0, (step + 1) / 100) * (0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * step / steps)))
    for group in optimiser.param_groups:
        group["lr"] = rate * group["factor"]
    images, texts = zip(*(draw() for _ in range(args.batch)))
    image_features = towers.image_features(model, world.normalise(images))
    logits = model.logit_scale.exp() * image_features @ towers.text_features(model, tokens(texts)).T
    loss = (both(logits, targets) + both(logits.T, targets)) / 2
    optimiser.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimiser.step()
    with torch.no_grad():
        model.logit_scale.clamp_(0, math.log(100))
    mean = loss.item() if mean is None else 0.98 * mean + 0.02 * loss.item()
    if time.time() - told > 60 or step + 1 == steps:
        told, seen = time.time(), (step + 1) * args.batch
        print(
            f"{told - start:.0f} s, step {step + 1} of {steps}, {seen} samples, {seen / (told - start):.0f}/s, loss {mean:.3f}, "
            f"scale {model.logit_scale.exp():.1f}, photo validation {accuracy('a photo of a {}.'):.3f}, "
            f"with other words {accuracy('here is my {}'):.3f}",
            flush=True,
        )
        torch.save(model.state_dict(), out / "last.pt")
torch.save(model.state_dict(), out / "model.pt")
