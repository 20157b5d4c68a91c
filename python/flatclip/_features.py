"""Methods on features of any model: open_clip on a GPU, SigLIP, features from disk."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, overload

import numpy as np

from . import _checks, _native
from ._native import Answer, Answers, FeatureStream
from ._progress import Watcher, watcher

_OWN = ("method", "classes", "random_state", "progress")

Array = Any
"""numpy, torch, or whatever has ``__array__`` or ``__dlpack__``; float32 in C order is taken without a copy."""


class TextBank(_native.TextBank):
    """Text features of a prompt and its perturbations, ``[1 + perturbations, classes, width]``, for STSS and FGA."""

    @classmethod
    def from_encoder(
        cls,
        encode: Callable[[Any], Array],
        context: Array,
        *,
        perturbations: int = 16,
        radius: float = 0.5,
        random_state: int = 0,
        batch_size: int = 1,
        **options: Any,
    ) -> TextBank:
        """Encodes a context and its random perturbations with any text tower.

        ``encode`` gets contexts ``[n, tokens, width]`` (float32, n up to ``batch_size``) and gives unit-norm or raw text
        features ``[n, classes, D]``; for n = 1 ``[classes, D]`` will do. ``context`` is ``[tokens, width]``, or
        ``[classes, tokens, width]`` when it is class-specific (``encode`` then gets ``[n, classes, tokens, width]``).
        The draws are those of the method ``stss`` for the same ``random_state``; ``options`` are its ``radius_unit``,
        ``norm`` and ``directions``.

        >>> import flatclip, numpy as np
        >>> towers = np.random.default_rng(0).normal(size=(5, 8, 16)).astype(np.float32)  # 5 classes, 2 x 4 -> 16
        >>> encode = lambda contexts: np.einsum("ni,kid->nkd", contexts.reshape(len(contexts), -1), towers)
        >>> flatclip.TextBank.from_encoder(encode, np.ones((2, 4)), perturbations=3)
        <flatclip.TextBank of 5 classes, width 16, 3 perturbations>
        """
        options = {"perturbations": perturbations, "radius": radius, **options}
        contexts = _native.perturbed_contexts(context, seed=_checks.seed(random_state), options=options)
        contexts = contexts.reshape(len(contexts), *np.shape(context))
        parts = []
        for start in range(0, len(contexts), max(batch_size, 1)):
            some = contexts[start : start + max(batch_size, 1)]
            found = _as_floats(encode(some))
            if found.ndim == 2 and len(some) == 1:
                found = found[None]
            if found.ndim != 3 or len(found) != len(some):
                raise ValueError(
                    f"encode: expected text features [{len(some)}, classes, D] for contexts {some.shape}, "
                    f"found shape {found.shape}"
                )
            parts.append(found)
        return cls(np.concatenate(parts))


class FeatureClassifier:
    """A method with class embeddings ``[classes, D]`` or a `TextBank`, for classifying features of views.

    ``logit_scale`` is the factor on cosine similarities, ``exp(logit_scale)`` in most code: 100 for OpenAI's weights. A value
    below 10 is refused, since it is probably the logarithm; so are duplicate ``classes`` and options that have no effect on a
    ready bank (``radius``).

    >>> import flatclip, numpy as np
    >>> text = np.eye(3, 8)
    >>> zero = flatclip.FeatureClassifier(text, 100.0, method="zero", classes=["cat", "dog", "fish"])
    >>> zero(np.ones((5, 4, 8)) + text[1]).labels
    ['dog', 'dog', 'dog', 'dog', 'dog']
    """

    def __init__(
        self,
        text_features: Array | _native.TextBank,
        logit_scale: float,
        method: str = "zero",
        *,
        classes: Sequence[str] | None = None,
        random_state: int = 0,
        **options: Any,
    ) -> None:
        _checks.options(method, options, _OWN)
        self._engine = _native.FeatureEngine(
            text_features, logit_scale, method=method, classes=classes, seed=_checks.seed(random_state), options=options
        )

    @property
    def method(self) -> str:
        """Name of the method."""
        return self._engine.method

    @property
    def kind(self) -> str:
        """``episodic``, ``online`` (a call is one stream in its order) or ``batch`` (a call is one set)."""
        return self._engine.kind

    @property
    def classes(self) -> list[str]:
        """Class names; their indices if no names were given."""
        return self._engine.classes

    def __call__(self, view_features: Array, *, progress: bool | Watcher | None = False) -> Answers:
        """Answers for ``[n, views, D]``; view 0 of each image is the image itself.

        Methods that use several views read ``[views, D]`` as one image. Others (batch methods, and methods with one view such as
        zero-shot) refuse it, because it could also mean n images with one view: ``[n, 1, D]``. float16 and float64 arrays,
        including memory maps, are converted one image at a time.
        """
        return self._engine.answer(view_features, progress=watcher(progress))

    def __repr__(self) -> str:
        return f"<flatclip.FeatureClassifier {self.method} ({self.kind}) of {len(self.classes)} classes>"

    def stream(self) -> FeatureStream:
        """A stream for online methods; each stream has its own state."""
        return self._engine.stream()


# An array whose type does not tell its axes (`NDArray`) matches the first of these, and mypy then takes the result for either;
# one whose type does (`numpy.ones((2, 4, 8))`) matches the second or third.
@overload
def adapt(
    view_features: np.ndarray[tuple[int], Any],
    text_features: Array | _native.TextBank,
    logit_scale: float,
    method: str = "zero",
    *,
    classes: Sequence[str] | None = None,
    random_state: int = 0,
    progress: bool | Watcher | None = False,
    **options: Any,
) -> Any: ...


@overload
def adapt(
    view_features: np.ndarray[tuple[int, int], Any] | Sequence[Sequence[float]],
    text_features: Array | _native.TextBank,
    logit_scale: float,
    method: str = "zero",
    *,
    classes: Sequence[str] | None = None,
    random_state: int = 0,
    progress: bool | Watcher | None = False,
    **options: Any,
) -> Answer: ...


@overload
def adapt(
    view_features: (
        np.ndarray[tuple[int, int, int], Any]
        | Sequence[np.ndarray[tuple[int, int], Any]]
        | Sequence[Sequence[Sequence[float]]]
    ),
    text_features: Array | _native.TextBank,
    logit_scale: float,
    method: str = "zero",
    *,
    classes: Sequence[str] | None = None,
    random_state: int = 0,
    progress: bool | Watcher | None = False,
    **options: Any,
) -> Answers: ...


@overload
def adapt(
    view_features: Array,
    text_features: Array | _native.TextBank,
    logit_scale: float,
    method: str = "zero",
    *,
    classes: Sequence[str] | None = None,
    random_state: int = 0,
    progress: bool | Watcher | None = False,
    **options: Any,
) -> Any: ...


def adapt(
    view_features: Array,
    text_features: Array | _native.TextBank,
    logit_scale: float,
    method: str = "zero",
    *,
    classes: Sequence[str] | None = None,
    random_state: int = 0,
    progress: bool | Watcher | None = False,
    **options: Any,
) -> Answer | Answers:
    """The answer of any method for one image ``[views, D]``, or the answers for a batch ``[n, views, D]``.

    Batch methods and methods with one view refuse ``[n, D]``, which is ambiguous; see `FeatureClassifier`.

    >>> import flatclip, numpy as np
    >>> rng = np.random.default_rng(0)
    >>> answer = flatclip.adapt(rng.normal(size=(64, 32)), rng.normal(size=(10, 32)), 100.0, method="zero")
    >>> answer.probabilities.shape
    (10,)
    """
    made = FeatureClassifier(
        text_features, logit_scale, method, classes=classes, random_state=random_state, **options
    )
    answers = made(view_features, progress=progress)
    return answers[0] if np.ndim(view_features) == 2 else answers


def _as_floats(value: Array) -> np.ndarray[Any, np.dtype[np.float32]]:
    if hasattr(value, "detach") and hasattr(value, "cpu"):
        value = value.detach().cpu().float().numpy()
    return np.asarray(value, np.float32)
