"""Features made elsewhere: files and arrays into the cache, then evaluations and sweeps."""

from __future__ import annotations

import pickle
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import flatclip

N, V, D, K = 12, 5, 16, 3


def parts(dtype: str = "float32") -> dict[str, Any]:
    rng = np.random.default_rng(0)
    text = rng.normal(size=(K, D)).astype(np.float32)
    labels = np.arange(N) % K
    features = text[labels][:, None] + 1.5 * rng.normal(size=(N, V, D))
    return {
        "features": features.astype(dtype), "text_features": text, "labels": labels,
        "ids": np.array([f"a/{i}.jpg" for i in range(N)]), "classes": np.array(["cat", "dog", "fish"]),
        "logit_scale": 100.0, "model": "numpy",
    }  # fmt: skip


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_an_npz_is_answered_as_adapt_answers_its_arrays(tmp_path: Path, save: Any, dtype: str) -> None:
    given = parts(dtype)
    save(tmp_path / "mine.npz", **given)
    features = flatclip.import_features(tmp_path / "mine.npz", cache=tmp_path, progress=False)
    assert (features.name, features.shape, features.model, features.classes) == ("mine", (N, V, D), "numpy", ["cat", "dog", "fish"])
    methods = ["zero", "zero-shot", "tda", "transclip"]
    runs = flatclip.evaluate(features, method=methods, out=tmp_path / "runs", progress=False)
    answers = flatclip.adapt(given["features"], given["text_features"], 100.0, "zero")
    right = (answers.predictions == given["labels"]).mean()
    assert runs[0]["summary"]["metrics"]["top1"] == pytest.approx(right)
    assert runs[0]["config"]["views"] == {"policy": "imported", "count": V} and runs[0]["config"]["model"] == "numpy"
    table = flatclip.report(tmp_path / "runs").tables[0]
    assert len(table["rows"]) == len(methods)


def test_arrays_and_memory_maps_give_what_files_give(tmp_path: Path) -> None:
    given = parts("float16")
    np.savez(tmp_path / "mine.npz", **given)
    file = flatclip.import_features(tmp_path / "mine.npz", cache=tmp_path / "a", progress=False)
    np.save(tmp_path / "features.npy", given["features"])
    mapped = np.load(tmp_path / "features.npy", mmap_mode="r")
    beside = {key: value for key, value in given.items() if key != "features"}
    beside["ids"], beside["classes"] = list(map(str, given["ids"])), list(map(str, given["classes"]))
    array = flatclip.import_features(mapped, name="mine", cache=tmp_path / "b", progress=False, **beside)
    assert array.digest == file.digest
    assert pickle.loads(pickle.dumps(array)).digest == file.digest
    assert flatclip.Features("mine", tmp_path / "b").digest == file.digest


def test_the_round_trip_is_exact(tmp_path: Path) -> None:
    np.savez(tmp_path / "mine.npz", **parts())
    first = flatclip.import_features(tmp_path / "mine.npz", cache=tmp_path / "a", progress=False)
    assert first.export(tmp_path / "out.safetensors") == N
    again = flatclip.import_features(tmp_path / "out.safetensors", name="mine", cache=tmp_path / "b", progress=False)
    assert again.digest == first.digest
    assert again.export(tmp_path / "again.safetensors") == N
    assert (tmp_path / "again.safetensors").read_bytes() == (tmp_path / "out.safetensors").read_bytes()


def test_one_view_a_bank_and_a_sweep(tmp_path: Path) -> None:
    given = parts()
    bank = np.stack([given["text_features"], given["text_features"] + 0.1, given["text_features"] - 0.1])
    shared = {"labels": given["labels"], "logit_scale": 100.0, "cache": tmp_path, "progress": False}
    banked = flatclip.import_features(given["features"], name="banked", text_bank=bank, **shared)
    assert flatclip.evaluate(banked, method="stss", out=tmp_path / "stss", progress=False)[0]["summary"]["failed"] == 0
    tables = flatclip.sweep(banked, axes={"views": [1, 3], "zero.fraction": [0.3, 1.0]}, method="zero", out=tmp_path / "sweep", progress=False)
    assert [len(table["rows"]) for table in tables.values()] == [4]
    single = flatclip.import_features(given["features"][:, 0], name="single", text_features=given["text_features"], **shared)
    with pytest.warns(UserWarning, match="one view"):
        flatclip.evaluate(single, method="zero", out=tmp_path / "zero", progress=False)


def test_ids_of_a_data_set(tmp_path: Path, drawn: flatclip.Dataset) -> None:
    rng = np.random.default_rng(1)
    text = rng.normal(size=(len(drawn.classes), D)).astype(np.float32)
    features = rng.normal(size=(len(drawn), D)).astype(np.float32)
    keywords = {"text_features": text, "logit_scale": 100.0, "cache": tmp_path, "progress": False, "data": drawn}
    found = flatclip.import_features(features, name="drawn", ids=drawn.ids, **keywords)
    assert found.classes == drawn.classes
    with pytest.raises(flatclip.errors.DataError, match="1 of 12 samples have no features"):
        flatclip.import_features(features, name="other", ids=[*drawn.ids[:-1], "nobody"], **keywords)
    with pytest.raises(flatclip.errors.OptionError, match="ids"):
        flatclip.import_features(features, name="other", **keywords)


@pytest.mark.parametrize(
    "change, match",
    [
        ({"text_features": np.ones((K, D + 1), np.float32)}, "another model"),
        ({"labels": np.arange(N)}, "label 3"),
        ({"labels": np.arange(N - 1) % K}, "11 labels"),
        ({"ids": np.array(["a"] * N)}, "duplicate"),
        ({"classes": np.array(["cat"])}, "3 text features for 1 classes"),
        ({"features": np.full((N, V, D), np.nan, np.float32)}, "NaN"),
        ({"features": np.ones((N, V, D))}, "f64"),
        ({"features": np.ones((N, V, D), np.int32)}, "i32"),
        ({"features": np.ones((2, N, V, D), np.float32)}, "N, V, D"),
        ({"features": np.array([[{}]], object)}, "numpy's type"),
        ({"logit_scale": 4.6}, "logarithm"),
        ({"text_bank": np.ones((2, K, D), np.float32)}, "first part"),
    ],
)
def test_what_does_not_fit_is_refused(tmp_path: Path, change: dict[str, Any], match: str) -> None:
    np.savez(tmp_path / "mine.npz", **{**parts(), **change})
    with pytest.raises(flatclip.FlatclipError, match=match):
        flatclip.import_features(tmp_path / "mine.npz", cache=tmp_path / "cache", progress=False)
    with pytest.raises(flatclip.FlatclipError, match="not known"):
        flatclip.Features("mine", tmp_path / "cache")


def test_damaged_archives_and_contradictions(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "mine.npz", **parts())
    whole = (tmp_path / "mine.npz").read_bytes()
    (tmp_path / "cut.npz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(flatclip.errors.DataError):
        flatclip.import_features(tmp_path / "cut.npz", cache=tmp_path, progress=False)
    np.savez(tmp_path / "plain.npz", **parts())
    with zipfile.ZipFile(tmp_path / "plain.npz") as archive:
        member = archive.getinfo("features.npy")
        start = member.header_offset + 30 + len(member.filename) + 300
    flipped = bytearray((tmp_path / "plain.npz").read_bytes())
    flipped[start + 7] ^= 1
    (tmp_path / "flipped.npz").write_bytes(flipped)
    with pytest.raises(flatclip.errors.DataError, match="checksum"):
        flatclip.import_features(tmp_path / "flipped.npz", cache=tmp_path, progress=False)
    with pytest.raises(flatclip.errors.OptionError, match="models"):
        flatclip.import_features(tmp_path / "mine.npz", model="another", cache=tmp_path, progress=False)
    with pytest.raises(TypeError, match="float64"):
        flatclip.import_features(np.ones((2, 3)), name="x", cache=tmp_path)
    flatclip.import_features(tmp_path / "mine.npz", cache=tmp_path, progress=False)
    with pytest.raises(flatclip.errors.OptionError, match="exist already"):
        flatclip.import_features(tmp_path / "mine.npz", cache=tmp_path, progress=False)
    features = flatclip.import_features(tmp_path / "mine.npz", cache=tmp_path, replace=True, progress=False)
    with pytest.raises(flatclip.errors.MethodError, match="tower"):
        flatclip.evaluate(features, method="tpt", out=tmp_path / "tpt", progress=False)
    with pytest.raises(TypeError, match="omit it"):
        flatclip.evaluate(features, "pocket:photo", "zero", out=tmp_path / "x")
