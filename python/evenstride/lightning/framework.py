"""Which of its two packages Lightning is used by: their classes do not know each other."""

from __future__ import annotations

import importlib
import sys
from importlib.util import find_spec
from typing import Any

_NAMES = ("lightning.pytorch", "pytorch_lightning")


def framework() -> Any:
    """Return the package that the script has imported, else one that is installed.

    Raises
    ------
    ImportError
        If none is.

    """
    imported = [name for name in _NAMES if sys.modules.get(name) is not None]
    names = imported or [name for name in _NAMES if find_spec(name.partition(".")[0]) is not None]
    if not names:
        msg = "Lightning must be installed: `pip install 'evenstride[lightning]'`."
        raise ImportError(msg)
    return importlib.import_module(names[0])
