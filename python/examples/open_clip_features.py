"""Methods on another model's features: views made here, encoded by open_clip, answered by any method, FGA's selection included.

    python python/examples/open_clip_features.py [ARCHITECTURE PRETRAINED]

With an architecture and a tag open_clip loads its weights; without, a small model with random weights shows the way. The
tensors may live on a GPU.
"""

from __future__ import annotations

import sys

import flatclip
import open_clip
import torch
import torch.nn.functional as F

CLASSES = ["cat", "dog", "fish", "lamp", "boat", "airplane"]
WORDS = "a photo of a"
device = "cuda" if torch.cuda.is_available() else "cpu"

if len(sys.argv) > 2:
    model = open_clip.create_model(sys.argv[1], pretrained=sys.argv[2])
else:
    vision = {"image_size": 64, "layers": 2, "width": 64, "head_width": 32, "patch_size": 16}
    text = {"context_length": 77, "vocab_size": 49408, "width": 64, "heads": 2, "layers": 2}
    model = open_clip.model.CLIP(64, vision, text)
model = model.to(device).eval()
size = model.visual.image_size if isinstance(model.visual.image_size, int) else model.visual.image_size[0]

# Views as CLIP wants them: crops and flips of each image, normalised; 224 pixels with "random:ViT-B-16".
maker = flatclip.Classifier("random:ViT-B-16" if size == 224 else "pocket", CLASSES, method="zero", views=16)
drawn = flatclip.Dataset("pocket:photo::8")
tokens = open_clip.tokenizer.tokenize([f"{WORDS} {name}." for name in CLASSES]).to(device)
length = len(WORDS.split())


@torch.no_grad()
def encode_text(contexts: object) -> torch.Tensor:
    """Text features [n, classes, D] of contexts [n, tokens, width]."""
    found = []
    for context in torch.as_tensor(contexts, device=device):
        x = model.token_embedding(tokens)
        x[:, 1 : 1 + length] = context
        x = model.ln_final(model.transformer(x + model.positional_embedding, attn_mask=model.attn_mask))
        found.append(x[torch.arange(len(tokens)), tokens.argmax(-1)] @ model.text_projection)
    return torch.stack(found)


with torch.no_grad():
    context = model.token_embedding(tokens)[0, 1 : 1 + length]
    pixels = torch.stack([torch.from_numpy(maker.view_pixels(drawn[i][0])) for i in range(len(drawn))]).to(device)
    views = F.normalize(model.encode_image(pixels.flatten(0, 1)), dim=-1).reshape(*pixels.shape[:2], -1)
    scale = float(model.logit_scale.exp())

bank = flatclip.TextBank.from_encoder(encode_text, context, perturbations=16, radius=0.5)
for method in ["zero-shot", "zero", "mta", "tda", "stss"]:
    text_side = bank if method == "stss" else bank.features[0]
    answers = flatclip.adapt(views, text_side, scale, method=method, classes=CLASSES)
    print(f"{method:10} {answers.labels}")
