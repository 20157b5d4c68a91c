"""What the reference library computes with shipped files, for the tests: `fixture.py DATA MODEL OUT.safetensors`.

An open_clip directory is loaded by open_clip, a Hugging Face directory by transformers, each with its own preprocessing and
tokenizer. Images are the first of some validation splits. Our tokens are checked against transformers' CLIPTokenizer on some
hundred captions.
"""

import sys

import numpy as np
import open_clip
import torch
import transformers
from PIL import Image
from safetensors.torch import save_file
from transformers import CLIPImageProcessorPil, CLIPModel, CLIPTokenizer

import bpe
import captions
import model as pocket
import vit
import world

CHOSEN = [("photo", 0), ("photo", 1), ("sketch", 0), ("painting", 0), ("rendition", 0), ("hard", 0)]
PROMPTS = [f"a photo of a {name}." for name in world.CLASSES]


def by_open_clip(directory, images):
    model, _, preprocess = open_clip.create_model_and_transforms(f"local-dir:{directory}", precision="fp32")
    model.eval()
    pixels = torch.stack([preprocess(image) for image in images])
    rows = [bpe.Tokenizer.load(directory).sequence(prompt) for prompt in PROMPTS]
    tokens = torch.tensor([row + [0] * (model.context_length - len(row)) for row in rows])
    return pixels, tokens, model.encode_image(pixels), model.encode_text(tokens), model.logit_scale.exp()


def by_transformers(directory, images):
    model = CLIPModel.from_pretrained(directory, dtype=torch.float32).eval()
    pixels = CLIPImageProcessorPil.from_pretrained(directory)(images, return_tensors="pt")["pixel_values"]
    tokenizer = CLIPTokenizer.from_pretrained(directory)
    inputs = tokenizer(PROMPTS, padding="max_length", max_length=pocket.CONTEXT, return_tensors="pt")
    # The answer's embeddings are of unit length; its towers' outputs are what the projections gave, as with open_clip.
    answer = model(pixel_values=pixels, **inputs)
    image, text = answer.vision_model_output.pooler_output, answer.text_model_output.pooler_output
    assert torch.allclose(answer.logits_per_image, logits(image, text, model.logit_scale.exp()), atol=1e-4)
    return pixels, inputs["input_ids"], image, text, model.logit_scale.exp()


def logits(image, text, scale):
    unit = torch.nn.functional.normalize
    return scale * unit(image, dim=-1) @ unit(text, dim=-1).T


data, directory, out = sys.argv[1:]
torch.set_num_threads(1)
ours, theirs = bpe.Tokenizer.load(directory), CLIPTokenizer.from_pretrained(directory)
writer = captions.Writer(np.random.default_rng(1), own=0.3)
for domain in world.DOMAINS:
    for record in world.Images(data, "validation", domain).records[:64]:
        text = writer.write(record)
        assert ours.sequence(text) == theirs(text)["input_ids"], text

images = [Image.fromarray(np.asarray(world.Images(data, "validation", domain).pixels[at])) for domain, at in CHOSEN]
with torch.no_grad():
    pixels, tokens, image, text, scale = (by_transformers if vit.is_one(directory) else by_open_clip)(directory, images)
    answers = logits(image, text, scale)
tensors = {
    "pixels": pixels,
    "tokens": tokens,
    "image_features": image,
    "text_features": text,
    "logits": answers,
    "logit_scale": scale.reshape(1),
}
library = f"transformers {transformers.__version__}" if vit.is_one(directory) else f"open_clip {open_clip.__version__}"
about = {
    "made_by": f"tools/pocket/fixture.py, torch {torch.__version__}, {library}",
    "images": " ".join(f"{domain}/{at}" for domain, at in CHOSEN),
    "world": "validation",
}
save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, out, metadata=about)
print("answers:", [world.CLASSES[i] for i in answers.argmax(1)], "scale", scale.item())
