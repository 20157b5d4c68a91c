"""The classifier with scikit-learn's habits."""

from __future__ import annotations

import base64
import html
import os
import tempfile
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import _native
from ._models import load
from ._native import Answer, Answers, Model, Prompt, Stream
from ._progress import Watcher, watcher

Pictures = Any
"""A path, bytes, an open binary file, uint8 ``[H, W, 3]``, a PIL image, a tensor; or a list or batch of them."""


class Classifier:
    """Answers pictures by any method, with any prompt; `fit` learns a prompt from a few of them.

    ``model`` is a `Model` or what `load` takes. ``prompt`` is a template with ``{}``, a list of templates, ``imagenet7``,
    ``imagenet80``, a prompt file, the directory of a tuning run, a `Prompt`, or class embeddings ``[classes, D]``.
    ``tuner`` is what `fit` runs (``None``: `fit` learns nothing, so that methods without training can stand in a grid).
    ``method=None`` is ``stss`` with a sapt prompt, else ``zero-shot``. ``exif=True`` reads images as a person sees them
    (rotated per EXIF, 16-bit grey scaled); ``False`` reads them as Pillow's ``convert("RGB")``.
    ``views=None`` is what the method wants; ``certainty`` makes views any-time. Further keywords are options of the
    method; ``tuner_options`` those of the tuner, such as ``{"train.epochs": 20}``.

    >>> import flatclip, numpy as np
    >>> clf = flatclip.Classifier("pocket", ["cat", "fish"], method="zero", views=8, random_state=1)
    >>> pictures = np.full((2, 64, 64, 3), 120, np.uint8)
    >>> clf.predict_proba(pictures).shape
    (2, 2)
    >>> clf.get_params()["method"]
    'zero'
    """

    _estimator_type = "classifier"

    def __init__(
        self,
        model: Model | str | os.PathLike[str] = "pocket",
        classes: Sequence[str] | None = None,
        method: str | None = None,
        *,
        prompt: Any = None,
        views: int | None = None,
        certainty: float | None = None,
        view_policy: str = "crop-flip",
        random_state: int = 0,
        tuner: str | None = "sapt",
        shots: int | None = None,
        tuner_options: dict[str, Any] | None = None,
        statistics: str | os.PathLike[str] | None = None,
        generated: str | os.PathLike[str] | None = None,
        cache: str | os.PathLike[str] | None = None,
        exif: bool = True,
        any_model: bool = False,
        progress: bool | Watcher | None = None,
        **options: Any,
    ) -> None:
        self.model, self.classes, self.method, self.prompt = model, classes, method, prompt
        self.views, self.certainty, self.view_policy, self.random_state = views, certainty, view_policy, random_state
        self.tuner, self.shots, self.tuner_options = tuner, shots, tuner_options
        self.statistics, self.generated, self.cache = statistics, generated, cache
        self.exif, self.any_model, self.progress = exif, any_model, progress
        self.options = options

    # What scikit-learn asks of an estimator.

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The arguments, options of the method among them."""
        own = {name: getattr(self, name) for name in _PARAMETERS}
        return {**own, **self.options}

    def set_params(self, **params: Any) -> Classifier:
        """Sets arguments; a name that is none of them is an option of the method."""
        for name, value in params.items():
            if name in _PARAMETERS:
                setattr(self, name, value)
            else:
                self.options = {**self.options, name: value}
        return self

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import ClassifierTags, InputTags, Tags, TargetTags

        return Tags(
            estimator_type="classifier",
            target_tags=TargetTags(required=True),
            classifier_tags=ClassifierTags(),
            input_tags=InputTags(two_d_array=False, string=True),
            no_validation=True,
        )

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "classes_") or self.tuner is None

    def __repr__(self) -> str:
        defaults = Classifier()
        shown = {k: v for k, v in self.get_params().items() if not hasattr(defaults, k) or v is not getattr(defaults, k)}
        return f"Classifier({', '.join(f'{name}={_short(value)}' for name, value in shown.items())})"

    # Answers.

    def predict(self, X: Pictures) -> NDArray[Any]:
        """Names of the classes, one for each picture; integers where `fit` was given integers."""
        found = self.answer(X).predictions
        return self._labels()[found]

    def predict_proba(self, X: Pictures) -> NDArray[np.float32]:
        """Probabilities ``[n, classes]``, in the order of the class list."""
        return self.answer(X).probabilities

    def score(self, X: Pictures, y: Any, sample_weight: Any = None) -> float:
        """Share of right answers; ``y`` are names or indices."""
        right = self.answer(X).predictions == self._indices(y)
        return float(np.average(right, weights=sample_weight))

    def answer(self, X: Pictures) -> Answers:
        """Answers with everything that is known of them. An online method sees one stream in the order of ``X``, a batch
        method all of ``X`` at once."""
        return self._engine().answer(X, progress=watcher(self.progress) if _is_many(X) else None)

    def stream(self) -> Stream:
        """A stream of pictures for online methods; each has a state of its own."""
        return self._engine().stream()

    def features(self, X: Pictures) -> NDArray[np.float32]:
        """Unit-norm features ``[n, views, D]`` of the views that the method would see."""
        return self._engine().features(X)

    def view_pixels(self, x: Pictures) -> NDArray[np.float32]:
        """Pixels ``[views, 3, size, size]`` of one picture's views, normalised as the model wants them: encode them with a
        tower of your own, on a GPU, and give the features to `flatclip.adapt`."""
        return self._engine().view_pixels(x)

    def explain(self, x: Pictures) -> Explanation:
        """The answer for one picture, with all its views as a picture.

        >>> import flatclip, numpy as np
        >>> clf = flatclip.Classifier("pocket", ["cat", "fish"], method="stss", views=8)
        >>> why = clf.explain(np.full((64, 64, 3), 120, np.uint8))
        >>> why.answer.selected == [view["index"] for view in why.kept]
        True
        >>> why.png[:4]
        b'\\x89PNG'
        """
        engine = self._engine()
        answer = engine.answer(x)[0]
        return Explanation(answer, engine.views, engine.sheet(x, answer))

    # Learning.

    def fit(self, X: Pictures, y: Any) -> Classifier:
        """Learns a prompt from labelled pictures with ``tuner``; it is in ``prompt_`` then, what was measured in ``summary_``.

        ``y`` are class names or indices into ``classes``; with ``classes=None`` the sorted names in ``y`` are the classes.
        All pictures are used, or ``shots`` of each class.
        """
        labels = list(y)
        if len(labels) == 0:
            raise ValueError("fit: expected labelled pictures, found none")
        integers = all(isinstance(label, (int, np.integer)) for label in labels)
        if self.classes is None and integers:
            raise ValueError("fit: integer labels need the class names: Classifier(classes=[...])")
        names = sorted({str(label) for label in labels}) if self.classes is None else [str(c) for c in self.classes]
        self.class_names_ = names
        self.classes_: NDArray[Any] = np.arange(len(names)) if integers else np.array(names)
        self.prompt_: Prompt | None = None
        if self.tuner is not None:
            indices = self._indices(labels)
            with tempfile.TemporaryDirectory(prefix="flatclip-fit-") as folder:
                self.prompt_, self.summary_ = _native.fit(
                    self._model(), X, [int(i) for i in indices], names,
                    method=self.tuner, shots=self.shots, seed=int(self.random_state),
                    options=self.tuner_options or {}, exif=self.exif, out=os.path.join(folder, "run"),
                    progress=watcher(self.progress),
                )  # fmt: skip
        return self

    # Inside.

    def _model(self) -> Model:
        if not isinstance(self.model, Model):
            kept: tuple[Any, Model] | None = self.__dict__.get("_loaded")
            if kept is None or kept[0] != self.model:
                kept = (self.model, load(self.model))
                self._loaded = kept
            return kept[1]
        return self.model

    def _engine(self) -> _native.Engine:
        """Built when it is first asked for, and again when an argument has changed."""
        prompt = getattr(self, "prompt_", None) or self.prompt
        classes = getattr(self, "class_names_", None) or self.classes
        key = (*(id(value) if name in _BY_IDENTITY else repr(value) for name, value in self.get_params().items()), id(prompt))
        if self.__dict__.get("_built", (None, None))[0] != key:
            engine = _native.Engine(
                self._model(), classes=classes, method=self.method, prompt=prompt, views=self.views,
                certainty=self.certainty, view_policy=self.view_policy, seed=int(self.random_state), options=self.options,
                statistics=self.statistics, generated=self.generated, cache=self.cache, exif=self.exif,
                any_model=self.any_model, progress=None,
            )  # fmt: skip
            self._built: tuple[Any, _native.Engine] = (key, engine)
        return self._built[1]

    def _labels(self) -> NDArray[Any]:
        fitted: NDArray[Any] | None = getattr(self, "classes_", None)
        return np.array(self._engine().classes) if fitted is None else fitted

    def _indices(self, y: Any) -> NDArray[np.int64]:
        names = getattr(self, "class_names_", None) or self._engine().classes
        place = {name: index for index, name in enumerate(names)}
        found = []
        for label in y:
            index = int(label) if isinstance(label, (int, np.integer)) else place.get(str(label), -1)
            if not 0 <= index < len(names):
                raise ValueError(f"y: expected one of {names[:5]}... or an index below {len(names)}, found {label!r}")
            found.append(index)
        return np.array(found, np.int64)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in ("_built", "_loaded", "progress")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.progress = None


_PARAMETERS = [name for name in Classifier().__dict__ if name != "options"]
_BY_IDENTITY = {"model", "prompt", "classes", "progress"}


class Explanation:
    """Why an answer is as it is: the views, their scores, and a picture of all of them."""

    def __init__(self, answer: Answer, views: int, png: bytes) -> None:
        self.answer, self.views, self.png = answer, views, png

    @property
    def label(self) -> str:
        """Name of the answered class."""
        return self.answer.label

    @property
    def kept(self) -> list[dict[str, Any]]:
        """The views that decided, best first."""
        return self.answer.kept()

    @property
    def scores(self) -> NDArray[np.float32] | None:
        """What the method ranked the views by."""
        return self.answer.scores

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the picture of all views (PNG)."""
        with open(path, "wb") as file:
            file.write(self.png)

    def __repr__(self) -> str:
        kept = len(self.answer.selected)
        return f"<flatclip.Explanation {self.answer.label} {self.answer.confidence:.4f}: {kept} of {self.views} views decided>"

    def _repr_html_(self) -> str:
        rows = "".join(f"<tr><td>{html.escape(name)}</td><td>{p:.4f}</td></tr>" for name, p in self.answer.top())
        image = base64.b64encode(self.png).decode()
        return (
            f"<p><b>{html.escape(self.label)}</b> {self.answer.confidence:.4f}; "
            f"{len(self.answer.selected)} of {self.views} views decided (framed)</p>"
            f"<table><tr><th>class</th><th>probability</th></tr>{rows}</table>"
            f'<img alt="the views with their scores" style="max-width:100%" src="data:image/png;base64,{image}">'
        )


def _is_many(X: Pictures) -> bool:
    return not isinstance(X, (str, bytes)) and hasattr(X, "__len__") and len(X) > 1


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
