"""The peers of `cargo xtask bench-peers`: one process, asked over a pipe.

Every line of stdin names a piece of work; the answer is one line of JSON with its seconds (or why it could not run). Work
is prepared and warmed up when first asked for. Random weights of the real shapes; nothing is downloaded. The folder it
runs in holds `settings.json` and `tokens.json`; it puts `photo.jpg` beside them. `settings.json` may name a real image tower
(a directory in Hugging Face's layout) and a folder of photos: the line `cosine WORK` then says how far the features of that
work are from torch's in f32.
"""
import io
import json
import os
import sys
import time

SETTINGS = json.load(open("settings.json"))
THREADS, VIEWS = SETTINGS["threads"], SETTINGS["views"]
os.environ["OMP_NUM_THREADS"] = str(THREADS)

import torch
import torch.nn.functional as F

torch.set_num_threads(THREADS)
torch.manual_seed(0)
BATCH, CONTEXT, ROWS = 32, 4, 3152


def product(dtype, k, n):
    x, weight = torch.randn(ROWS, k, dtype=dtype), torch.randn(n, k, dtype=dtype)

    def run():
        with torch.inference_mode():
            F.linear(x, weight)

    return run


def photo():
    """A smooth image of 500 x 375 with some noise, as photos have it: the same bytes for both sides."""
    from PIL import Image

    if not os.path.exists("photo.jpg"):
        coarse = torch.randint(0, 256, (12, 16, 3), dtype=torch.uint8)
        image = Image.fromarray(coarse.numpy()).resize((500, 375), Image.BICUBIC)
        noise = torch.randint(-12, 13, (375, 500, 3), dtype=torch.int16)
        pixels = (torch.tensor(list(image.tobytes()), dtype=torch.int16).view(375, 500, 3) + noise).clamp(0, 255)
        Image.fromarray(pixels.to(torch.uint8).numpy()).save("photo.jpg", quality=90)
    return open("photo.jpg", "rb").read()


def pil_views():
    """TPT's views: the image itself, and random crops, flipped."""
    from PIL import Image
    from torchvision import transforms as T

    normalise = T.Normalize((0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711))
    plain = T.Compose(
        [T.Resize(224, interpolation=T.InterpolationMode.BICUBIC), T.CenterCrop(224), T.ToTensor(), normalise]
    )
    view = T.Compose([T.RandomResizedCrop(224), T.RandomHorizontalFlip(), T.ToTensor(), normalise])
    data = photo()

    def run():
        image = Image.open(io.BytesIO(data)).convert("RGB")
        torch.stack([plain(image)] + [view(image) for _ in range(63)])

    return run


def clip(name="ViT-B-16"):
    import open_clip

    model = open_clip.create_model(name, pretrained=None).eval()
    model.requires_grad_(False)
    return model


class RealTower(torch.nn.Module):
    """An image tower of Hugging Face's layout, from pixels to features."""

    def __init__(self, folder):
        super().__init__()
        from transformers import CLIPVisionModelWithProjection

        self.model = CLIPVisionModelWithProjection.from_pretrained(folder, attn_implementation="sdpa").eval()
        self.requires_grad_(False)

    def forward(self, pixels):
        return self.model(pixel_values=pixels).image_embeds


def vit():
    """The ViT-B/16 that the image rows run, and what it sees: photos where a real tower is given, noise elsewhere."""
    if not SETTINGS.get("tower"):
        return clip().visual, torch.randn(VIEWS, 3, 224, 224)
    from pathlib import Path

    from PIL import Image
    from torchvision import transforms as T

    normalise = T.Normalize((0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711))
    plain = T.Compose(
        [T.Resize(224, interpolation=T.InterpolationMode.BICUBIC), T.CenterCrop(224), T.ToTensor(), normalise]
    )
    endings = {".jpg", ".jpeg", ".png", ".webp"}
    files = sorted(path for path in Path(SETTINGS["photos"]).rglob("*") if path.suffix.lower() in endings)
    files = (files * (VIEWS // len(files) + 1))[:VIEWS]
    return RealTower(SETTINGS["tower"]), torch.stack([plain(Image.open(file).convert("RGB")) for file in files])


def torch_views(dtype):
    visual, pixels = vit()
    visual, pixels = visual.to(dtype), pixels.to(dtype)

    def run():
        with torch.inference_mode():
            return visual(pixels)

    return run


def torch_resnet(dtype):
    visual = clip("RN50").visual.to(dtype).to(memory_format=torch.channels_last)
    pixels = torch.randn(VIEWS, 3, 224, 224, dtype=dtype).contiguous(memory_format=torch.channels_last)

    def run():
        with torch.inference_mode():
            visual(pixels)

    return run


def openvino_views(precision):
    import openvino as ov

    visual, pixels = vit()
    options = {"INFERENCE_NUM_THREADS": THREADS, "PERFORMANCE_HINT": "LATENCY"}
    model = ov.convert_model(visual, example_input=pixels[:1])
    if precision == "int8":
        import nncf

        shown = nncf.Dataset([pixels[i : i + 1].numpy() for i in range(min(16, VIEWS))])
        model = nncf.quantize(model, shown, model_type=nncf.ModelType.TRANSFORMER, subset_size=16)
    else:
        options["INFERENCE_PRECISION_HINT"] = precision
    compiled = ov.Core().compile_model(model, "CPU", options)
    array = pixels.numpy()
    return lambda: torch.from_numpy(compiled(array)[0])


def onnx_views(precision):
    """ONNX Runtime; int8 is its dynamic quantisation, which needs no images."""
    import onnxruntime as ort

    visual, pixels = vit()
    # One graph for a fixed number of images: nothing is left for the run to find out.
    torch.onnx.export(visual, (pixels,), "views.onnx", dynamo=True, input_names=["pixels"], verbose=False)
    file = "views.onnx"
    if precision == "int8":
        import onnx
        from onnxruntime.quantization import QuantType, quantize_dynamic

        # The exporter's notes on inner shapes contradict what the quantiser infers of transposed weights.
        model = onnx.load(file)
        del model.graph.value_info[:]
        onnx.save(model, "views-bare.onnx")
        quantize_dynamic("views-bare.onnx", "views-int8.onnx", weight_type=QuantType.QInt8)
        file = "views-int8.onnx"
    options = ort.SessionOptions()
    options.intra_op_num_threads = THREADS
    session = ort.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    feed = {session.get_inputs()[0].name: pixels.numpy()}
    return lambda: torch.from_numpy(session.run(None, feed)[0])


def names(count):
    """Token ids of class names, as long as ImageNet's are: given by flatclip, so that both sides run the same."""
    return json.load(open("tokens.json"))[:count]


def loss_of(features, images, scale):
    logits = scale * images @ F.normalize(features, dim=-1).T
    return F.cross_entropy(logits, torch.arange(BATCH) % features.shape[0])


class FullText:
    """The text side of CoOp and TPT as published: every class at 77 positions through open_clip's text tower."""

    def __init__(self, model, count):
        self.model, self.count = model, count
        rows = torch.zeros(count, 77, dtype=torch.long)
        for row, name in zip(rows, names(count)):
            ids = [49406] + [343] * CONTEXT + name
            row[: len(ids)] = torch.tensor(ids)
        self.ends = rows.argmax(-1)
        self.embedded = model.token_embedding(rows)

    def context(self):
        return self.embedded[0, 1 : 1 + CONTEXT].clone().requires_grad_()

    def features(self, context):
        model, embedded = self.model, self.embedded
        shared = context.expand(self.count, -1, -1)
        x = torch.cat([embedded[:, :1], shared, embedded[:, 1 + CONTEXT :]], 1) + model.positional_embedding
        x = model.ln_final(model.transformer(x, attn_mask=model.attn_mask))
        return x[torch.arange(self.count), self.ends] @ model.text_projection


def full_step(count):
    text = FullText(clip(), count)
    context = text.context()
    images = F.normalize(torch.randn(BATCH, 512), dim=-1)

    def run():
        context.grad = None
        loss_of(text.features(context), images, 100.0).backward()

    return run


def tpt(count, encode=True):
    """One image of TPT: views encoded (or at hand), one AdamW step on the entropy of the confident tenth, the answer."""
    model = clip()
    text = FullText(model, count)
    pixels = torch.randn(VIEWS, 3, 224, 224)
    at_hand = F.normalize(torch.randn(VIEWS, 512), dim=-1)

    def logits(features, context):
        return 100.0 * features @ F.normalize(text.features(context), dim=-1).T

    def run():
        context = text.context()
        optimizer = torch.optim.AdamW([context], lr=5e-3)
        with torch.no_grad():
            features = F.normalize(model.visual(pixels), dim=-1) if encode else at_hand
        log_p = F.log_softmax(logits(features, context), dim=-1)
        entropy = -(log_p.exp() * log_p).sum(-1)
        chosen = log_p[entropy.argsort()[: max(1, VIEWS // 10)]]
        mean = torch.logsumexp(chosen, 0) - torch.log(torch.tensor(float(len(chosen))))
        (-(mean.exp() * mean).sum()).backward()
        optimizer.step()
        with torch.no_grad():
            logits(features[:1], context).argmax()

    return run


def fga(count, directions=16):
    """One image of FGA with a ready text bank: views encoded, the largest entropy of each view over the bank, the votes of the
    lowest tenth with the unperturbed text features."""
    model = clip()
    base = F.normalize(torch.randn(count, 512), dim=-1)
    around = F.normalize(torch.randn(directions, count, 512), dim=-1).reshape(-1, 512)
    pixels = torch.randn(VIEWS, 3, 224, 224)

    def entropy(logits):
        log_p = F.log_softmax(logits, dim=-1)
        return -(log_p.exp() * log_p).sum(-1)

    def run():
        with torch.inference_mode():
            features = F.normalize(model.visual(pixels), dim=-1)
            perturbed = (100.0 * features @ around.T).view(VIEWS, directions, count)
            scores = entropy(perturbed).max(-1).values
            chosen = scores.argsort()[: max(1, VIEWS // 10)]
            p = (100.0 * features[chosen] @ base.T).softmax(-1)
            votes = torch.bincount(p.argmax(-1), minlength=count) + p.mean(0)
            return votes.argmax()

    return run


def shared_step(count, dtype=torch.float32):
    """The same sums with flatclip's idea in torch: the prefix once, own tokens ragged, the last block at the ends only."""
    model = clip().to(dtype)
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
    context = torch.randn(CONTEXT, 512, dtype=dtype).mul_(0.02).requires_grad_()
    images = F.normalize(torch.randn(BATCH, 512, dtype=dtype), dim=-1)
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


SHAPES = [(768, 3072), (3072, 768), (768, 768), (768, 2304)]
DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16}
WORK = {
    "pil-views": pil_views,
    "torch-views-f32": lambda: torch_views(torch.float32),
    "torch-views-bf16": lambda: torch_views(torch.bfloat16),
    "torch-rn50-f32": lambda: torch_resnet(torch.float32),
    "torch-rn50-bf16": lambda: torch_resnet(torch.bfloat16),
    "openvino-views-f32": lambda: openvino_views("f32"),
    "openvino-views-bf16": lambda: openvino_views("bf16"),
    "openvino-views-int8": lambda: openvino_views("int8"),
    "onnx-views-f32": lambda: onnx_views("f32"),
    "onnx-views-int8": lambda: onnx_views("int8"),
    "open_clip-step-100": lambda: full_step(100),
    "shared-step-100": lambda: shared_step(100),
    "shared-step-1000": lambda: shared_step(1000),
    "shared-step-1000-bf16": lambda: shared_step(1000, torch.bfloat16),
    "fga-1000": lambda: fga(1000),
    "tpt-100": lambda: tpt(100),
    "tpt-step-100": lambda: tpt(100, encode=False),
}
for kind, dtype in DTYPES.items():
    for k, n in SHAPES:
        WORK[f"gemm-{kind}-{k}x{n}"] = lambda dtype=dtype, k=k, n=n: product(dtype, k, n)


def versions():
    from importlib.metadata import version

    packages = ["torch", "torchvision", "pillow", "open_clip_torch", "openvino", "nncf", "onnxruntime"]
    return ", ".join(f"{name} {version(name)}" for name in packages)


def cosine(ready, name):
    """The lowest cosine of the features of `name` to torch's in f32."""
    for work in ("torch-views-f32", name):
        if work not in ready:
            ready[work] = WORK[work]()
    exact, found = (F.normalize(ready[work]().float(), dim=-1) for work in ("torch-views-f32", name))
    return (exact * found).sum(-1).min().item()


def main():
    ready, answers = {}, os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # libraries that print must not disturb the answers
    photo()
    for line in sys.stdin:
        name = line.strip()
        try:
            if name == "versions":
                answer = {"versions": versions()}
            elif name.startswith("cosine "):
                answer = {"cosine": cosine(ready, name.removeprefix("cosine "))}
            else:
                if name not in ready:
                    ready[name] = WORK[name]()
                    ready[name]()
                start = time.perf_counter()
                ready[name]()
                answer = {"seconds": time.perf_counter() - start}
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=answers, flush=True)


main()
