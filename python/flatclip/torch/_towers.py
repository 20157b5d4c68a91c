"""Both towers on a device, with the methods that compiled flatclip calls. Gradients come from autograd.

A pass with a gradient runs forward again, a part at a time, where its activations would need much memory."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from .. import errors
from .._towers import ClassTokens, Floats, padded
from ._image import ModifiedResNet, VisionTransformer
from ._text import TextTransformer
from ._trial import trial

# Token positions of a text pass whose activations stay for the gradient; a larger pass runs forward again in parts.
KEPT_POSITIONS = 1 << 14
# Images of a part of a pass with a gradient.
GRADIENT_IMAGES = 16
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
_SHORT = {"f32": "float32", "bf16": "bfloat16", "f16": "float16", "half": "float16", "float": "float32"}


def dtype_of(word: Any) -> torch.dtype:
    """A torch dtype, or its name."""
    name = str(word).removeprefix("torch.")
    found = DTYPES.get(_SHORT.get(name, name))
    if found is None:
        raise errors.make("option.invalid", f"dtype: expected {', '.join(DTYPES)}, found {word!r}")
    return found


def device_of(word: Any) -> torch.device:
    """Checks that a device is available; never falls back to another."""
    try:
        device = torch.device(word)
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError, ValueError, TypeError, NotImplementedError) as error:
        first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise errors.make("device.failed", f"device {word!r}: {first}") from error
    return device


class Towers:
    """The towers of a checkpoint. ``weights`` are tensors by their names in OpenAI's checkpoints, on the device."""

    takes_bytes = True

    def __init__(
        self,
        weights: Mapping[str, Tensor],
        config: dict[str, Any],
        *,
        device: torch.device,
        dtype: torch.dtype = torch.float32,
        batch_views: int | None = None,
        rebuild: Callable[[], Any] | None = None,
    ) -> None:
        self.device, self.dtype, self._rebuild = device, dtype, rebuild
        image, act = config["image"], config["activation"]
        is_vit = image["kind"] == "vit"
        self.image: Any = VisionTransformer(weights, image, act) if is_vit else ModifiedResNet(weights, image)
        self.text = TextTransformer(weights, config["text"], act) if config["text"] else None
        self.passes = self.image.passes + (self.text.passes if self.text else [])
        scale = [torch.tensor(config["preprocess"][name], device=device).view(3, 1, 1) for name in ("mean", "std")]
        self.mean, self.std = scale
        # On the CPU each image is encoded alone, so that its features do not depend on the other images of a call: resumed runs
        # are then byte-identical. On other devices all calls have the same size for the same reason; the last one is padded.
        self.fixed = device.type != "cpu"
        self.batch_views = batch_views or (trial(self, config["image_size"]) if self.fixed else 1)

    @property
    def token_width(self) -> int:
        """Channels of a token of the vision transformer."""
        return int(self.image.width)

    @contextmanager
    def computing(self, gradient: bool) -> Iterator[None]:
        """In the asked precision, with or without a graph."""
        half = self.dtype != torch.float32
        with torch.set_grad_enabled(gradient), torch.autocast(self.device.type, self.dtype, enabled=half):
            yield

    def tensor(self, array: Any) -> Tensor:
        """An array on the device."""
        return torch.from_numpy(np.ascontiguousarray(array)).to(self.device, non_blocking=True)

    def pixels(self, array: NDArray[Any]) -> Tensor:
        """Normalised pixels: bytes are normalised on the device, so that only a quarter of the data is copied."""
        found = self.tensor(array)
        return (found.float() / 255.0 - self.mean) / self.std if found.dtype == torch.uint8 else found

    @staticmethod
    def digest(state: Mapping[str, Tensor]) -> str:
        """A hash of weights that do not come from a checkpoint."""
        found = hashlib.sha256()
        for name in sorted(state):
            found.update(name.encode())
            found.update(numpy(state[name]).tobytes())
        return found.hexdigest()

    def rebuild(self) -> Any:
        """How another process makes the same model: a function and its arguments."""
        if self._rebuild is None:
            raise TypeError("these towers hold tensors of this process")
        return self._rebuild()

    # Images

    def images(self, pixels: NDArray[Any]) -> Floats:
        """Raw features ``[n, D]``."""
        size = max(self.batch_views, 64)
        parts = []
        with self.computing(False):
            for start in range(0, len(pixels), size):
                part = pixels[start : start + size]
                count = len(part)
                if self.fixed and count < size:
                    part = np.concatenate([part, np.zeros((size - count, *part.shape[1:]), part.dtype)])
                parts.append(self.image(self.pixels(part))[:count].float())
            return numpy(torch.cat(parts))

    def norms(self) -> list[Floats]:
        """Scales and shifts of all LayerNorms in turns."""
        return [numpy(part.float()) for norm in self.image.norms for part in norm]

    def vision(
        self, pixels: NDArray[Any], prompts: list[Floats], norms: list[Floats] | None, _record: bool
    ) -> tuple[Floats, Floats, int, VisionRecord]:
        """A pass with visual prompts or other norms: unit-norm features, their lengths, tokens of an image, the record."""
        record = VisionRecord(self, pixels, prompts, norms)
        raw = record.features()
        lengths = raw.norm(dim=1)
        tokens = self.image.positions.shape[0] + (len(prompts[0]) if prompts else 0)
        return numpy(F.normalize(raw, dim=1)), numpy(lengths), tokens, record

    def batch_norms(self) -> list[tuple[str, Floats]]:
        """Scales and shifts of all BatchNorms in turns, by their names."""
        return [(name, numpy(value.float())) for name, value in self.image.norms()]

    def batch_norm_pass(self, pixels: NDArray[Any], norms: list[Floats]) -> tuple[Floats, Graph]:
        """A pass through the ResNet on the statistics of the batch."""
        names = [name for name, _ in self.image.norms()]
        leaves = [self.tensor(value).requires_grad_() for value in norms]
        with self.computing(True):
            unit = F.normalize(self.image(self.pixels(pixels), dict(zip(names, leaves))).float(), dim=1)
        return numpy(unit), Graph(self, unit, leaves)

    # Texts

    def embed(self, ids: Sequence[int]) -> Floats:
        """Token embeddings without positions."""
        assert self.text is not None
        self.check_ids(ids)
        return numpy(self.text.embedding[torch.tensor(ids, device=self.device)].float())

    def check_ids(self, ids: Sequence[int]) -> None:
        """Refuses ids that the embedding has no row for: on some devices they would end the process."""
        assert self.text is not None
        vocab = self.text.embedding.shape[0]
        if ids and max(ids) >= vocab:
            raise ValueError(f"id {max(ids)}, but the vocabulary has {vocab} entries; is it this model's tokenizer?")

    def texts(self, texts: list[list[int]]) -> Floats:
        """Raw features ``[n, D]`` of token ids. A causal tower ignores what follows the end token; another one sees it."""
        assert self.text is not None
        for ids in texts:
            self.check_ids(ids)
        rows, at_end = texts, [int(np.argmax(ids)) for ids in texts]
        if self.text.causal:
            rows = [ids[: end + 1] for ids, end in zip(texts, at_end)]
        ids, ends = self.tensor(padded(rows, self.text.padding)), torch.tensor(at_end, device=self.device)
        with self.computing(False):
            parts = [self.text.texts(ids[at : at + 256], ends[at : at + 256]).float() for at in range(0, len(rows), 256)]
        return numpy(torch.cat(parts))

    def contexts(self, tokens: ClassTokens, contexts: Floats, blocks: int | None) -> tuple[Floats, ContextRecord | None]:
        """Unit-norm features ``[m, K, D]``, and the pass for the gradient if ``blocks`` says how far it goes back."""
        record = ContextRecord(self, tokens, contexts, None, blocks)
        return record.forward(), None if blocks is None else record

    def deep(
        self, tokens: ClassTokens, context: Floats, deep: list[Floats], gradient: bool
    ) -> tuple[Floats, ContextRecord | None]:
        """Unit-norm features ``[K, D]`` of a context with deep prompts."""
        assert self.text is not None
        record = ContextRecord(self, tokens, context[None], deep, len(self.text.blocks) if gradient else None)
        return record.forward()[0], record if gradient else None


class Graph:
    """A graph that stays until its pass is dropped."""

    def __init__(self, towers: Towers, unit: Tensor, leaves: list[Tensor]) -> None:
        self.towers, self.unit, self.leaves = towers, unit, leaves

    def gradient(self, d_features: Floats) -> list[Floats]:
        """With respect to all leaves."""
        d = self.towers.tensor(d_features)
        found = torch.autograd.grad(self.unit, self.leaves, d, retain_graph=True, allow_unused=True)
        return [numpy(torch.zeros_like(leaf) if g is None else g) for leaf, g in zip(self.leaves, found)]


class ContextRecord:
    """A pass through the text tower."""

    def __init__(
        self, towers: Towers, tokens: ClassTokens, contexts: Floats, deep: list[Floats] | None, blocks: int | None
    ) -> None:
        self.towers, self.tokens, self.is_deep = towers, tokens, deep is not None
        assert towers.text is not None
        self.text, self.wanted = towers.text, blocks is not None
        # Without a shared prefix, the context is in the rows of every class: all blocks are differentiated.
        self.skipped = max(0, len(self.text.blocks) - max(1, blocks)) if blocks is not None and self.text.causal else 0
        self.leaves = [towers.tensor(value).requires_grad_(self.wanted) for value in (contexts, *(deep or ()))]
        length = (tokens.ids.shape[1] if self.text.causal else len(self.text.positions)) - self.text.shared(tokens, contexts.ndim == 4)
        self.part = max(1, KEPT_POSITIONS // max(1, length * len(contexts)))
        self.graph: Graph | None = None

    def unit(self, classes: slice) -> Tensor:
        """Unit-norm features of some classes."""
        raw = self.text.contexts(self.tokens, classes, self.leaves[0], self.leaves[1:], self.skipped)
        return F.normalize(raw.float(), dim=-1)

    def parts(self) -> Iterator[slice]:
        """Slices of classes that are computed together."""
        count = len(self.tokens)
        return (slice(at, min(at + self.part, count)) for at in range(0, count, self.part))

    def forward(self) -> Floats:
        """Features of all classes; the graph stays where it is small."""
        keep = self.wanted and self.part >= len(self.tokens)
        with self.towers.computing(keep):
            found = torch.cat([self.unit(classes) for classes in self.parts()], 1)
        if keep:
            self.graph = Graph(self.towers, found, self.leaves)
        return numpy(found)

    def gradient(self, d_features: Floats) -> Any:
        """With respect to the contexts; for deep prompts a list, the context first."""
        d_features = d_features.reshape(-1, len(self.tokens), d_features.shape[-1])
        if self.graph is not None:
            total = self.graph.gradient(d_features)
        else:
            total = [np.zeros(leaf.shape, np.float32) for leaf in self.leaves]
            for classes in self.parts():
                with self.towers.computing(True):
                    graph = Graph(self.towers, self.unit(classes), self.leaves)
                for to, part in zip(total, graph.gradient(d_features[:, classes])):
                    to += part
        return [total[0][0], *total[1:]] if self.is_deep else total[0]


class VisionRecord:
    """A pass through the vision transformer: it runs forward again for its gradient."""

    def __init__(self, towers: Towers, pixels: NDArray[Any], prompts: list[Floats], norms: list[Floats] | None) -> None:
        # Hold the array: the caller may release its pixels before the backward pass.
        self.towers, self.array = towers, pixels
        self.prompts = [towers.tensor(prompt) for prompt in prompts]
        own = [part for norm in towers.image.norms for part in norm]
        self.norms = own if norms is None else [towers.tensor(part) for part in norms]

    def run(self, part: slice, leaves: list[Tensor], seen: dict[int, Tensor] | None = None, last: int | None = None) -> Tensor:
        """Some images; the leaves are the prompts and the norms."""
        prompts, flat = leaves[: len(self.prompts)], leaves[len(self.prompts) :]
        norms = list(zip(flat[::2], flat[1::2]))
        found: Tensor = self.towers.image(self.towers.pixels(self.array[part]), prompts, norms, seen, last)
        return found

    def features(self) -> Tensor:
        """Raw features of all images."""
        with self.towers.computing(False):
            parts = [self.run(part, [*self.prompts, *self.norms]).float() for part in self.parts(len(self.array))]
        return torch.cat(parts)

    @staticmethod
    def parts(count: int) -> Iterator[slice]:
        """Slices of images that are computed together."""
        return (slice(at, at + GRADIENT_IMAGES) for at in range(0, count, GRADIENT_IMAGES))

    def tokens(self, block: int) -> Floats:
        """The tokens that a block reads, ``[images * tokens, width]``."""
        blocks = len(self.towers.image.blocks)
        if block >= blocks:
            raise ValueError(f"block {block}, but the tower has {blocks}")
        leaves = [*self.prompts, *self.norms]
        with self.towers.computing(False):
            parts = [self.run(part, leaves, last=block).float() for part in self.parts(len(self.array))]
        return numpy(torch.cat(parts).flatten(0, 1))

    def gradient(self, d_features: Floats, d_tokens: list[tuple[int, Floats]]) -> tuple[list[Floats], list[Floats]]:
        """With respect to prompts and norms. Images without any gradient are skipped."""
        count = len(self.array)
        by_image = [(block, d.reshape(count, -1)) for block, d in d_tokens]
        active = np.any(d_features != 0, axis=1)
        for _, d in by_image:
            active |= np.any(d != 0, axis=1)
        chosen = np.flatnonzero(active)
        leaves = [leaf.detach().clone().requires_grad_() for leaf in (*self.prompts, *self.norms)]
        total = [torch.zeros_like(leaf) for leaf in leaves]
        for part in self.parts(len(chosen)):
            images = chosen[part]
            seen: dict[int, Tensor] = {block: torch.empty(0) for block, _ in by_image}
            with self.towers.computing(True):
                raw = self.run(images, leaves, seen)  # type: ignore[arg-type]
                unit = F.normalize(raw.float(), dim=1)
            outputs = [unit, *(seen[block] for block, _ in by_image)]
            given = [d_features[images], *(d[images] for _, d in by_image)]
            gradients = [self.towers.tensor(d).view(out.shape).to(out.dtype) for d, out in zip(given, outputs)]
            found = torch.autograd.grad(outputs, leaves, gradients, allow_unused=True)
            for to, piece in zip(total, found):
                if piece is not None:
                    to += piece
        split = len(self.prompts)
        return [numpy(part) for part in total[:split]], [numpy(part.float()) for part in total[split:]]


def numpy(tensor: Tensor) -> Floats:
    """A tensor as an array of this process."""
    found: Floats = tensor.detach().float().cpu().numpy()
    return found
