"""Files that are whole or not there: written beside their place, and put there at the end."""

from __future__ import annotations

import errno
import os
import secrets
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["draft_of"]


@contextmanager
def draft_of(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield where to write the file that takes the place of `path`, unless there is an exception.

    A file that is there stays readable, also for those who have mapped it. What is no ordinary
    file, such as a device, is written to itself.
    """
    path = Path(path)
    if path.exists() and not path.is_file():
        yield path
        return
    if not path.parent.is_dir():  # Else the error would name the draft.
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
    draft = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    try:
        yield draft
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
