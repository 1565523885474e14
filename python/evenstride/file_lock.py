"""A lock between processes, which ends with the process that holds it, however that ends."""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

try:
    import fcntl
except ImportError:  # Not on Windows.
    fcntl = None  # type: ignore[assignment]

if TYPE_CHECKING:
    from pathlib import Path

    from typing_extensions import Self

_opened: set[FileLock] = set()
_opening = threading.RLock()
"""Held around a fork too, so that the child knows every file that it has of its parent's locks."""


class FileLock:
    """The right to be the only one who does something, tried for without waiting.

    The lock is the system's, on an empty file that is there as long as it is held. Threads of one
    process exclude each other too. A fork does not have what its parent has acquired. Where there
    are no such locks everybody acquires it, and it excludes nobody.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: int | None = None
        self.is_acquired = False
        self.excludes = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def acquire(self) -> bool:
        """Return whether the lock was free, or there are no locks.

        Raises
        ------
        OSError
            If the file cannot be made.

        """
        if fcntl is None:
            self.is_acquired = True
            return True
        with _opening:
            self._file = os.open(self._path, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o666)
            _opened.add(self)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Whoever held it before took that file away: another one may be locked by now.
            self.is_acquired = self.excludes = self._is_in_place(self._file)
        except BlockingIOError:
            self.is_acquired = False
        except OSError:  # A file system without locks.
            self.is_acquired = True
        if self.excludes:
            with suppress(OSError):
                os.utime(self._file)
        else:
            self._close()
        return self.is_acquired

    def _is_in_place(self, file: int) -> bool:
        try:
            return os.path.samestat(os.fstat(file), self._path.stat())
        except FileNotFoundError:
            return False

    def release(self) -> None:
        """Let go of the lock, if it is held."""
        if self.excludes:
            with suppress(OSError):
                self._path.unlink()
        self._close()
        self.is_acquired = self.excludes = False

    def forget(self) -> None:
        """Close what a fork has of its parent's lock, which would outlive the parent."""
        file, self._file = self._file, None
        self.is_acquired = self.excludes = False
        if file is not None:
            with suppress(OSError):
                os.close(file)

    def _close(self) -> None:
        with _opening:
            file, self._file = self._file, None
            _opened.discard(self)
            if file is not None:
                # Said, for a process that was forked meanwhile may have the file open too.
                with suppress(OSError):
                    fcntl.flock(file, fcntl.LOCK_UN)
                os.close(file)


def _forget_all() -> None:
    while _opened:
        _opened.pop().forget()
    _opening.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_opening.acquire, after_in_parent=_opening.release, after_in_child=_forget_all
    )
