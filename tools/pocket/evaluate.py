"""Zero-shot accuracy per domain: `evaluate.py DATA RUN --world validation`. RUN is a training directory or a shipped one.

The shipped form is read in f32 from its f16 weights, so that what is measured is what is shipped.
"""

import argparse
import json
import pathlib

import numpy as np
import torch
from safetensors.torch import load_file

import bpe
import model as pocket
import world

TEMPLATE = "a photo of a {}."


def load(directory):
    directory = pathlib.Path(directory)
    shipped = directory / "open_clip_model.safetensors"
    if shipped.exists():
        cfg = json.loads((directory / "open_clip_config.json").read_text())["model_cfg"]
        state = {name: tensor.float() for name, tensor in load_file(shipped).items()}
    else:
        cfg = json.loads((directory / "config.json").read_text())
        best = directory / "model.pt"
        state = torch.load(best if best.exists() else directory / "last.pt")
    model = pocket.build(cfg)
    missing, unexpected = model.load_state_dict(state, strict=False)
    # The shipped file leaves out the batch counters and the causal mask; nothing else may differ.
    assert not unexpected and all(n.endswith("num_batches_tracked") or n == "attn_mask" for n in missing), (missing, unexpected)
    return model.eval(), bpe.Tokenizer.load(directory)


@torch.no_grad()
def class_features(model, tokenizer, template=TEMPLATE):
    return pocket.text_features(model, tokenizer.batch([template.format(name) for name in world.CLASSES]))


@torch.no_grad()
def answers(model, text, pixels):
    parts = []
    for start in range(0, len(pixels), 128):
        batch = world.normalise([world.whole(p, pocket.IMAGE) for p in pixels[start : start + 128]])
        parts.append((pocket.image_features(model, batch) @ text.T).argmax(1).numpy())
    return np.concatenate(parts)


def context_gradient(model, tokenizer, split):
    """How much the loss of a few pictures changes with the four context tokens of "a photo of a": gradient norm, and the
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
    model, tokenizer = load(args.run)
    text = class_features(model, tokenizer)
    result = {"world": args.world, "count": args.count, "scale": round(model.logit_scale.exp().item(), 2)}
    for domain in world.DOMAINS:
        split = world.Pictures(args.data, args.world, domain)
        labels = split.labels[: args.count]
        found = answers(model, text, split.pixels[: args.count])
        result[domain] = round(100 * float((found == labels).mean()), 1)
        if domain == "photo" and args.confusion:
            pairs, counts = np.unique(np.stack([labels, found], 1)[labels != found], axis=0, return_counts=True)
            for at in np.argsort(-counts):
                print(f"{counts[at]:3d} {world.CLASSES[pairs[at][0]]} taken for {world.CLASSES[pairs[at][1]]}")
    result["shifted mean"] = round(sum(result[d] for d in world.SHIFTS) / len(world.SHIFTS), 1)
    gradient = context_gradient(model, tokenizer, world.Pictures(args.data, args.world, "photo"))
    result |= {name: round(value, 4) for name, value in gradient.items()}
    print(json.dumps(result))


if __name__ == "__main__":
    main()
