"""What open_clip computes with the shipped files, for the tests: `fixture.py DATA MODEL OUT.safetensors`.

Pictures are the first of some validation splits; open_clip loads the folder itself, with its own preprocessing. The tokens are
checked against transformers' CLIPTokenizer on some hundred validation captions.
"""

import sys

import numpy as np
import open_clip
import torch
from PIL import Image
from safetensors.torch import save_file
from transformers import CLIPTokenizer

import bpe
import world

data, directory, out = sys.argv[1:]
torch.set_num_threads(1)
tokenizer = bpe.Tokenizer.load(directory)
other = CLIPTokenizer.from_pretrained(directory)
for domain in world.DOMAINS:
    for record in world.Pictures(data, "validation", domain).records[:64]:
        text = record["captions"][0]["text"]
        assert tokenizer.sequence(text) == other(text)["input_ids"], text

model, _, preprocess = open_clip.create_model_and_transforms(f"local-dir:{directory}", precision="fp32")
model.eval()
chosen = [("photo", 0), ("photo", 1), ("sketch", 0), ("painting", 0), ("rendition", 0), ("hard", 0)]
pictures = [np.asarray(world.Pictures(data, "validation", domain).pixels[index]) for domain, index in chosen]
pixels = torch.stack([preprocess(Image.fromarray(picture)) for picture in pictures])
rows = [tokenizer.sequence(f"a photo of a {name}.") for name in world.CLASSES]
length = model.context_length
tokens = torch.tensor([row + [0] * (length - len(row)) for row in rows])
with torch.no_grad():
    image, text = model.encode_image(pixels), model.encode_text(tokens)
    scale = model.logit_scale.exp()
    unit = torch.nn.functional.normalize
    logits = scale * unit(image, dim=-1) @ unit(text, dim=-1).T
tensors = {
    "pixels": pixels,
    "tokens": tokens,
    "image_features": image,
    "text_features": text,
    "logits": logits,
    "logit_scale": scale.reshape(1),
}
about = {
    "made_by": f"tools/pocket/fixture.py, torch {torch.__version__}, open_clip {open_clip.__version__}",
    "pictures": " ".join(f"{domain}/{index}" for domain, index in chosen),
    "world": "validation",
}
save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, out, metadata=about)
print("answers:", [world.CLASSES[i] for i in logits.argmax(1)], "scale", scale.item())
