"""open_clip's towers on our views, our methods on its features: equal to our own run of the same checkpoint."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import flatclip

torch = pytest.importorskip("torch")
open_clip = pytest.importorskip("open_clip")
from safetensors.torch import save_file  # noqa: E402

CLASSES = ["cat", "golden retriever", "fire truck", "sea lion", "teapot", "wine bottle"]
WORDS = "a photo of a"


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path]:
    torch.manual_seed(0)
    config = {
        "embed_dim": 64,
        "vision_cfg": {"image_size": 64, "layers": 3, "width": 128, "head_width": 64, "patch_size": 16},
        "text_cfg": {"context_length": 77, "vocab_size": 49408, "width": 128, "heads": 2, "layers": 3},
    }
    model = open_clip.model.CLIP(config["embed_dim"], config["vision_cfg"], config["text_cfg"]).eval()
    with torch.no_grad():
        model.logit_scale.fill_(np.log(100.0))
    folder = tmp_path_factory.mktemp("open_clip")
    save_file({k: v.contiguous() for k, v in model.state_dict().items()}, folder / "open_clip_model.safetensors")
    mean, std = [0.48145466, 0.4578275, 0.40821073], [0.26862954, 0.26130258, 0.27577711]
    (folder / "open_clip_config.json").write_text(
        json.dumps({"model_cfg": config, "preprocess_cfg": {"mean": mean, "std": std}})
    )
    return model, folder


def _text_encoder(model: Any, count: int) -> Any:
    """CoOp's way into open_clip's text tower: embeddings with the context put in."""
    tokens = open_clip.tokenizer.tokenize([f"{' '.join(['X'] * count)} {name}." for name in CLASSES])

    @torch.no_grad()
    def encode(contexts: np.ndarray) -> Any:
        found = []
        for context in torch.from_numpy(contexts):
            x = model.token_embedding(tokens)
            x[:, 1 : 1 + count] = context
            x = x + model.positional_embedding
            x = model.ln_final(model.transformer(x, attn_mask=model.attn_mask))
            x = x[torch.arange(len(tokens)), tokens.argmax(-1)] @ model.text_projection
            found.append(torch.nn.functional.normalize(x, dim=-1))
        return torch.stack(found)

    return encode


def test_features_and_methods_agree(checkpoint: tuple[Any, Path], images: list[np.ndarray]) -> None:
    theirs, folder = checkpoint
    ours = flatclip.load(folder, precision="f32")
    clf = flatclip.Classifier(ours, CLASSES, method="stss", views=32, random_state=5)
    scale = float(theirs.logit_scale.exp())
    assert ours.logit_scale == pytest.approx(scale, rel=1e-5)
    context = ours.embed_words(WORDS)
    bank = flatclip.TextBank.from_encoder(_text_encoder(theirs, len(context)), context, random_state=5)
    with torch.no_grad():
        pixels = np.stack([clf.view_pixels(image) for image in images])
        raw = theirs.encode_image(torch.from_numpy(pixels.reshape(-1, *pixels.shape[2:])))
        views = torch.nn.functional.normalize(raw, dim=-1).reshape(len(images), 32, -1)
    own_views = clf.features(images)
    print("largest difference of view features", np.abs(views.numpy() - own_views).max())
    assert np.abs(views.numpy() - own_views).max() < 1e-4
    own_text = ours.encode_text([f"{WORDS} {name}." for name in CLASSES])
    assert np.abs(bank.features[0] - own_text).max() < 1e-4
    answers, own = flatclip.adapt(views, bank, scale, method="stss"), clf.answer(images)
    assert [a.selected for a in answers] == [a.selected for a in own], "the same views are kept"
    scores = max(np.abs(a.scores - b.scores).max() for a, b in zip(answers, own))
    print("largest difference of scores", scores, "of probabilities", np.abs(answers.probabilities - own.probabilities).max())
    assert scores < 1e-3 and np.abs(answers.probabilities - own.probabilities).max() < 1e-4
    for method in ["zero-shot", "zero", "mta", "tda", "vte"]:
        own = flatclip.Classifier(ours, CLASSES, method=method, views=32, random_state=5).answer(images)
        answers = flatclip.adapt(views, bank.features[0], scale, method=method)
        print(method, "largest difference of probabilities", np.abs(answers.probabilities - own.probabilities).max())
        assert np.abs(answers.probabilities - own.probabilities).max() < 1e-4, method
        assert (answers.predictions == own.predictions).all(), method


def test_tensors_are_taken_as_arrays() -> None:
    generator = torch.Generator().manual_seed(0)
    views = torch.randn(6, 8, 16, generator=generator, requires_grad=True)
    text = torch.randn(4, 16, generator=generator)
    expected = flatclip.adapt(views.detach().numpy(), text.numpy(), 100.0, method="zero").probabilities
    assert (flatclip.adapt(views, text, torch.tensor(100.0).item(), method="zero").probabilities == expected).all()
    half = flatclip.adapt(views.bfloat16(), text.bfloat16(), 100.0, method="zero")
    assert half.probabilities.shape == (6, 4)
    strided = views.detach().transpose(0, 1).contiguous().transpose(0, 1)
    assert (flatclip.adapt(strided, text, 100.0, method="zero").probabilities == expected).all()


def test_images_as_tensors(model: flatclip.Model) -> None:
    image = torch.randint(0, 255, (3, 20, 30), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
    expected = model.encode_image(image.permute(1, 2, 0).numpy())
    assert (model.encode_image(image) == expected).all()
    with pytest.raises(TypeError, match="uint8"):
        model.encode_image(image.float())


class Images(torch.utils.data.Dataset):  # type: ignore[misc, name-defined]
    """Answers inside the loader's workers."""

    def __init__(self) -> None:
        self.clf = flatclip.Classifier("pocket", ["cat", "dog", "fish"], method="stss", views=4)
        self.clf.predict(np.zeros((8, 8, 3), np.uint8))  # the parent's pool is there before the workers are

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> Any:
        return self.clf.predict_proba(np.full((16, 16, 3), 20 * index, np.uint8))[0]


def _one_thread(_: int) -> None:
    flatclip.set_num_threads(1)


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_data_loader_with_workers(method: str) -> None:
    data = Images()
    expected = np.stack([data[i] for i in range(8)])
    loader = torch.utils.data.DataLoader(
        data, batch_size=2, num_workers=2, multiprocessing_context=method, timeout=120, worker_init_fn=_one_thread
    )
    assert (torch.cat(list(loader)).numpy() == expected).all()
