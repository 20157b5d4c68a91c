"""Asks a server with the clients that people use, holds their answers against the command line's, and lets schemathesis make
requests from its description.

    python clients.py BINARY [EXAMPLES]       needs tritonclient[http], huggingface_hub, openai, openapi-python-client, schemathesis, numpy, pillow
"""

import base64
import contextlib
import glob
import json
import os
import subprocess
import sys
import tempfile
import urllib.request

import numpy as np
import openai
import tritonclient.http as triton
from huggingface_hub import InferenceClient
from PIL import Image
from server import serving

binary, examples = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "100"
folder = tempfile.TemporaryDirectory()
os.chdir(folder.name)
subprocess.run([binary, "pocket", "export", "photos", "--domain", "photo", "--count", "4"], check=True, capture_output=True)
server = contextlib.ExitStack()
address = server.enter_context(serving(binary, folder.name))
CLASSES = ["fish", "lamp", "snail", "boat", "clock", "bicycle", "butterfly", "airplane"]
images = sorted(glob.glob("photos/*/*.png"))
assert len(images) == 4, images


def cli(*arguments):
    out = subprocess.run([binary, *arguments, "--json"], check=True, capture_output=True).stdout
    return json.loads(out)


said = cli("predict", *images, "--classes", ",".join(CLASSES), "--top", "8")["results"]
expected = {row["image"]: {top["class"]: top["probability"] for top in row["top"]} for row in said}

# Hugging Face: labels by score.
client = InferenceClient(model=f"{address}/hf/zero-shot-image-classification")
for path in images:
    labels = client.zero_shot_image_classification(path, candidate_labels=CLASSES, hypothesis_template="a photo of a {}.")
    assert {one.label: one.score for one in labels} == expected[path], (labels, expected[path])
    assert [one.score for one in labels] == sorted((one.score for one in labels), reverse=True)
print("huggingface_hub: zero_shot_image_classification of", len(images), "images equals the command line")

# OpenAI: embeddings of texts, as numbers and as base64 (its client's default).
texts = ["a photo of a fish.", "a photo of a boat."]
client = openai.OpenAI(base_url=f"{address}/v1", api_key="none")
assert [model.id for model in client.models.list()] == ["pocket"]
assert client.models.retrieve("pocket").id == "pocket"
plain = client.embeddings.create(model="pocket", input=texts, encoding_format="float")
packed = client.embeddings.create(model="pocket", input=texts)
for a, b in zip(plain.data, packed.data):
    assert np.array_equal(np.float32(a.embedding), np.float32(b.embedding))
    assert abs(np.linalg.norm(a.embedding) - 1) < 1e-5
try:
    client.embeddings.create(model="gpt", input="x")
    raise SystemExit("an unknown model was accepted")
except openai.NotFoundError as error:
    assert "model `gpt` is not known" in str(error), error
print("openai: models.list, models.retrieve, embeddings as numbers and as base64, a refusal")

# KServe and Triton: metadata, health, JSON and binary tensors.
client = triton.InferenceServerClient(url=address.removeprefix("http://"))
assert client.is_server_live() and client.is_server_ready() and client.is_model_ready("pocket")
about = client.get_model_metadata("pocket")
assert [one["name"] for one in about["inputs"]] == ["image", "pixels", "classes", "text"], about
assert client.is_model_ready("pocket", "1") and client.get_model_metadata("pocket", "1") == about
config = client.get_model_config("pocket", "1")
assert [one["name"] for one in config["input"]] == [one["name"] for one in about["inputs"]], config
for binary_data in (True, False):
    for path in images:
        data = open(path, "rb").read()
        raw = np.array([data if binary_data else base64.b64encode(data)], dtype=object)
        image = triton.InferInput("image", [1], "BYTES")
        image.set_data_from_numpy(raw, binary_data=binary_data)
        classes = triton.InferInput("classes", [len(CLASSES)], "BYTES")
        classes.set_data_from_numpy(np.array([name.encode() for name in CLASSES], dtype=object), binary_data=binary_data)
        wanted = [triton.InferRequestedOutput(name, binary_data=binary_data) for name in ("probabilities", "label")]
        answer = client.infer("pocket", [image, classes], outputs=wanted)
        found = dict(zip(CLASSES, answer.as_numpy("probabilities")[0].tolist()))
        assert found == expected[path], (found, expected[path])
        label = answer.as_numpy("label")[0]
        label = label.decode() if isinstance(label, bytes) else label
        assert label == max(expected[path], key=expected[path].get)
pixels = np.stack([np.asarray(Image.open(path).convert("RGB")) for path in images])
tensor = triton.InferInput("pixels", list(pixels.shape), "UINT8")
tensor.set_data_from_numpy(pixels)
embedding = client.infer("pocket", [tensor], model_version="1").as_numpy("embedding")
assert embedding.shape[0] == 4 and np.allclose(np.linalg.norm(embedding, axis=1), 1, atol=1e-5)
files = triton.InferInput("image", [4], "BYTES")
files.set_data_from_numpy(np.array([open(path, "rb").read() for path in images], dtype=object))
assert np.array_equal(client.infer("pocket", [files]).as_numpy("embedding"), embedding)
try:
    client.infer("none", [tensor])
    raise SystemExit("an unknown model was accepted")
except triton.InferenceServerException as error:
    assert "is not known" in str(error), error
for stats in (client.get_inference_statistics(), client.get_inference_statistics("pocket", "1")):
    (model,) = stats["model_stats"]
    assert model["inference_stats"]["success"]["count"] == 10 and model["inference_count"] == 16, stats
print("tritonclient: metadata, config, versions, statistics, health, JSON and binary tensors, pixels, a refusal")

# A client that openapi-python-client generates: JSON, forms, an error.
with tempfile.TemporaryDirectory() as package:
    generator = [sys.executable, "-m", "openapi_python_client", "generate", "--url", f"{address}/openapi.json"]
    subprocess.run([*generator, "--meta", "none", "--output-path", f"{package}/generated"], check=True)
    sys.path.insert(0, package)
    import generated
    from generated.api.flatclip import classify, images as embed
    from generated.api.lists import model as retrieve
    from generated.models import ClassifyForm, ClassifyRequest, EmbedImageForm, ErrorBody
    from generated.types import File

    client = generated.Client(base_url=address)
    path = images[0]
    file = lambda: File(payload=open(path, "rb"), file_name="image.png")
    encoded = base64.b64encode(open(path, "rb").read()).decode()
    bodies = [ClassifyRequest(image=encoded, classes=CLASSES, top_k=8), ClassifyForm(image=[file()], classes=",".join(CLASSES), top_k=8)]
    for body in bodies:
        answer = classify.sync(client=client, body=body)
        assert {top.class_: top.probability for top in answer.top} == expected[path], answer
    assert embed.sync(client=client, body=EmbedImageForm(image=[file()])).width == embedding.shape[1]
    assert retrieve.sync("pocket", client=client).width == embedding.shape[1]
    refusal = classify.sync(client=client, body=ClassifyRequest(image=encoded, classes=["fish", "fish"]))
    assert isinstance(refusal, ErrorBody) and "once" in refusal.error.hint, refusal
print("openapi-python-client: JSON, forms, a model, a refusal")

# Requests made from the description: no 5xx, statuses and bodies as described. That a wrong body is refused is a test of ours.
checks = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"
tool = os.path.join(os.path.dirname(sys.executable), "schemathesis")
options = ["--phases", "examples,coverage,fuzzing", "--seed", "1", "--no-color", "--suppress-health-check", "all"]
schema = [tool, "run", "--checks", checks, "--mode", "all", "--max-examples", examples, *options, f"{address}/openapi.json"]
done = subprocess.run(schema, capture_output=True, text=True)
assert done.returncode == 0, done.stdout[-3000:] + done.stderr
metrics = urllib.request.urlopen(f"{address}/metrics").read().decode().splitlines()
total = lambda name: sum(float(line.rsplit(" ", 1)[1]) for line in metrics if line.startswith(name))  # noqa: E731
assert total("flatclip_requests_total") >= 200 and total("flatclip_panics_total") == 0
print("schemathesis:", int(total("flatclip_requests_total")), "requests, no panic")
server.close()
