"""The outputs that several subcommands have: JSON, and pictures."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Annotated, Any

from evenstride.command_base import Failure
from evenstride.command_options import flag, option

__all__ = ["Json", "Plot", "draw"]

Json = Annotated[bool, flag("--json", "Print JSON, and nothing else.", "Output")]
Plot = Annotated[
    Path | None, option("Save a picture; its suffix says the format.", "Output", "FILE")
]


def draw(name: str, *args: Any, module: str = "report") -> None:
    """Draw what comes first of `args`, into the file that comes last."""
    pictures = importlib.import_module(f"evenstride.{module}")  # It says how to get matplotlib.
    from matplotlib.backend_bases import FigureCanvasBase  # noqa: PLC0415 - As above.

    known = FigureCanvasBase.get_supported_filetypes()
    if args[-1].suffix and args[-1].suffix[1:].lower() not in known:
        msg = (
            "--plot must end in .png, .svg, .pdf or another format that matplotlib knows, but is "
            f"`{args[-1]}`."
        )
        raise Failure(msg)
    getattr(pictures, name)(*args)
