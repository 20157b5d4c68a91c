"""The peers of `cargo xtask bench-peers`: one process, asked over a pipe.

Every line of stdin names a piece of work; the answer is one line of JSON with its seconds (or why it could not run).
Work is prepared and warmed up when first asked for. Random weights of the real shapes; nothing is downloaded.
"""
import json
import os
import sys
import time

THREADS = int(os.environ["PEER_THREADS"])
os.environ["OMP_NUM_THREADS"] = str(THREADS)

import torch
import torch.nn.functional as F

torch.set_num_threads(THREADS)
torch.manual_seed(0)
VIEWS, BATCH, CONTEXT = 64, 32, 4


def clip():
    import open_clip

    model = open_clip.create_model("ViT-B-16", pretrained=None).eval()
    model.requires_grad_(False)
    return model


def torch_views(dtype):
    visual = clip().visual.to(dtype)
    pixels = torch.randn(VIEWS, 3, 224, 224, dtype=dtype)

    def run():
        with torch.inference_mode():
            visual(pixels)

    return run


def openvino_views(precision):
    import openvino as ov

    visual, pixels = clip().visual, torch.randn(VIEWS, 3, 224, 224)
    options = {"INFERENCE_PRECISION_HINT": precision, "INFERENCE_NUM_THREADS": THREADS, "PERFORMANCE_HINT": "LATENCY"}
    compiled = ov.Core().compile_model(ov.convert_model(visual, example_input=pixels[:1]), "CPU", options)
    array = pixels.numpy()
    return lambda: compiled(array)


def names(count):
    """Token ids of class names, as long as ImageNet's are: given by flatclip, so that both sides run the same."""
    return json.load(open(os.environ["PEER_TOKENS"]))[:count]


def loss_of(features, images, scale):
    logits = scale * images @ F.normalize(features, dim=-1).T
    return F.cross_entropy(logits, torch.arange(BATCH) % features.shape[0])


def full_step(count):
    """CoOp as published: every class at 77 positions through open_clip's text tower."""
    model = clip()
    rows = torch.zeros(count, 77, dtype=torch.long)
    for row, name in zip(rows, names(count)):
        ids = [49406] + [343] * CONTEXT + name
        row[: len(ids)] = torch.tensor(ids)
    ends = rows.argmax(-1)
    embedded = model.token_embedding(rows)
    context = embedded[0, 1 : 1 + CONTEXT].clone().requires_grad_()
    images = F.normalize(torch.randn(BATCH, 512), dim=-1)

    def run():
        context.grad = None
        shared = context.expand(count, -1, -1)
        x = torch.cat([embedded[:, :1], shared, embedded[:, 1 + CONTEXT :]], 1) + model.positional_embedding
        x = model.ln_final(model.transformer(x, attn_mask=model.attn_mask))
        x = x[torch.arange(count), ends] @ model.text_projection
        loss_of(x, images, 100.0).backward()

    return run


def shared_step(count):
    """The same sums with flatclip's idea in torch: the prefix once, own tokens ragged, the last block at the ends only."""
    model = clip()
    tails = sorted(names(count), key=len)
    lengths = torch.tensor([len(tail) for tail in tails])
    starts = torch.cumsum(lengths, 0) - lengths
    ids = torch.tensor([id for tail in tails for id in tail])
    places = torch.cat([torch.arange(len(tail)) for tail in tails]) + 1 + CONTEXT
    own = model.token_embedding(ids) + model.positional_embedding[places]
    groups = []  # classes of one length: attention without padding
    for length in lengths.unique().tolist():
        classes = (lengths == length).nonzero()[:, 0]
        rows = (starts[classes][:, None] + torch.arange(length)).flatten()
        groups.append((length, len(classes), rows))
    ends = starts + lengths - 1
    context = torch.randn(CONTEXT, 512).mul_(0.02).requires_grad_()
    images = F.normalize(torch.randn(BATCH, 512), dim=-1)
    blocks, heads = model.transformer.resblocks, 8
    masks = {
        length: torch.cat(
            [torch.ones(length, 1 + CONTEXT, dtype=torch.bool), torch.ones(length, length, dtype=torch.bool).tril()], 1
        )
        for length, _, _ in groups
    }

    def split(x):
        return x.view(*x.shape[:-1], heads, 64).transpose(-3, -2)

    def qkv_of(block, x):
        return F.linear(block.ln_1(x), block.attn.in_proj_weight, block.attn.in_proj_bias).chunk(3, -1)

    def rest(block, x, attended):
        x = x + block.attn.out_proj(attended)
        return x + block.mlp(block.ln_2(x))

    def run():
        context.grad = None
        prefix = torch.cat([model.token_embedding(torch.tensor([49406])), context]) + model.positional_embedding[: 1 + CONTEXT]
        x = own
        for layer, block in enumerate(blocks):
            last = layer + 1 == len(blocks)
            pq, pk, pv = (split(part) for part in qkv_of(block, prefix))
            q, k, v = qkv_of(block, x)
            parts, order = [], []
            for length, classes, rows in groups:
                gk, gv = (split(part[rows].view(classes, length, 512)) for part in (k, v))
                gk = torch.cat([pk.expand(classes, -1, -1, -1), gk], 2)
                gv = torch.cat([pv.expand(classes, -1, -1, -1), gv], 2)
                asking = rows.view(classes, length)[:, -1:] if last else rows.view(classes, length)
                gq = split(q[asking])
                mask = masks[length][-1:] if last else masks[length]
                out = F.scaled_dot_product_attention(gq, gk, gv, attn_mask=mask)
                parts.append(out.transpose(1, 2).reshape(-1, 512))
                order.append(asking.flatten())
            attended = torch.cat(parts)
            x = rest(block, x[torch.cat(order)], attended)
            if not last:
                attended = F.scaled_dot_product_attention(pq, pk, pv, is_causal=True).transpose(0, 1).reshape(-1, 512)
                prefix = rest(block, prefix, attended)
        loss_of(model.ln_final(x) @ model.text_projection, images, 100.0).backward()

    return run


WORK = {
    "torch-views-f32": lambda: torch_views(torch.float32),
    "torch-views-bf16": lambda: torch_views(torch.bfloat16),
    "openvino-views-f32": lambda: openvino_views("f32"),
    "openvino-views-bf16": lambda: openvino_views("bf16"),
    "open_clip-step-100": lambda: full_step(100),
    "shared-step-100": lambda: shared_step(100),
    "shared-step-1000": lambda: shared_step(1000),
}


def main():
    ready, answers = {}, os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # libraries that print must not disturb the answers
    for line in sys.stdin:
        name = line.strip()
        try:
            if name not in ready:
                ready.clear()  # one at a time in memory
                ready[name] = WORK[name]()
                ready[name]()
            start = time.perf_counter()
            ready[name]()
            answer = {"seconds": time.perf_counter() - start}
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=answers, flush=True)


main()
