"""User-defined methods: once registered, they work like built-in ones in evaluate, sweep, report, Classifier, adapt and Ray."""

from __future__ import annotations

import functools
import hashlib
import inspect
import json
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from . import _native, errors

Method = TypeVar("Method", bound=Callable[..., Any])

_SIMPLE = (bool, int, float, complex, str, bytes, type(None))
"""Types whose ``repr`` shows the complete value."""


@dataclass(frozen=True)
class Option:
    """An option of a method: its default, which also says its type, the range of numbers, or the names to choose from.

    >>> import flatclip
    >>> flatclip.Option(0.1, minimum=0.0, maximum=1.0, doc="Fraction of the views to select.")
    Option(default=0.1, minimum=0.0, maximum=1.0, choices=(), doc='Fraction of the views to select.')
    """

    default: bool | int | float | str | Sequence[float] | Sequence[str]
    minimum: float | None = None
    maximum: float | None = None
    choices: Sequence[str] = ()
    doc: str = ""


@dataclass(frozen=True)
class _Registered:
    """What a worker of a cluster registers again."""

    about: dict[str, Any]
    method: Any


_registered: dict[str, _Registered] = {}


def register_adapter(
    name: str,
    *,
    kind: str = "episodic",
    options: Mapping[str, Any] | None = None,
    version: str | int = "1",
    views: int | None = None,
    batch: bool = False,
    returns: str = "probabilities",
) -> Callable[[Method], Method]:
    """Registers a function or class as an adapter called ``name``.

    - ``kind="episodic"``: a function ``(views [V, D], text [K, D], scale, *, rng, **options)`` that answers one image from the
      unit-norm features of its views (view 0 is the image itself). With ``batch=True`` it gets ``[N, V, D]`` and a list of N
      generators, and gives ``[N, K]``; the answer for an image must not depend on the others.
    - ``kind="online"``: a class ``(text, scale, *, rng, **options)`` whose ``answer(views)`` learns from a stream.
    - ``kind="batch"``: a function ``(views [N, V, D], text, scale, *, rng, **options)`` that answers a whole set, ``[N, K]``.

    An answer has one number per class: ``returns="probabilities"`` (not negative; scaled to sum 1) or ``"logits"`` (softmax).
    ``rng`` is a ``numpy.random.Generator`` whose draws depend only on the seed and the image; omit it from the signature if it
    is not needed. ``options`` are defaults or `Option` with a range. ``views`` is the default number of views per image (64; 1
    for batch methods). A run records ``version`` and a digest of the source, and cannot be resumed with an edited method.
    Functions are called from several threads: they must not change shared state.

    >>> import flatclip, numpy as np
    >>> @flatclip.register_adapter("doc-mean", options={"sharpen": flatclip.Option(1.0, minimum=0.1)})
    ... def mean_view(views, text, scale, *, sharpen):
    ...     logits = sharpen * scale * views.mean(0) @ text.T
    ...     return np.exp(logits - logits.max())
    >>> flatclip.adapt(np.ones((4, 8)), np.eye(3, 8) + 0.1, 10.0, "doc-mean", sharpen=2.0).probabilities.sum()
    np.float32(1.0)
    """
    if returns not in ("probabilities", "logits"):
        raise ValueError(f"returns: expected 'probabilities' or 'logits', found {returns!r}")
    if batch and kind != "episodic":
        raise ValueError(f"batch=True: expected with kind='episodic', found kind={kind!r}, which has one form")
    if views is not None and (isinstance(views, bool) or not isinstance(views, int) or not 1 <= views <= 4096):
        raise ValueError(f"views: expected a whole number from 1 to 4096, found {views!r}")

    def registered(method: Method) -> Method:
        if not callable(method):
            raise TypeError(f"register_adapter: expected a function or class, found {type(method).__name__}")
        if kind == "online" and not callable(getattr(method, "answer", None)):
            raise TypeError(f"register_adapter: an online method is a class with a method `answer(self, views)`: {method!r}")
        known = {key: option if isinstance(option, Option) else Option(option) for key, option in (options or {}).items()}
        wants_rng = _check_signature(method, list(known), 2 if kind == "online" else 3)
        doc = inspect.getdoc(method) or ""
        about = {
            "name": name, "kind": kind, "version": str(version), "digest": source_digest(method),
            "summary": doc.split("\n")[0] or "registered in Python", "docs": doc,
            "views": views or (1 if kind == "batch" else 64), "vectorised": batch, "logits": returns == "logits",
            "rng": wants_rng, "options": [_described(key, option) for key, option in known.items()],
        }  # fmt: skip
        _register(about, method)
        return method

    return registered


def _register(about: dict[str, Any], method: Any) -> None:
    _native.register_adapter(about, method)
    _registered[about["name"]] = _Registered(about, method)


def unregister_adapter(name: str) -> None:
    """Removes a registered adapter; existing classifiers keep it."""
    if not _native.unregister_adapter(name):
        raise errors.make("name.unknown", f"method {name!r} is not a registered one; known are {', '.join(_registered) or 'none'}")
    _registered.pop(name, None)


def exported(names: Sequence[str]) -> list[_Registered]:
    """The registrations among ``names``, to be sent to another process."""
    return [_registered[name] for name in names if name in _registered]


def restore(registrations: Sequence[_Registered]) -> None:
    """Registers methods exported by another process. The digest is the exporter's: the source may not be available here."""
    for one in registrations:
        _register(one.about, one.method)


def _described(name: str, option: Option) -> str:
    if not name.isidentifier() or name in ("views", "text", "scale", "rng", "method", "classes", "self"):
        raise ValueError(f"options: expected a name that is no argument, found {name!r}")
    default = list(option.default) if isinstance(option.default, (list, tuple)) else option.default
    if isinstance(default, bool):
        kind = "flag"
    elif isinstance(default, int):
        kind = "integer"
        if default < 0 or (option.minimum or 0) < 0:
            raise ValueError(f"options: {name}: whole numbers are 0 or more; for others write {float(default)}")
    elif isinstance(default, float):
        kind = "number"
    elif isinstance(default, str):
        kind = "text"
    elif isinstance(default, list) and default and all(isinstance(item, (int, float)) for item in default):
        kind, default = "numbers", [float(item) for item in default]
    elif isinstance(default, list) and all(isinstance(item, str) for item in default):
        kind = "texts"
    else:
        found = type(option.default).__name__
        raise TypeError(f"options: {name}: expected bool, int, float, str or a list of them, found {found}")
    described = {
        "name": name, "kind": kind, "default": default, "low": option.minimum, "high": option.maximum,
        "choices": list(option.choices), "doc": option.doc,
    }  # fmt: skip
    return json.dumps(described)


def _check_signature(method: Any, options: list[str], positional: int) -> bool:
    """Checks that a signature accepts the arguments of a call; returns whether it takes ``rng``."""
    try:
        signature = inspect.signature(method)
    except (TypeError, ValueError):
        return True
    parameters = signature.parameters
    anything = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    wants_rng = anything or "rng" in parameters
    keywords = dict.fromkeys([*options, *(["rng"] if wants_rng else [])])
    try:
        signature.bind(*[None] * positional, **keywords)
    except TypeError as error:
        expected = "(text, scale, *, rng, OPTIONS)" if positional == 2 else "(views, text, scale, *, rng, OPTIONS)"
        raise TypeError(
            f"register_adapter: expected a signature {expected} with the options {options}, found {signature}: {error}"
        ) from None
    return wants_rng


def source_digest(method: Any) -> str:
    """A digest of the code of a function or class: its source, defaults and closure, and what it uses from its module.

    Values of other modules and data read from files are not included: change ``version`` for those.
    """
    inner = method
    while isinstance(inner, functools.partial):
        inner = inner.func
    digest = hashlib.sha256()
    for line in sorted(_code_of(method, getattr(inner, "__module__", None), {})):
        digest.update(line.encode() + b"\0")
    return digest.hexdigest()[:16]


def _code_of(value: Any, module: str | None, seen: dict[int, Any]) -> list[str]:
    if id(value) in seen or len(seen) > 1000:
        return []
    seen[id(value)] = value
    value = inspect.unwrap(value) if callable(value) else value
    if isinstance(value, functools.partial):
        return _code_of((value.func, value.args, value.keywords), module, seen)
    if isinstance(value, types.MethodType):
        return _code_of(value.__func__, module, seen) + _code_of(value.__self__, module, seen)
    if isinstance(value, type) and value.__module__ != module:
        return [value.__qualname__]
    if isinstance(value, type):
        members = [member for member in vars(value).values() if not isinstance(member, types.GetSetDescriptorType)]
        bases = [base for base in value.__bases__ if base.__module__ == module]
        return [_text(value)] + [line for part in [*members, *bases] for line in _code_of(part, module, seen)]
    if isinstance(value, (staticmethod, classmethod)):
        return _code_of(value.__func__, module, seen)
    if isinstance(value, property):
        return [line for part in (value.fget, value.fset) if part for line in _code_of(part, module, seen)]
    if isinstance(value, types.FunctionType):
        return _function(value, module, seen)
    if isinstance(value, _SIMPLE):
        return [repr(value)]
    if isinstance(value, (tuple, list, set, frozenset)):
        return [line for item in value for line in _code_of(item, module, seen)]
    if isinstance(value, dict):
        return [line for item in value.items() for line in _code_of(item, module, seen)]
    if hasattr(value, "tobytes") and hasattr(value, "shape"):
        return [f"{value.shape} {hashlib.sha256(value.tobytes()).hexdigest()}"]
    if callable(value) and hasattr(value, "__dict__"):
        return _code_of(type(value), module, seen) + _code_of(vars(value), module, seen)
    return []


def _function(function: types.FunctionType, module: str | None, seen: dict[int, Any]) -> list[str]:
    if function.__module__ != module:
        return []
    used = [cell.cell_contents for cell in function.__closure__ or () if _is_filled(cell)]
    used += [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
    names = {name for code in _codes(function.__code__) for name in code.co_names}
    for name in sorted(names & function.__globals__.keys()):
        found = function.__globals__[name]
        own = getattr(found, "__module__", module) == module
        if own and not isinstance(found, types.ModuleType):
            used.append(found)
    return [_text(function)] + [line for value in used for line in _code_of(value, module, seen)]


def _codes(code: types.CodeType) -> list[types.CodeType]:
    inner = [part for const in code.co_consts if isinstance(const, types.CodeType) for part in _codes(const)]
    return [code, *inner]


def _text(value: Any) -> str:
    """The source, or the bytecode if there is no source (typed at a prompt, built by exec)."""
    try:
        return inspect.getsource(value)
    except (OSError, TypeError):
        code = getattr(value, "__code__", None)
        if code is None:
            return str(getattr(value, "__qualname__", value))
        plain = [repr(const) for part in _codes(code) for const in part.co_consts if not isinstance(const, types.CodeType)]
        return " ".join([*(part.co_code.hex() for part in _codes(code)), *plain, *code.co_names])


def _is_filled(cell: types.CellType) -> bool:
    try:
        cell.cell_contents
    except ValueError:
        return False
    return True
