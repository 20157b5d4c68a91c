"""Zero-shot accuracy per domain: `evaluate.py DATA RUN --world validation`. RUN is a training directory or a shipped one.

Either model: a pocket CLIP (open_clip) or a pocket-vit (transformers).
"""

import argparse
import json

import numpy as np
import torch

import bpe
import model as pocket
import vit
import world

TEMPLATE = "a photo of a {}."


def load(directory):
    """Towers (the module that knows how to use them), model and tokenizer of a directory."""
    towers = vit if vit.is_one(directory) else pocket
    return towers, towers.load(directory), bpe.Tokenizer.load(directory)


@torch.no_grad()
def class_features(towers, model, tokenizer, template=TEMPLATE):
    return towers.text_features(model, tokenizer.batch([template.format(name) for name in world.CLASSES]))


@torch.no_grad()
def answers(towers, model, text, pixels):
    parts = []
    for start in range(0, len(pixels), 128):
        batch = world.normalise([world.whole(p, pocket.IMAGE) for p in pixels[start : start + 128]])
        parts.append((towers.image_features(model, batch) @ text.T).argmax(1).numpy())
    return np.concatenate(parts)


def context_gradient(model, tokenizer, split):
    """How much the loss of a few images changes with the four context tokens of "a photo of a": gradient norm, and the
    loss after one step of 0.1 of the context's norm along the gradient and in a random direction."""
    tokens = tokenizer.batch([TEMPLATE.format(name) for name in world.CLASSES])
    embedded = model.token_embedding(tokens).detach()
    context = embedded[0, 1:5].clone().requires_grad_()
    pixels = world.normalise([world.whole(p, pocket.IMAGE) for p in split.pixels[:128]])
    labels = torch.from_numpy(split.labels[:128])
    with torch.no_grad():
        images = pocket.image_features(model, pixels)

    def loss(context):
        x = torch.cat([embedded[:, :1], context.expand(len(embedded), -1, -1), embedded[:, 5:]], 1)
        length = x.shape[1]
        x = model.transformer(x + model.positional_embedding[:length], attn_mask=model.attn_mask[:length, :length])
        x = model.ln_final(x)[torch.arange(len(x)), tokens.argmax(1)] @ model.text_projection
        text = torch.nn.functional.normalize(x, dim=-1)
        return torch.nn.functional.cross_entropy(model.logit_scale.exp() * images @ text.T, labels)

    base = loss(context)
    (gradient,) = torch.autograd.grad(base, context)
    with torch.no_grad():
        reach = 0.1 * context.norm()
        noise = torch.randn(context.shape, generator=torch.Generator().manual_seed(0))
        up = loss(context + reach * gradient / gradient.norm())
        aside = loss(context + reach * noise / noise.norm())
    return {
        "context_norm": context.norm().item(),
        "gradient_norm": gradient.norm().item(),
        "loss": base.item(),
        "loss_uphill": up.item(),
        "loss_random": aside.item(),
    }


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("data")
    parser.add_argument("run")
    parser.add_argument("--world", default="validation")
    parser.add_argument("--count", type=int, default=512)
    parser.add_argument("--confusion", action="store_true", help="print the photo confusions, most frequent first")
    args = parser.parse_args()
    torch.set_num_threads(1)
    towers, model, tokenizer = load(args.run)
    text = class_features(towers, model, tokenizer)
    result = {"world": args.world, "count": args.count, "scale": round(model.logit_scale.exp().item(), 2)}
    for domain in world.DOMAINS:
        split = world.Images(args.data, args.world, domain)
        labels = split.labels[: args.count]
        found = answers(towers, model, text, split.pixels[: args.count])
        result[domain] = round(100 * float((found == labels).mean()), 1)
        if domain == "photo" and args.confusion:
            pairs, counts = np.unique(np.stack([labels, found], 1)[labels != found], axis=0, return_counts=True)
            for at in np.argsort(-counts):
                print(f"{counts[at]:3d} {world.CLASSES[pairs[at][0]]} taken for {world.CLASSES[pairs[at][1]]}")
    result["shifted mean"] = round(sum(result[d] for d in world.SHIFTS) / len(world.SHIFTS), 1)
    # pocket-vit has the text tower of the other model, so only that one is looked into.
    if towers is pocket:
        gradient = context_gradient(model, tokenizer, world.Images(args.data, args.world, "photo"))
        result |= {name: round(value, 4) for name, value in gradient.items()}
    print(json.dumps(result))


if __name__ == "__main__":
    main()
