"""A server as users write it: FastAPI, open_clip, one image per request, text features kept per class list.

Usage: fastapi_server.py PORT THREADS MODEL; MODEL is an open_clip name, or a CLIPModel config.json with a small ViT.
"""

import functools
import io
import json
import sys

import open_clip
import torch
import uvicorn
from fastapi import FastAPI, Form, UploadFile
from PIL import Image

port, threads, name = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
torch.set_num_threads(threads)
torch.manual_seed(0)
if name.endswith(".json"):
    config = json.load(open(name))
    vision, text = config["vision_config"], config["text_config"]
    model = open_clip.CLIP(
        embed_dim=config["projection_dim"],
        vision_cfg={
            "image_size": vision["image_size"], "patch_size": vision["patch_size"], "width": vision["hidden_size"],
            "layers": vision["num_hidden_layers"], "head_width": vision["hidden_size"] // vision["num_attention_heads"],
            "mlp_ratio": vision["intermediate_size"] / vision["hidden_size"],
        },
        text_cfg={
            "context_length": 77, "vocab_size": 49408, "width": text["hidden_size"],
            "heads": text["num_attention_heads"], "layers": text["num_hidden_layers"],
        },
    )
    size = vision["image_size"]
else:
    model = open_clip.create_model(name, pretrained=None)
    size = model.visual.image_size[0] if isinstance(model.visual.image_size, tuple) else model.visual.image_size
model.eval()
preprocess = open_clip.image_transform(size, is_train=False)
tokenize = open_clip.get_tokenizer("ViT-B-32")
app = FastAPI()


@functools.lru_cache(maxsize=64)
def text_features(classes):
    with torch.inference_mode():
        features = model.encode_text(tokenize([f"a photo of a {name}." for name in classes.split(",")]))
        return features / features.norm(dim=-1, keepdim=True)


@app.get("/healthz")
def healthz():
    return "ok"


@app.post("/v1/classify")
def classify(image: UploadFile, classes: str = Form(), method: str = Form(""), views: str = Form("")):
    pixels = preprocess(Image.open(io.BytesIO(image.file.read())).convert("RGB")).unsqueeze(0)
    with torch.inference_mode():
        features = model.encode_image(pixels)
        features = features / features.norm(dim=-1, keepdim=True)
        probabilities = (100 * features @ text_features(classes).T).softmax(dim=-1)[0]
    names = classes.split(",")
    order = probabilities.argsort(descending=True)[:5].tolist()
    return {"top": [{"class": names[k], "probability": probabilities[k].item()} for k in order]}


print(f"http://127.0.0.1:{port}/", flush=True)
uvicorn.run(app, host="127.0.0.1", port=port, log_level="error")
