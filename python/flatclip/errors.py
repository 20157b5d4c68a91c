"""The exceptions of flatclip.

Every exception has a stable ``code`` for programs and, if there is one, a ``hint``.

>>> import flatclip
>>> try:
...     flatclip.load("no-such-model")
... except flatclip.FlatclipError as error:
...     print(error.code in dict(flatclip.errors.codes()))
True
"""

from __future__ import annotations

from . import _native


class FlatclipError(Exception):
    """Base class of all errors; the message says what was expected and what was found."""

    code: str = "internal"
    hint: str | None = None

    def __init__(self, message: str, code: str = "internal", hint: str | None = None) -> None:
        super().__init__(message)
        self.message, self.code, self.hint = message, code, hint

    def __str__(self) -> str:
        return self.message if self.hint is None else f"{self.message} ({self.hint})"

    def __reduce__(self) -> tuple[type[FlatclipError], tuple[str, str, str | None]]:
        return type(self), (self.message, self.code, self.hint)


class ModelError(FlatclipError, ValueError):
    """A weight file is damaged, of an unsupported format or another shape, or cannot be downloaded."""


class ImageError(FlatclipError, ValueError):
    """An image cannot be decoded."""


class OptionError(FlatclipError, ValueError):
    """A setting is unknown, of the wrong type or out of range; or a name is not known."""


class PromptError(FlatclipError, ValueError):
    """A prompt does not fit the model or the classes."""


class DataError(FlatclipError, ValueError):
    """A data set is invalid."""


class MethodError(FlatclipError, ValueError):
    """A required input of a method is missing."""


class RunError(FlatclipError, ValueError):
    """A run directory cannot be used."""


class LimitError(FlatclipError, ValueError):
    """Something is larger than a limit that protects memory or time."""


class NumberError(FlatclipError, ValueError):
    """A number is NaN or infinite."""


class DeviceError(FlatclipError, RuntimeError):
    """A tower that runs on a device or in a function of the caller failed, or its features are not those of the weights."""


class FileError(FlatclipError, OSError):
    """The operating system refused a file."""


_CLASSES: dict[str, type[FlatclipError]] = {
    "weights": ModelError,
    "model": ModelError,
    "image": ImageError,
    "option": OptionError,
    "name": OptionError,
    "text": OptionError,
    "prompt": PromptError,
    "data": DataError,
    "method": MethodError,
    "run": RunError,
    "limit": LimitError,
    "number": NumberError,
    "device": DeviceError,
    "file": FileError,
}


def make(code: str, message: str, hint: str | None = None) -> FlatclipError:
    """The exception for a code: the part before the dot selects its class."""
    return _CLASSES.get(code.split(".")[0], FlatclipError)(message, code, hint)


def codes() -> list[tuple[str, str]]:
    """Every code with what it means."""
    return _native.error_codes()
