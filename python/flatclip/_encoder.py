"""Models made of the user's own functions, in any framework."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import _native, errors
from ._native import Model
from ._towers import ClassTokens, Failed, Floats, padded

MEAN, STD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)


def Encoder(
    image: Callable[[NDArray[Any]], Any],
    text: Callable[[list[str]], Any] | None = None,
    *,
    prompts: Callable[[Any, Any], Any] | None = None,
    text_gradient: str | Callable[[Floats, NDArray[np.int64], Floats], Any] | None = None,
    token_embedding: Any = None,
    context_length: int = 77,
    size: int = 224,
    mean: Sequence[float] = MEAN,
    std: Sequence[float] = STD,
    pixels: str = "float32",
    logit_scale: float = 100.0,
    logit_bias: float = 0.0,
    fingerprint: str | None = None,
    device: str = "callable",
    dtype: str = "float32",
    batch_views: int = 64,
    name: str = "encoder",
) -> Model:
    """A model made of functions; it can be used like a `Model`, as far as the functions allow.

    ``image(pixels)`` gets ``[n, 3, size, size]``, normalised with ``mean`` and ``std`` (or bytes with ``pixels="uint8"``), and gives
    features ``[n, D]``, as a numpy array or a tensor. ``text(texts)`` gets a list of strings and gives ``[n, D]``. Without
    ``text``, methods work with class embeddings as prompt.

    For methods that change a context, ``prompts(embedded, ids)`` encodes embedded texts ``[n, length, W]`` whose token ids (of
    CLIP's tokenizer, padded with 0 after the end token) are ``[n, length]``: CoOp's ``TextEncoder``. ``token_embedding``
    is ``[vocabulary, W]``. ``text_gradient="torch"`` differentiates it with autograd (it then gets tensors on the device of
    ``token_embedding``); a function ``text_gradient(embedded, ids, d_features)`` gives the gradient on ``embedded``.

    ``logit_scale`` is the factor on cosines. ``logit_bias`` (SigLIP) is for the sigmoid of an answer;
    the softmax does not depend on it. ``fingerprint`` names what the functions compute, for the feature cache and for resumed runs.

    >>> import flatclip, numpy as np
    >>> encoder = flatclip.Encoder(
    ...     lambda pixels: pixels.reshape(len(pixels), 3, -1).mean(2), lambda texts: np.eye(3)[: len(texts)], size=32,
    ...     fingerprint="mean colour"
    ... )
    >>> clf = flatclip.Classifier(encoder, ["red", "green", "blue"])
    >>> clf.answer([np.full((8, 8, 3), (250, 0, 0), np.uint8)])[0].label
    'red'
    """
    functions = _Functions(image, text, prompts, text_gradient, token_embedding, pixels, size, context_length, batch_views)
    functions.mean, functions.std = (np.array(x, np.float32).reshape(3, 1, 1) for x in (mean, std))
    if not np.isfinite(logit_bias):
        raise errors.make("number.not-finite", f"logit_bias: expected a finite number, found {logit_bias}")
    own = functions.fingerprint() if fingerprint is None else fingerprint
    setup = {
        "fingerprint": own, "size": size, "width": functions.width(), "mean": [float(x) for x in mean],
        "std": [float(x) for x in std], "logit_scale": float(logit_scale), "logit_bias": float(logit_bias) or None, "text": functions.has_text,
        "strings": text is not None, "text_width": functions.text_width, "context_length": context_length,
        "device": device, "dtype": dtype, "versions": f"fingerprint {own}", "lowest_cosine": None,
    }  # fmt: skip
    return _native.model_of(name, setup, functions)


class _Functions:
    """The functions with the methods that compiled flatclip calls."""

    def __init__(
        self, image: Any, text: Any, prompts: Any, gradient: Any, embedding: Any, pixels: str, size: int, length: int, batch: int
    ) -> None:
        for name, function in (("image", image), ("text", text), ("prompts", prompts)):
            if not (callable(function) or (function is None and name != "image")):
                raise TypeError(f"{name}: expected a function, found {type(function).__name__}")
        if pixels not in ("float32", "uint8"):
            raise errors.make("option.invalid", f"pixels: expected float32 or uint8, found {pixels!r}")
        if (prompts is None) != (embedding is None):
            raise errors.make("option.invalid", "prompts and token_embedding: expected both or none")
        if gradient is not None and prompts is None:
            raise errors.make("option.invalid", "text_gradient: expected prompts= and token_embedding= beside it")
        if not (gradient in (None, "torch") or callable(gradient)):
            raise errors.make("option.invalid", f'text_gradient: expected "torch" or a function, found {gradient!r}')
        self.image, self.text, self.prompts, self.text_gradient = image, text, prompts, gradient
        self.embedding, self.size, self.length = embedding, size, length
        self.takes_bytes, self.batch_views = pixels == "uint8", batch
        self.mean = self.std = np.ones((3, 1, 1), np.float32)
        # Width of the features; known after the first call of the image function.
        self.features: int | None = None
        self.has_text = text is not None or prompts is not None
        self.text_width = 0 if embedding is None else int(embedding.shape[1])
        self.passes = [] if prompts is None else ["contexts", *(["context_gradient"] if gradient is not None else [])]

    def fingerprint(self) -> str:
        """A fingerprint of the source of the functions; weights in their closures are not included."""
        try:
            source = "".join(inspect.getsource(f) for f in (self.image, self.text, self.prompts) if f is not None)
        except (OSError, TypeError):
            reason = "fingerprint: the source of the functions is not at hand; name what they compute, e.g. \"my-vit@sha\""
            raise errors.make("option.invalid", reason) from None
        return hashlib.sha256(source.encode()).hexdigest()

    def width(self) -> int:
        """Width of the features, from a call with one image."""
        blank = np.zeros((1, 3, self.size, self.size), np.uint8 if self.takes_bytes else np.float32)
        try:
            self.features = int(self.images(blank).shape[1])
            if self.text is not None:
                self.strings(["a photo of a cat."])
        except Failed as error:
            raise errors.make("device.failed", str(error)) from error
        return self.features

    def images(self, pixels: NDArray[Any]) -> Floats:
        """Raw features of images."""
        if self.takes_bytes and pixels.dtype != np.uint8:
            # For a method that needs normalised pixels: convert them back to bytes.
            shown = (pixels * self.std + self.mean) * 255.0
            pixels = np.clip(np.rint(shown), 0, 255).astype(np.uint8)
        return self.called("image", self.image, (pixels,), len(pixels))

    def strings(self, texts: list[str]) -> Floats:
        """Raw features of texts."""
        return self.called("text", self.text, (texts,), len(texts))

    def texts(self, texts: list[list[int]]) -> Floats:
        """Raw features of token ids."""
        ids = self.filled(padded(texts))
        return self.called("prompts", self.prompts, self.inputs(self.rows(ids), ids), len(texts))

    def called(self, name: str, function: Any, arguments: tuple[Any, ...], rows: int) -> Floats:
        """Features ``[rows, D]``, finite."""
        call, width = f"Encoder.{name}", self.features
        found = _array(_tried(call, function, arguments))
        if found.ndim != 2 or found.shape[0] != rows or width not in (None, found.shape[1]):
            raise Failed(call, f"expected features of shape [{rows}, {width or 'D'}], found {list(found.shape)}")
        bad = ~np.isfinite(found)
        if bad.any():
            raise Failed(call, f"expected finite features, found NaN or infinity in row {int(np.argwhere(bad)[0][0])}")
        return found

    def rows(self, ids: NDArray[np.int64]) -> Floats:
        """Token embeddings."""
        if not hasattr(self.embedding, "detach"):
            return _array(self.embedding[ids])
        import torch

        return _array(self.embedding[torch.as_tensor(ids, device=self.embedding.device)])

    def filled(self, ids: NDArray[np.int64], fill: int = 0) -> NDArray[np.int64]:
        """Padded to all positions."""
        return np.pad(ids, ((0, 0), (0, max(0, self.length - ids.shape[1]))), constant_values=fill)

    def embed(self, ids: list[int]) -> Floats:
        """Token embeddings of some ids."""
        return self.rows(np.array(ids, np.int64))

    def inputs(self, embedded: Any, ids: Any) -> tuple[Any, Any]:
        """Converts arrays for `prompts`: tensors if autograd is used, else arrays."""
        if self.text_gradient != "torch":
            return embedded, ids
        import torch

        place = getattr(self.embedding, "device", "cpu")
        return torch.as_tensor(embedded, device=place), torch.as_tensor(ids, device=place)

    def contexts(self, tokens: ClassTokens, contexts: Floats, blocks: int | None) -> tuple[Floats, Any]:
        """Unit-norm features of contexts, and the pass for their gradient."""
        record = _Record(self, tokens, contexts)
        return record.features(), record if blocks is not None else None

    def rebuild(self) -> Any:
        """Pickles the functions as they are; Ray uses cloudpickle."""
        raise TypeError("an Encoder holds functions of this process; make it in the other process")


class _Record:
    """A pass with contexts: one call of `prompts` for each context."""

    def __init__(self, functions: _Functions, tokens: ClassTokens, contexts: Floats) -> None:
        self.f, self.tokens, self.shape = functions, tokens, contexts.shape
        self.ids = functions.filled(np.where(tokens.slots >= 0, 0, tokens.ids))
        self.slots = functions.filled(tokens.slots, -1)
        self.at = self.slots >= 0
        base = functions.rows(self.ids)
        self.classes, _ = np.nonzero(self.at)
        self.embedded = []
        for context in contexts:
            rows = base.copy()
            rows[self.at] = context[self.index(context.ndim == 3)]
            self.embedded.append(rows)
        self.lengths: list[Floats] = []
        self.units: list[Floats] = []

    def index(self, own: bool) -> Any:
        """Which rows of a context stand where: of a shared one, or of one with rows for each class."""
        slots = self.slots[self.at]
        return (self.classes, slots) if own else slots

    def features(self) -> Floats:
        """Unit-norm ``[m, K, D]``."""
        for embedded in self.embedded:
            raw = self.f.called("prompts", self.f.prompts, self.f.inputs(embedded, self.ids), len(self.tokens))
            length = np.linalg.norm(raw, axis=1, keepdims=True)
            self.units.append(raw / length)
            self.lengths.append(length)
        return np.stack(self.units).astype(np.float32)

    def gradient(self, d_features: Floats) -> Floats:
        """The gradient with respect to the contexts."""
        total = np.zeros(self.shape, np.float32)
        for index, (embedded, unit, length) in enumerate(zip(self.embedded, self.units, self.lengths)):
            d = d_features[index]
            d_raw = ((d - unit * (d * unit).sum(1, keepdims=True)) / length).astype(np.float32)
            d_rows = self.backward(embedded, d_raw)
            if d_rows.shape != embedded.shape or not np.isfinite(d_rows).all():
                reason = f"expected a finite gradient of shape {embedded.shape}, found {d_rows.shape}"
                raise Failed("Encoder.text_gradient", reason)
            np.add.at(total[index], self.index(total.ndim == 4), d_rows[self.at])
        return total

    def backward(self, embedded: Floats, d_raw: Floats) -> Floats:
        """The gradient with respect to the embedded texts."""
        if callable(self.f.text_gradient):
            return _array(_tried("Encoder.text_gradient", self.f.text_gradient, (embedded, self.ids, d_raw)))
        import torch

        rows, ids = self.f.inputs(embedded, self.ids)
        rows = rows.requires_grad_()
        with torch.enable_grad():
            found = _tried("Encoder.prompts", self.f.prompts, (rows, ids))
        if not getattr(found, "requires_grad", False):
            raise Failed("Encoder.prompts", "its features have no graph; text_gradient=\"torch\" needs torch operations")
        (d_rows,) = torch.autograd.grad(found, rows, torch.as_tensor(d_raw, device=found.device, dtype=found.dtype))
        return _array(d_rows)


def _tried(name: str, function: Any, arguments: tuple[Any, ...]) -> Any:
    try:
        return function(*arguments)
    except KeyboardInterrupt:
        raise
    except Exception as error:
        raise Failed(name, f"{type(error).__name__}: {error}") from error


def _array(value: Any) -> Floats:
    """Of a tensor or an array."""
    if hasattr(value, "detach"):
        value = value.detach().float().cpu().numpy()
    return np.ascontiguousarray(value, np.float32)
