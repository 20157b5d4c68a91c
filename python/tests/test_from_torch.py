"""Torch models of other libraries, with random weights, against their own functions and our kernels."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import flatclip

torch = pytest.importorskip("torch", reason="torch is not installed: its towers are not tested")

from flatclip import _device  # noqa: E402
from flatclip.torch import _foreign  # noqa: E402

MODELS = Path(__file__).parents[2] / "fixtures" / "golden" / "models"


def cosines(a: Any, b: Any) -> Any:
    a, b = (x / np.linalg.norm(x, axis=-1, keepdims=True) for x in (a, b))
    return (a.astype(np.float64) * b).sum(-1)


def random_open_clip() -> Any:
    open_clip = pytest.importorskip("open_clip", reason="open_clip is not installed")
    torch.manual_seed(1)
    return open_clip.model.CLIP(
        embed_dim=32, quick_gelu=True,
        vision_cfg={"image_size": 32, "patch_size": 8, "width": 128, "layers": 2, "head_width": 64},
        text_cfg={"context_length": 77, "vocab_size": 49408, "width": 128, "heads": 2, "layers": 2},
    ).eval()  # fmt: skip


def random_transformers() -> Any:
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    torch.manual_seed(2)
    both = {"hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4, "hidden_act": "quick_gelu"}
    config = transformers.CLIPConfig(
        text_config={**both, "vocab_size": 49408, "max_position_embeddings": 77, "eos_token_id": 49407, "bos_token_id": 49406},
        vision_config={**both, "image_size": 32, "patch_size": 8}, projection_dim=32,
    )  # fmt: skip
    return transformers.CLIPModel(config).eval()


@pytest.mark.parametrize("make", [random_open_clip, random_transformers])
def test_from_torch_shares_the_weights_and_agrees(make: Any, tmp_path: Path) -> None:
    module = make()
    model = flatclip.from_torch(module, name="mine")
    assert model.name == "mine" and model.device["lowest_cosine"] >= 0.99999
    pixels = np.random.default_rng(0).integers(0, 256, (2, 32, 32, 3), dtype=np.uint8)
    ids = torch.zeros(1, 77, dtype=torch.long)
    ids[0, :4] = torch.tensor([49406, 320, 2368, 49407])  # "a cat"
    scaled = (torch.tensor(pixels).permute(0, 3, 1, 2) / 255 - torch.tensor(flatclip._encoder.MEAN).view(3, 1, 1)) / torch.tensor(
        flatclip._encoder.STD
    ).view(3, 1, 1)
    found = _foreign.describe(module, None)
    images, texts = _foreign.own_features(module, found, scaled.float(), ids)
    assert cosines(model.encode_image(list(pixels)), images.numpy()).min() >= 0.99999
    assert cosines(model.encode_text(["a cat"]), texts.numpy()).min() >= 0.99999
    for tensor in found.tensors.values():
        assert any(tensor.untyped_storage().data_ptr() == own.untyped_storage().data_ptr() for own in module.state_dict().values())
    flatclip.evaluate(model, "pocket:sketch", ["zero", "tpt"], views=4, limit=3, out=tmp_path, progress=False)


def test_a_module_that_computes_something_else_keeps_its_own_functions() -> None:
    module = random_open_clip()
    own = module.encode_image
    module.encode_image = lambda pixels, normalize=False: own(pixels).flip(1)
    with pytest.warns(UserWarning, match="its own functions are used"):
        model = flatclip.from_torch(module, tokenizer=lambda texts: torch.ones(len(texts), 77, dtype=torch.long))
    pixels = np.zeros((1, 32, 32, 3), np.uint8)
    plain = flatclip.from_torch(random_open_clip()).encode_image(list(pixels))
    assert cosines(model.encode_image(list(pixels)), plain[:, ::-1]).min() >= 0.99999
    with pytest.raises(flatclip.FlatclipError, match="needs text features of contexts"):
        flatclip.Classifier(model, ["cat", "dog"], method="tpt").predict(pixels)


@pytest.mark.parametrize("make", [random_open_clip, random_transformers])
def test_methods_and_tuners_agree_with_our_kernels(make: Any, tmp_path: Path) -> None:
    module = make()
    found = _foreign.describe(module, None)
    (tmp_path / "weights").mkdir()
    _device._opened(found, tmp_path / "weights", None, None)
    ours = flatclip.load(str(tmp_path / "weights" / "model.safetensors"), precision="f32", activation=found.activation)
    models = {"torch": flatclip.from_torch(module), "ours": ours}
    assert models["torch"].hash == ours.hash
    losses = {}
    for name, model in models.items():
        flatclip.evaluate(model, "pocket:sketch", "all", views=8, limit=4, out=tmp_path / name, progress=False)
        tuned = tmp_path / f"{name}-sapt"
        flatclip.tune(model, "pocket:photo", "sapt", shots=1, options={"train.epochs": 5, "train.batch": 8}, out=tuned, progress=False)
        losses[name] = [json.loads(line)["loss"] for line in (tuned / "metrics.jsonl").read_text().splitlines()][:20]
    assert len(losses["torch"]) == 20 and np.abs(np.array(losses["torch"]) - losses["ours"]).max() <= 1e-4
    for run in sorted((tmp_path / "ours").iterdir()):
        both = [(tmp_path / name / run.name / "predictions.jsonl").read_text().splitlines() for name in models]
        answers = [[(json.loads(line).get("answer") or {}).get("prediction") for line in lines] for lines in both]
        assert answers[0] == answers[1], run.name


def random_siglip() -> tuple[Any, Any]:
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=str(MODELS / "tiny-siglip2-hf" / "tokenizer.json"), pad_token="<pad>")
    torch.manual_seed(3)
    both = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = transformers.SiglipConfig(
        text_config={**both, "vocab_size": 608, "max_position_embeddings": 16, "pad_token_id": 0, "projection_size": 64},
        vision_config={**both, "image_size": 32, "patch_size": 8},
    )  # fmt: skip
    return transformers.SiglipModel(config).eval(), tokenizer


def test_siglip_of_transformers_shares_its_weights(tmp_path: Path) -> None:
    module, tokenizer = random_siglip()
    model = flatclip.from_torch(module, tokenizer=tokenizer, name="siglip")
    assert model.device["lowest_cosine"] >= 0.99999 and model.device["name"] == "torch cpu"
    state = module.state_dict().values()
    for tensor in _foreign.describe(module, None).tensors.values():
        assert any(tensor.untyped_storage().data_ptr() == own.untyped_storage().data_ptr() for own in state)
    runs = flatclip.evaluate(model, "pocket:sketch", ["zero", "tpt", "stss"], views=4, limit=3, out=tmp_path, progress=False)
    assert [run["summary"]["failed"] for run in runs] == [0, 0, 0]


def test_siglip_without_its_tokenizer_has_images_only() -> None:
    module, _ = random_siglip()
    with pytest.warns(UserWarning, match="its texts need its tokenizer: give tokenizer="):
        model = flatclip.from_torch(module)
    assert model.encode_image([np.zeros((9, 9, 3), np.uint8)]).shape == (1, 64)


def test_a_model_of_timm_in_open_clip_keeps_its_own_functions() -> None:
    open_clip = pytest.importorskip("open_clip", reason="open_clip is not installed")
    torch.manual_seed(4)
    module = open_clip.model.CustomTextCLIP(
        embed_dim=32, vision_cfg={"image_size": 32, "patch_size": 8, "width": 128, "layers": 1, "head_width": 64},
        text_cfg={"context_length": 16, "vocab_size": 304, "width": 64, "heads": 2, "layers": 1, "no_causal_mask": True},
        init_logit_bias=-10.0,
    ).eval()  # fmt: skip
    with pytest.warns(UserWarning, match=r"CustomTextCLIP has another form.*flatclip.load\(NAME, device=\.\.\.\)"):
        model = flatclip.from_torch(module, tokenizer=lambda texts: torch.ones(len(texts), 16, dtype=torch.long))
    assert model.encode_text(["a cat"]).shape == (1, 32)
