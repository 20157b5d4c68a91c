"""Towers that torch computes, against our own kernels. Torch runs on the CPU here; a GPU runs the same code."""

from __future__ import annotations

import filecmp
import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import flatclip

torch = pytest.importorskip("torch", reason="torch is not installed: its towers are not tested")

from flatclip._towers import ClassTokens  # noqa: E402
from flatclip.torch import Towers  # noqa: E402

GOLDEN = Path(__file__).parents[2] / "fixtures" / "golden"
IMAGES = [np.random.default_rng(seed).integers(0, 256, (70, 90, 3), dtype=np.uint8) for seed in range(4)]
TEXTS = ["a photo of a cat.", "two dogs", "a drawing of a lamp on a table"]
MODELS = ["pocket", "pocket-vit"]


@pytest.fixture(scope="module", params=MODELS)
def pair(request: pytest.FixtureRequest) -> tuple[Any, Any]:
    """A model on torch and on our kernels."""
    return flatclip.load(request.param, device="cpu"), flatclip.load(request.param, precision="f32")


def cosines(a: Any, b: Any) -> Any:
    a, b = (x / np.linalg.norm(x, axis=-1, keepdims=True) for x in (a, b))
    return (a.astype(np.float64) * b).sum(-1)


def close(found: Any, expected: Any, tolerance: float = 1e-4) -> None:
    found, expected = np.asarray(found, np.float64), np.asarray(expected, np.float64)
    assert found.shape == expected.shape
    assert np.abs(found - expected).max() <= tolerance * max(1e-6, np.abs(expected).max())


def test_features_are_those_of_our_kernels(pair: tuple[Any, Any]) -> None:
    on_torch, ours = pair
    assert cosines(on_torch.encode_image(IMAGES), ours.encode_image(IMAGES)).min() >= 0.99999
    assert cosines(on_torch.encode_text(TEXTS), ours.encode_text(TEXTS)).min() >= 0.99999
    assert on_torch.hash == ours.hash
    assert on_torch.device["name"] == "torch cpu" and on_torch.device["lowest_cosine"] >= 0.99999
    assert ours.device is None


@pytest.mark.parametrize("position", ["end", "middle", "front"])
def test_contexts_and_their_gradients_are_those_of_our_kernels(pair: tuple[Any, Any], position: str) -> None:
    classes = [f"thing {n}" for n in range(40)] + ["a long name of a rare animal"]
    towers = [flatclip.TextTower(model, classes, tokens=4, position=position) for model in pair]
    context = (0.05 * np.random.default_rng(1).standard_normal((4, len(pair[1].embed_words("a")[0])))).astype(np.float32)
    features = [tower.forward(context) for tower in towers]
    close(features[0], features[1], 1e-5)
    d = np.random.default_rng(2).standard_normal(features[0].shape).astype(np.float32)
    close(towers[0].gradient(d), towers[1].gradient(d))


@pytest.mark.parametrize("dtype", ["bfloat16"])
def test_half_precision_is_within_its_bound(dtype: str) -> None:
    half = flatclip.load("pocket-vit", device="cpu", dtype=dtype)
    assert 0.995 <= half.device["lowest_cosine"] < 1.0
    ours = flatclip.load("pocket-vit", precision="f32")
    assert cosines(half.encode_image(IMAGES), ours.encode_image(IMAGES)).min() >= 0.995


def case(name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Tensors and description of a golden case."""
    raw = (GOLDEN / f"{name}.safetensors").read_bytes()
    size = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8 : 8 + size])
    spec = json.loads(header.pop("__metadata__")["spec"])
    kinds = {"F32": np.float32, "I64": np.int64, "U8": np.uint8}

    def tensor(about: dict[str, Any]) -> Any:
        start, end = (8 + size + at for at in about["data_offsets"])
        return np.frombuffer(raw[start:end], kinds[about["dtype"]]).reshape(about["shape"]).copy()

    return {key: tensor(about) for key, about in header.items()}, spec


def golden(method: str) -> list[str]:
    return sorted(path.stem for path in GOLDEN.glob(f"{method}*.safetensors"))


def tiny(spec: dict[str, Any]) -> Any:
    """The towers of a case's model, with weights that our reader gives."""
    file = next(path for path in sorted((GOLDEN / "models").glob(f"{spec['model']}.*")) if path.suffix != ".json")
    weights = flatclip._native.open_weights(str(file), offline=True)
    tensors = {name: torch.from_numpy(weights.tensor(name)) for name in weights.names()}
    return Towers(tensors, weights.config, device=torch.device("cpu"))


def tokens_of(inputs: dict[str, Any], n_ctx: int, position: str = "end") -> ClassTokens:
    rows = inputs["in.tokens"].tolist()
    lengths = inputs.get("in.name_lens", np.array([int(np.argmax(row)) - n_ctx - 2 for row in rows])).tolist()
    names = [row[1 + n_ctx : 1 + n_ctx + size] for row, size in zip(rows, lengths)]
    rests = [row[1 + n_ctx + size : int(np.argmax(row)) + 1] for row, size in zip(rows, lengths)]
    return ClassTokens(n_ctx, position, rows[0][0], names, rests)


@pytest.mark.parametrize("name", golden("clip-image") + golden("clip-text"))
def test_golden_towers(name: str) -> None:
    tensors, spec = case(name)
    towers = tiny(spec)
    if "in.image" in tensors:
        close(towers.images(tensors["in.image"]), tensors["out.image_features"])
    else:
        close(towers.texts(tensors["in.tokens"].tolist()), tensors["out.text_features"])


def loss_of(towers: Any, tokens: ClassTokens, context: Any, images: Any, labels: Any) -> tuple[float, Any, Any]:
    """Cross-entropy of a batch, its gradient on the context, and the text features."""
    features, record = towers.contexts(tokens, context[None], 99)
    text = torch.tensor(features[0], requires_grad=True)
    loss = torch.nn.functional.cross_entropy(100.0 * torch.tensor(images) @ text.T, torch.tensor(labels))
    loss.backward()
    return loss.item(), record.gradient(text.grad.numpy()[None])[0], features[0]


@pytest.mark.parametrize("name", golden("coop"))
@pytest.mark.parametrize("positions", [1 << 14, 40])  # the graph stays, or each part runs again
def test_golden_coop(name: str, positions: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flatclip.torch._towers.KEPT_POSITIONS", positions)
    tensors, spec = case(name)
    if spec["model"] not in ("tiny-vit", "tiny-rn"):
        pytest.skip("a model of another form")
    towers, hyper = tiny(spec), spec["hyperparameters"]
    context = tensors["in.ctx"]
    tokens = tokens_of(tensors, context.shape[-2], hyper.get("class_token_position", hyper.get("position", "end")))
    raw = towers.images(tensors["in.images"])
    images = raw / np.linalg.norm(raw, axis=1, keepdims=True)
    batch = tensors["in.batch_idx"][0]
    loss, gradient, features = loss_of(towers, tokens, context, images[batch], tensors["in.labels"][batch])
    close(features, tensors["out.text_features"])
    close(loss, tensors["out.loss"])
    close(gradient, tensors["out.grad_ctx"], 1e-3)


@pytest.mark.parametrize("name", golden("maple"))
def test_golden_maple(name: str) -> None:
    tensors, spec = case(name)
    towers = tiny(spec)
    part = {key.removeprefix("in.pl."): value for key, value in tensors.items() if key.startswith("in.pl.")}
    deep = [part[f"compound_prompts_text.{i}"] for i in range(sum(key.startswith("compound_prompts_text") for key in part))]
    projected = [("proj", part["ctx"]), *((f"compound_prompt_projections.{i}", rows) for i, rows in enumerate(deep))]
    visual = [rows @ part[f"{key}.weight"].T + part[f"{key}.bias"] for key, rows in projected]
    tokens = tokens_of(tensors, len(part["ctx"]))
    features, text_record = towers.deep(tokens, part["ctx"], deep, True)
    images, _, _, record = towers.vision(tensors["in.images"], visual, None, False)
    close(features, tensors["out.text_features"])
    close(images, tensors["out.image_features"])
    leaves = [torch.tensor(rows, requires_grad=True) for rows in (images, features)]
    logits = 100.0 * leaves[0] @ leaves[1].T
    torch.nn.functional.cross_entropy(logits, torch.tensor(tensors["in.labels"])).backward()
    d_visual, _ = record.gradient(leaves[0].grad.numpy(), [])
    d_text = text_record.gradient(leaves[1].grad.numpy())
    for (key, rows), d in zip(projected, d_visual):
        close(d.T @ rows, tensors[f"out.grad.{key}.weight"], 1e-3)
        close(d.sum(0), tensors[f"out.grad.{key}.bias"], 1e-3)
    names = ["ctx", *(f"compound_prompts_text.{i}" for i in range(len(deep)))]
    for key, own, (projection, _), d in zip(names, d_text, projected, d_visual):
        close(own + d @ part[f"{projection}.weight"], tensors[f"out.grad.{key}"], 1e-3)


EPISODIC = ["zero-shot", "zero", "mta", "stss", "tpt", "c-tpt", "sar", "tda", "dpe"]


def predictions(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "predictions.jsonl").read_text().splitlines()]


def answer_of(row: dict[str, Any]) -> int | None:
    """The class; None for an image that the method refuses."""
    return row["answer"]["prediction"] if row.get("answer") else None


def test_adapters_answer_alike(pair: tuple[Any, Any], tmp_path: Path) -> None:
    for model, name in zip(pair, ("torch", "ours")):
        flatclip.evaluate(model, "pocket:sketch", "all", views=8, limit=8, out=tmp_path / name, progress=False)
    methods = sorted(path.name for path in (tmp_path / "ours").iterdir())
    assert set(EPISODIC) <= set(methods) and methods == sorted(path.name for path in (tmp_path / "torch").iterdir())
    for method in methods:
        found, expected = (predictions(tmp_path / name / method) for name in ("torch", "ours"))
        assert [answer_of(row) for row in found] == [answer_of(row) for row in expected], method
    about = json.loads((tmp_path / "torch" / "zero" / "run.json").read_text())["device"]
    assert about["dtype"] == "float32" and about["versions"].startswith("torch ") and about["lowest_cosine"] > 0.999


@pytest.mark.parametrize("options", [{}, {"sar.adapt": "norms"}])
def test_norms_move_alike(pair: tuple[Any, Any], tmp_path: Path, options: dict[str, str]) -> None:
    """SAR on LayerNorms of the ViT and on BatchNorms of the ResNet."""
    for model, name in zip(pair, ("torch", "ours")):
        flatclip.evaluate(
            model, "pocket:sketch", "sar", views=8, limit=6, options={k.split(".")[1]: v for k, v in options.items()},
            keep_probabilities=True, out=tmp_path / name, progress=False,
        )  # fmt: skip
    found, expected = (predictions(tmp_path / name) for name in ("torch", "ours"))
    for a, b in zip(found, expected):
        close(np.exp(a["answer"]["log_probabilities"]), np.exp(b["answer"]["log_probabilities"]), 2e-3)


def losses_of(folder: Path) -> list[float]:
    return [json.loads(line)["loss"] for line in (folder / "metrics.jsonl").read_text().splitlines()]


def test_maple_tunes_alike(tmp_path: Path) -> None:
    scores = {}
    for name, model in (("torch", flatclip.load("pocket-vit", device="cpu")), ("ours", flatclip.load("pocket-vit", precision="f32"))):
        flatclip.tune(
            model, "pocket:photo", "maple", shots=1, options={"train.epochs": 1, "maple.depth": 3, "maple.words": ""}, out=tmp_path / name, progress=False
        )
        scores[name] = losses_of(tmp_path / name)
    assert len(scores["torch"]) > 2
    close(scores["torch"], scores["ours"], 1e-3)


def test_twenty_steps_of_sapt_agree(tmp_path: Path) -> None:
    losses = {}
    for name, model in (("torch", flatclip.load("pocket", device="cpu")), ("ours", flatclip.load("pocket", precision="f32"))):
        flatclip.tune(
            model, "pocket:photo", "sapt", shots=1, options={"train.epochs": 5, "train.batch": 8}, out=tmp_path / name, progress=False
        )
        losses[name] = losses_of(tmp_path / name)[:20]
    assert len(losses["torch"]) == 20
    assert np.abs(np.array(losses["torch"]) - losses["ours"]).max() <= 1e-4


def test_the_classifier_the_landscape_and_the_sweep_work(tmp_path: Path) -> None:
    model = flatclip.load("pocket", device="cpu")
    found = flatclip.Classifier(model, ["cat", "fish", "lamp"], method="tpt", views=4).predict_proba(IMAGES)
    ours = flatclip.Classifier(flatclip.load("pocket", precision="f32"), ["cat", "fish", "lamp"], method="tpt", views=4)
    close(found, ours.predict_proba(IMAGES), 2e-3)
    shown = flatclip.landscape(model, out=tmp_path / "land", data="pocket:photo", shots=1, points=3, progress=False)
    assert np.isfinite(shown.surface()).all()
    tables = flatclip.sweep(
        model, "pocket:sketch", {"stss.radius": [0.1, 0.5]}, views=4, limit=4, out=tmp_path / "sweep", progress=False
    )
    assert len(next(iter(tables.values()))["rows"]) == 2


def test_a_pickled_model_is_loaded_onto_its_device_again() -> None:
    model = flatclip.load("pocket", device="cpu", dtype="bfloat16")
    again = pickle.loads(pickle.dumps(model))
    assert again == model and again.device == model.device
    assert again != flatclip.load("pocket")


class Stop(Exception):
    """Raised by a watcher in the middle of a run."""


class StopAfter:
    """A watcher that ends the run after some images."""

    def __init__(self, count: int) -> None:
        self.count = count

    def start(self, stage: str, total: int | None) -> None: ...
    def note(self, text: str) -> None: ...
    def finish(self) -> None: ...
    def advance(self, done: int, status: str) -> None:
        if done >= self.count:
            raise Stop


def test_a_resumed_run_ends_with_the_same_bytes_and_another_device_is_refused(tmp_path: Path) -> None:
    model = flatclip.load("pocket", device="cpu")
    how: dict[str, Any] = {"views": 8, "limit": 60}
    flatclip.evaluate(model, "pocket:sketch", "tpt", out=tmp_path / "whole", progress=False, **how)
    cut = tmp_path / "cut"
    with pytest.raises(Stop):
        flatclip.evaluate(model, "pocket:sketch", "tpt", out=cut, progress=StopAfter(3), **how)
    done = len(predictions(cut))
    assert 0 < done < 60
    with pytest.raises(flatclip.FlatclipError, match="precision"):
        flatclip.evaluate("pocket", "pocket:sketch", "tpt", out=cut, resume=True, progress=False, **how)
    flatclip.evaluate(model, "pocket:sketch", "tpt", out=cut, resume=True, progress=False, **how)
    for name in ("predictions.jsonl", "summary.json", "config.toml", "run.json"):
        assert filecmp.cmp(tmp_path / "whole" / name, cut / name, shallow=False), name


def test_what_is_not_there_is_refused_and_nothing_falls_back() -> None:
    with pytest.raises(flatclip.errors.DeviceError, match="cuda"):
        flatclip.load("pocket", device="cuda")
    with pytest.raises(flatclip.FlatclipError, match="device 'nonsense'"):
        flatclip.load("pocket", device="nonsense")
    with pytest.raises(flatclip.FlatclipError, match="dtype"):
        flatclip.load("pocket", device="cpu", dtype="int8")
    with pytest.raises(flatclip.FlatclipError, match="precision"):
        flatclip.load("pocket", device="cpu", precision="i16")
    with pytest.raises(flatclip.FlatclipError, match="dtype"):
        flatclip.load("pocket", dtype="float16")


def test_a_device_that_computes_something_else_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    own = Towers.images
    monkeypatch.setattr(Towers, "images", lambda self, pixels: own(self, pixels)[:, ::-1].copy())
    with pytest.raises(flatclip.errors.DeviceError, match=r"lowest cosine.*expected at least 0.999"):
        flatclip.load("pocket", device="cpu")


def test_the_command_line_runs_on_a_device(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from flatclip.__main__ import main

    words = ["eval", "pocket:sketch", "--method", "zero", "--views", "4", "--limit", "4", "--device", "cpu", "--out", str(tmp_path / "run")]
    assert main(words) == 0
    assert "top-1" in capsys.readouterr().out
    assert "torch cpu float32" in (tmp_path / "run" / "config.toml").read_text()


def test_reproduce_through_torch_gives_our_tables(tmp_path: Path) -> None:
    how: dict[str, Any] = {
        "limit": 12, "views": 4, "shots": 1, "epochs": 1, "datasets": ["pocket:sketch"], "methods": ["zero-shot", "zero", "stss"],
        "progress": False,
    }  # fmt: skip
    ours = flatclip.reproduce("pocket", flatclip.load("pocket", precision="f32"), out=tmp_path / "ours", **how)
    found = flatclip.reproduce("pocket", flatclip.load("pocket", device="cpu"), out=tmp_path / "torch", **how)
    assert not found["open"] and found["steps"] == ours["steps"]
    assert found["text"] == ours["text"]
    plan = flatclip.reproduce("pocket", flatclip.load("pocket", device="cpu"), out=tmp_path / "plan", plan=True, **how)
    assert plan["seconds"] > 0 and "in all" in str(plan)


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
    from flatclip.torch._foreign import describe, own_features

    found = describe(module, None)
    images, texts = own_features(module, found, scaled.float(), ids)
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
    close(model.encode_image(list(pixels)), plain[:, ::-1], 1e-3)
    with pytest.raises(flatclip.FlatclipError, match="needs text features of contexts"):
        flatclip.Classifier(model, ["cat", "dog"], method="tpt").predict(pixels)
