"""The files of a cache of plans: their names, and which of them are taken away when."""

from __future__ import annotations

import os
import re
import shutil
import time
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path
from typing import TYPE_CHECKING

from evenstride._core import __version__
from evenstride.file_lock import FileLock
from evenstride.state import STATE_VERSION

if TYPE_CHECKING:
    from collections.abc import Iterator

VERSION = f"{STATE_VERSION}.{__version__}"
MOST_BYTES = 64 * 2**30
SHARE_OF_FREE = 2
"""Without a limit, the files take no more than one part in so many of what would be free."""
KEPT_S = 7 * 86_400.0
KEPT_OTHERS_S = 86_400.0
IN_USE_S = 60.0

_NAME = re.compile(
    r"(?P<draft>\.)?"
    r"(?P<target>evenstride-(?P<version>[^-]+)-(?P<run>[0-9a-f]{32})-"
    r"(?:settled\.json|(?P<epoch>\d+)\.plan))"
    r"(?(draft)\.\d+\.[0-9a-f]{8}|(?P<lock>\.lock)?)"
)


class Kind(Enum):
    """What a file of the cache is."""

    WHOLE = auto()
    DRAFT = auto()
    LOCK = auto()


@dataclass(frozen=True)
class Entry:
    """A file of the cache."""

    path: Path
    target: str
    """The name of the plan or settlement that it is, or is the lock or a draft of."""
    version: str
    run: str
    epoch: int | None
    kind: Kind
    num_bytes: int
    used: float
    """When it was used last, in seconds since 1970."""


class CacheFolder:
    """A folder with plans and settlements. Other files in it are left alone."""

    def __init__(self, path: Path, max_bytes: int | None) -> None:
        self.path = path
        self._max_bytes = max_bytes

    def path_of(self, run: str, epoch: int | None) -> Path:
        """Return where the plan of an epoch belongs; without one, the settlement."""
        what = "settled.json" if epoch is None else f"{epoch}.plan"
        return self.path / f"evenstride-{VERSION}-{run}-{what}"

    def lock_of(self, path: Path) -> FileLock:
        """Return the lock that whoever writes this file holds."""
        return FileLock(path.with_name(f"{path.name}.lock"))

    def make_room(
        self, path: Path, lock: FileLock, num_bytes: int, run: str, epoch: int | None
    ) -> bool:
        """Return whether there is room for a file, once others have been taken away.

        The caller has `lock`, the lock of `path`, and there is no such file yet.
        """
        now = time.time()
        kept = []
        for entry in self._entries():
            if entry.kind is Kind.WHOLE:
                is_gone = _is_stale(entry, run, epoch, now) and _take_away(entry.path)
            else:
                is_gone = self._is_cleared(entry, path, lock, now)
            if not is_gone:
                kept.append(entry)
        total = sum(entry.num_bytes for entry in kept)
        most = self._most(total) - num_bytes
        if most < 0:
            return False
        for entry in sorted(kept, key=lambda entry: entry.used):
            is_spared = entry.kind is not Kind.WHOLE or now - entry.used < IN_USE_S
            if total > most and not is_spared and _take_away(entry.path):
                total -= entry.num_bytes
        return total <= most

    def _most(self, total: int) -> int:
        if self._max_bytes is not None:
            return self._max_bytes
        return min(MOST_BYTES, (shutil.disk_usage(self.path).free + total) // SHARE_OF_FREE)

    def _entries(self) -> Iterator[Entry]:
        with os.scandir(self.path) as files:
            for file in files:
                found = _NAME.fullmatch(file.name)
                if found is None:
                    continue
                try:
                    status = file.stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue
                yield Entry(
                    path=Path(file.path),
                    target=found["target"],
                    version=found["version"],
                    run=found["run"],
                    epoch=None if found["epoch"] is None else int(found["epoch"]),
                    kind=_kind_of(found),
                    num_bytes=status.st_size,
                    used=status.st_mtime,
                )

    def _is_cleared(self, entry: Entry, path: Path, lock: FileLock, now: float) -> bool:
        """Return whether a draft, or a lock, was left by a process that has died, and is gone."""
        is_lock, is_of_path = entry.kind is Kind.LOCK, entry.target == path.name
        if is_lock and is_of_path:
            return False
        if not lock.excludes:  # Nothing but its age tells whether it was left.
            return now - entry.used > KEPT_OTHERS_S and _take_away(entry.path)
        if is_of_path:
            return _take_away(entry.path)
        with self.lock_of(self.path / entry.target) as other, suppress(OSError):
            if other.acquire() and other.excludes:
                return is_lock or _take_away(entry.path)  # The file of a lock goes with it.
        return False


def _kind_of(found: re.Match[str]) -> Kind:
    if found["draft"]:
        return Kind.DRAFT
    return Kind.LOCK if found["lock"] else Kind.WHOLE


def _is_stale(entry: Entry, run: str, epoch: int | None, now: float) -> bool:
    """Return whether a whole file is of no more use."""
    unused_s = now - entry.used
    is_past = (
        entry.run == run
        and entry.epoch is not None
        and epoch is not None
        and entry.epoch < epoch - 1
        and unused_s >= IN_USE_S
    )
    return is_past or unused_s > (KEPT_S if entry.version == VERSION else KEPT_OTHERS_S)


def _take_away(path: Path) -> bool:
    """Return whether a file is gone. Those who have mapped it keep what they see."""
    try:
        path.unlink(missing_ok=True)
    except OSError:
        return False
    return True
