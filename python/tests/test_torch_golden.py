"""Golden cases on torch towers: the checks of `cargo test -p flatclip-lab --test golden`, with torch in place of our kernels.
Methods, tuners and landscapes run in Rust as always; features and gradients come through the bridge."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: its towers are not tested")

from flatclip import _native  # noqa: E402
from flatclip.torch import Towers  # noqa: E402

if not hasattr(_native, "golden_case"):
    pytest.skip("this wheel has no golden cases: maturin build --features golden", allow_module_level=True)

GOLDEN = Path(os.environ.get("FLATCLIP_GOLDEN", Path(__file__).parents[2] / "fixtures" / "golden"))
# Every one of them must be among the cases.
METHODS = {
    "backbone-logits", "c-tpt", "clip-image", "clip-logits", "clip-text", "cocoop", "coop", "coop-siglip", "difftpt", "fga-stss",
    "fga-stss-siglip", "landscape", "maple", "mta", "promptalign", "r-tpt", "sapt", "sar", "tip-adapter", "tpt", "tpt-cocoop",
    "zero", "zeroshot-siglip",
}  # fmt: skip


def spec(file: Path) -> dict[str, Any]:
    """The description of a case."""
    with file.open("rb") as opened:
        header = json.loads(opened.read(int.from_bytes(opened.read(8), "little")))
    found: dict[str, Any] = json.loads(header["__metadata__"]["spec"])
    return found


CASES = {file.stem: file for file in sorted(GOLDEN.glob("*.safetensors")) if spec(file).get("model")}


def towers_of(file: Path) -> tuple[Any, Towers]:
    """The weights of a case's model, as our reader gives them, and torch towers of them."""
    weights = _native.open_weights(os.fspath(_native.golden_model(file)), offline=True)
    tensors = {name: torch.from_numpy(weights.tensor(name)) for name in weights.names()}
    return weights, Towers(tensors, weights.config, device=torch.device("cpu"))


def test_every_method_that_goes_through_a_tower_has_a_case() -> None:
    assert METHODS <= {spec(file)["method"] for file in CASES.values()}


@pytest.mark.parametrize("name", CASES)
def test_golden(name: str) -> None:
    print(_native.golden_case(CASES[name], *towers_of(CASES[name])))


@pytest.mark.parametrize("name", [name for name in CASES if name.startswith(("coop", "sapt", "maple"))])
def test_passes_that_run_forward_again_give_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The graph of a large pass does not stay: its parts run again for the gradient."""
    monkeypatch.setattr("flatclip.torch._towers.KEPT_POSITIONS", 40)
    print(_native.golden_case(CASES[name], *towers_of(CASES[name])))


def test_other_towers_fail() -> None:
    """The cases can tell: towers that are a little off are refused."""
    file = next(file for name, file in CASES.items() if name.startswith("clip-logits"))
    weights, towers = towers_of(file)
    own = towers.images
    towers.images = lambda pixels: own(pixels) * 1.01  # type: ignore[method-assign]
    with pytest.raises(AssertionError, match="image_features"):
        _native.golden_case(file, weights, towers)
