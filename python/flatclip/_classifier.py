"""The classifier with the scikit-learn interface."""

from __future__ import annotations

import inspect
import os
import tempfile
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import _checks, _labels, _native, _shown
from ._built import Built, identity
from ._explanation import Explanation
from ._labels import Labels
from ._models import load
from ._native import Answers, Model, Prompt, Stream
from ._progress import Watcher, watcher

Images = Any
"""A path, bytes, an open binary file, uint8 ``[H, W, 3]``, a PIL image, a tensor; or a list or batch of them."""


class Classifier:
    """Classifies images by any method, with any prompt; `fit` learns a prompt from a few images.

    ``model`` is a `Model` or an argument of `load`. ``classes`` are the class names in any order, which `answer` keeps;
    labels follow scikit-learn: ``classes_`` is sorted, and the columns of `predict_proba` are in its order.
    ``prompt`` is a template with ``{}``, a list of templates, ``imagenet7``, ``imagenet80``, a prompt file, the directory of
    a tuning run, a `Prompt`, or class embeddings ``[classes, D]``.
    ``tuner`` is the method that `fit` runs (``None``: `fit` learns nothing, so that methods without training can be used in a
    grid search). ``method=None`` is ``stss`` with a sapt prompt, else ``zero-shot``. ``exif=True`` rotates images per EXIF and
    scales 16-bit grey; ``False`` reads them as Pillow's ``convert("RGB")``.
    ``views=None`` is the method's default; ``certainty`` makes views any-time. Further keywords are options of the method, and
    unknown names are refused; ``tuner_options`` are those of the tuner, such as ``{"train.epochs": 20}``.

    >>> import flatclip, numpy as np
    >>> clf = flatclip.Classifier("pocket", ["fish", "cat"], method="zero", views=8, random_state=1)
    >>> images = np.full((2, 64, 64, 3), 120, np.uint8)
    >>> clf.predict_proba(images).shape, clf.classes_.tolist(), clf.answer(images)[0].classes
    ((2, 2), ['cat', 'fish'], ['fish', 'cat'])
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
        _checks.options(method, options, _PARAMETERS)
        _checks.duplicates(classes, stacklevel=2)
        if options:
            self._options = options

    @property
    def options(self) -> dict[str, Any]:
        """Options of the method."""
        return dict(self.__dict__.get("_options", {}))

    # The estimator interface of scikit-learn.

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The arguments, options of the method among them."""
        own = {name: getattr(self, name) for name in _PARAMETERS}
        return {**own, **self.options}

    def set_params(self, **params: Any) -> Classifier:
        """Sets arguments; any other name is an option of the method."""
        options = {name: value for name, value in params.items() if name not in _PARAMETERS}
        _checks.options(params.get("method", self.method), options, _PARAMETERS)
        for name in params.keys() - options.keys():
            setattr(self, name, params[name])
        if options:
            self._options = {**self.options, **options}
        return self

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import ClassifierTags, InputTags, Tags, TargetTags

        return Tags(
            estimator_type="classifier",
            target_tags=TargetTags(required=True),
            classifier_tags=ClassifierTags(),
            input_tags=InputTags(two_d_array=False, string=True),
            no_validation=True,
            requires_fit=False,
        )

    def __sklearn_is_fitted__(self) -> bool:
        return "class_names_" in self.__dict__ or self.tuner is None

    @property
    def classes_(self) -> NDArray[Any]:
        """Labels in the order of `predict_proba`'s columns: the sorted names, or 0, 1, ... where `fit` was given integers."""
        try:
            return self._labels().classes
        except (ValueError, TypeError) as error:
            raise AttributeError(f"classes_ is not known yet: {error}") from error

    def __repr__(self) -> str:
        return _shown.call(type(self).__name__, self._not_default())

    def _repr_html_(self) -> str:
        state = "fitted" if "class_names_" in self.__dict__ else "not fitted: answers by its prompt"
        learned = getattr(self, "prompt_", None)
        return _shown.table("flatclip.Classifier", self._not_default(), state if learned is None else f"fitted: {learned!r}")

    def _not_default(self) -> dict[str, Any]:
        """The arguments that were given, and the method."""
        usual = Classifier().__dict__
        return {k: v for k, v in self.get_params().items() if k == "method" or k not in usual or v is not usual[k]}

    # Answers.

    def predict(self, X: Images, *, errors: str = "raise") -> NDArray[Any]:
        """Names of the classes, one for each image; integers where `fit` was given integers.

        With ``errors="skip"`` an image that cannot be read gives None, and the result is an array of objects.
        """
        answers = self.answer(X, errors=errors)
        labels = self._labels().of(answers.predictions)
        if not answers.skipped:
            return labels
        every = np.full(len(answers) + len(answers.skipped), None, object)
        every[answers.positions] = labels
        return every

    def predict_proba(self, X: Images, *, errors: str = "raise") -> NDArray[np.float32]:
        """Probabilities ``[n, classes]``, columns in the order of ``classes_``, which is sorted.

        With ``errors="skip"`` the row of an image that cannot be read is NaN.
        """
        answers, labels = self.answer(X, errors=errors), self._labels()
        every = np.full((len(answers) + len(answers.skipped), len(labels.names)), np.nan, np.float32)
        if len(answers):
            every[answers.positions] = answers.probabilities[:, labels.order]
        return every

    def score(self, X: Images, y: Any, sample_weight: Any = None) -> float:
        """Accuracy; ``y`` are names, or integers if `fit` was given integers."""
        X, labels = _labels.paired(X, y, "score")
        expected = self._labels().positions(labels)
        found = self.answer(X).predictions
        return float(np.average(found == expected, weights=sample_weight))

    def answer(self, X: Images, *, errors: str = "raise") -> Answers:
        """Answers with all details, in the order of ``classes``. An online method sees one stream in the order of ``X``, a batch
        method all of ``X`` at once.

        ``errors="skip"`` skips images that cannot be read, with a warning: ``skipped`` of the answers lists them with the reason,
        ``positions`` are the positions of the others in ``X``.
        """
        skip = _checks.skips(errors)
        watch = watcher(self.progress) if _is_many(X) else None
        answers = self._engine().answer(X, skip=skip, progress=watch)
        if answers.skipped:
            (position, reason), count = answers.skipped[0], len(answers.skipped)
            text = f"{count} of {count + len(answers)} images skipped; the first is number {position}: {reason}"
            warnings.warn(text, stacklevel=3)
        return answers

    def stream(self) -> Stream:
        """A stream of images for online methods; each stream has its own state."""
        return self._engine().stream()

    def features(self, X: Images) -> NDArray[np.float32]:
        """Unit-norm features ``[n, views, D]`` of the views that the method uses."""
        return self._engine().features(X)

    def view_pixels(self, x: Images) -> NDArray[np.float32]:
        """Pixels ``[views, 3, size, size]`` of one image's views, normalised for the model, for example to encode them with your
        own tower on a GPU and to pass the features to `flatclip.adapt`."""
        return self._engine().view_pixels(x)

    def explain(self, x: Images) -> Explanation:
        """The answer for one image, with all its views as an image.

        >>> import flatclip, numpy as np
        >>> clf = flatclip.Classifier("pocket", ["cat", "fish"], method="stss", views=8)
        >>> why = clf.explain(np.full((64, 64, 3), 120, np.uint8))
        >>> why.answer.selected == [view["index"] for view in why.selected_views]
        True
        >>> why.png[:4]
        b'\\x89PNG'
        """
        engine = self._engine()
        answer = engine.answer(x, explain=True)[0]
        return Explanation(answer, engine.views, engine.sheet(x, answer))

    # Learning.

    def fit(self, X: Images, y: Any) -> Classifier:
        """Learns a prompt from labelled images with ``tuner`` and stores it in ``prompt_``, and the run summary in ``summary_``.

        ``y`` are class names; with ``classes=None`` the sorted names in ``y`` are the classes. Integers are read as
        scikit-learn's ``LabelEncoder`` makes them: j is the j-th of the sorted names, whatever the order of ``classes``.
        All images are used, or ``shots`` of each class.
        """
        X, labels = _labels.paired(X, y, "fit")
        if len(labels) == 0:
            raise ValueError("fit: expected labelled images, found none")
        learned = self._learned_labels(labels)
        if len(set(learned.names)) < len(learned.names):
            raise ValueError("fit: a class name occurs more than once, so that labels have two readings; rename it")
        positions = learned.positions(labels)
        self.__dict__.pop("_built", None)
        self.class_names_, self._fitted = learned.names, learned
        self.prompt_: Prompt | None = None
        if self.tuner is not None:
            with tempfile.TemporaryDirectory(prefix="flatclip-fit-") as folder:
                self.prompt_, self.summary_ = _native.fit(
                    self._model(), X, [int(i) for i in positions], learned.names,
                    method=self.tuner, shots=_checks.count(self.shots, "shots"), seed=_checks.seed(self.random_state),
                    options=self.tuner_options or {}, exif=self.exif, out=os.path.join(folder, "run"),
                    progress=watcher(self.progress),
                )  # fmt: skip
        self._engine()
        return self

    def _learned_labels(self, labels: list[Any]) -> Labels:
        return _labels.learned(labels, self._given_names())

    # Internals.

    def _model(self) -> Model:
        if not isinstance(self.model, Model):
            loaded: tuple[Any, Model] | None = self.__dict__.get("_loaded")
            if loaded is None or loaded[0] != self.model:
                loaded = (self.model, load(self.model))
                self._loaded = loaded
            return loaded[1]
        return self.model

    def _given_names(self) -> list[str] | None:
        return None if self.classes is None else _checks.names(self.classes, "classes")

    def _names(self) -> list[str] | None:
        """The class list of the answers."""
        given, fitted = self._given_names(), self.__dict__.get("class_names_")
        if fitted is not None and given is not None and given != fitted:
            raise ValueError(f"classes was changed after fit (from {len(fitted)} names to {len(given)}): fit again")
        return given if fitted is None else list(fitted)

    def _engine(self) -> _native.Engine:
        """The engine, built on first use and rebuilt when an argument has changed."""
        prompt, classes = getattr(self, "prompt_", None) or self.prompt, self._names()
        arguments = [identity(name, value) for name, value in self.get_params().items()]
        key = (*arguments, tuple(classes or ()), identity("prompt", prompt))
        built: Built | None = self.__dict__.get("_built")
        if built is not None and built.key == key:
            return built.engine
        if built is not None and built.classes is self.classes and built.names != classes:
            warnings.warn(
                f"classes was edited in place after the first answer, from {len(built.names or ())} names to {len(classes or ())}: "
                "answers are for the new list from here on",
                stacklevel=4,
            )
        engine = _native.Engine(
            self._model(), classes=classes, method=self.method, prompt=prompt, views=_checks.count(self.views, "views"),
            certainty=self.certainty, view_policy=self.view_policy, seed=_checks.seed(self.random_state), options=self.options,
            statistics=self.statistics, generated=self.generated, cache=self.cache, exif=self.exif,
            any_model=self.any_model, progress=None,
        )  # fmt: skip
        self._built = Built(key, engine, classes, (self.classes, self.model, prompt, self.progress))
        return engine

    def _labels(self) -> Labels:
        fitted: Labels | None = self.__dict__.get("_fitted")
        if fitted is not None:
            self._names()
            return fitted
        return Labels(self._names() or self._engine().classes)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in ("_built", "_loaded", "progress")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.progress = None


_PARAMETERS = [name for name in inspect.signature(Classifier).parameters if name != "options"]


def _is_many(X: Images) -> bool:
    return (_labels.number_of_images(X) or 2) > 1
