"""Where the code stands that uses the package, for warnings that are about it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import FrameType


def levels_to_user() -> int:
    """Return how many calls lie between the caller and the code that uses the package."""
    frame, levels = sys._getframe(1), 1  # noqa: SLF001 - Python's own way to look at callers.
    while frame.f_back is not None and _is_ours(frame):
        frame, levels = frame.f_back, levels + 1
    return levels


def _is_ours(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__")).startswith("evenstride.")
