"""CLIP towers as small torch modules, on any device that torch has. The weights are those that flatclip's own reader gives.

`flatclip.load(name, device="cuda")` and `flatclip.from_torch(model)` make models of them; `Towers` is for programs that want
the modules themselves."""

from __future__ import annotations

from ._image import ModifiedResNet, VisionTransformer
from ._text import TextTransformer
from ._towers import Towers

__all__ = ["ModifiedResNet", "TextTransformer", "Towers", "VisionTransformer"]
