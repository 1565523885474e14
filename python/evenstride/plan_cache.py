"""Plans that the processes of a host share: one makes a plan, the others map its file."""

from __future__ import annotations

import hashlib
import json
import os
import time
import warnings
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from evenstride import _core
from evenstride.cache_folder import VERSION, CacheFolder
from evenstride.callers import levels_to_user
from evenstride.drafts import draft_of
from evenstride.options import as_count
from evenstride.plan import EpochPlan
from evenstride.plan_file import not_whole

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import SupportsIndex

    from evenstride.file_lock import FileLock
    from evenstride.options import PlanOptions

    Made = TypeVar("Made", EpochPlan, _core.Settlement)

__all__ = ["PlanCache"]

_POLL_S = 0.01
_LONGEST_WAIT_S = 900.0
_HEADER_BYTES = 4096
_SETTLED = ("batches", "steps", "repeats")


class PlanCache:
    """A folder in which the processes of a host share their plans.

    ``BucketBatchSampler(..., plan_cache=folder)`` makes one with the limit that is the default. The
    first process that needs a plan makes it and writes it to a file, whole or not at all; the
    others wait for it, and all of them map the file into memory. A plan from the folder is the
    same, bit for bit, as one without it.

    The folder must be on a local disk, or in ``/dev/shm``: a file that another machine takes away
    from a network file system may be lost to those who have mapped it. Whatever is wrong with the
    folder (it is full, or read-only, or a file in it is damaged), there is one warning, and the
    process plans for itself.

    Files are named for everything that fixes a plan: the lengths, the options, the number of ranks,
    the epoch and the version of this package. Whenever one is written, these are taken away:

    - plans of the same run from before the previous epoch, if nobody used them in the last minute,
    - files that nobody has used for seven days, or for one day if they are of another version,
    - what a process that was killed left half-written,
    - as long as the limit would be passed: what has not been used for longest, but nothing that was
      used in the last minute. If that is not enough, the new plan is not written.

    Parameters
    ----------
    folder : path-like
        Where the files are. Made with the first of them; other files in it are left alone.
    max_bytes : int, optional
        The most bytes that all files of the cache may have, at least 1. By default 64 GiB, or half
        of what would be free without them if that is less. The limit is approximate while several
        processes write different plans at once: each makes room for its own, and the limit may be
        passed by the others, until the next plan is written. A plan takes 4 bytes a sample (8 from
        2**32 samples on), and about 22 a batch.

    Examples
    --------
    >>> import tempfile
    >>> import evenstride as es
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     cache = es.plan_cache.PlanCache(folder, max_bytes=10**9)
    ...     sampler = es.BucketBatchSampler([3, 9, 4, 8], token_budget=18, plan_cache=cache)
    ...     sampler.plan.num_steps
    2

    """

    def __init__(
        self, folder: str | os.PathLike[str], *, max_bytes: SupportsIndex | None = None
    ) -> None:
        if not isinstance(folder, (str, os.PathLike)):
            msg = f"`folder` must be a path, but is {folder!r}."
            raise TypeError(msg)
        self.folder = Path(folder).absolute()
        self.max_bytes = None if max_bytes is None else as_count("max_bytes", max_bytes)
        self._files = CacheFolder(self.folder, self.max_bytes)
        self._warned: set[str] = set()

    def __repr__(self) -> str:
        return f"PlanCache({str(self.folder)!r}, max_bytes={self.max_bytes})"

    def warn(self, subject: str, text: str) -> None:
        """Warn of what is wrong with the folder, once for each subject."""
        if subject not in self._warned:
            self._warned.add(subject)
            warnings.warn(text, stacklevel=levels_to_user())

    @property
    def files(self) -> CacheFolder:
        """The files."""
        return self._files


def as_plan_cache(plan_cache: Any) -> PlanCache | None:
    """Return the cache that a user gave, or one in the folder that a user gave."""
    if plan_cache is None or isinstance(plan_cache, PlanCache):
        return plan_cache
    if not isinstance(plan_cache, (str, os.PathLike)):
        msg = f"`plan_cache` must be a path or a PlanCache, but is {plan_cache!r}."
        raise TypeError(msg)
    return PlanCache(plan_cache)


class SharedPlans:
    """What one run has in a cache: its settlement, and a plan for each epoch."""

    def __init__(
        self,
        cache: PlanCache,
        planner: _core.Planner,
        lengths: str,
        options: PlanOptions,
        num_replicas: int,
    ) -> None:
        self._cache = cache
        self._planner = planner
        self._num_replicas = num_replicas
        self._options = options.to_dict()
        fixed = {
            "version": VERSION,
            "lengths": lengths,
            "edges": planner.edges,
            "admitted": planner.admitted,
            "options": self._options,
            "num_replicas": num_replicas,
        }
        text = json.dumps(fixed, sort_keys=True).encode()
        self._run = hashlib.blake2b(text, digest_size=16).hexdigest()

    def settlement(self, make: Callable[[], _core.Settlement]) -> _core.Settlement:
        """Return the settlement of the run, which `make` makes if no other process has."""
        return self._shared(None, make, _read_settlement, _write_settlement)

    def plan(self, epoch: int, make: Callable[[], EpochPlan]) -> EpochPlan:
        """Return the plan of an epoch, which `make` makes if no other process has."""
        return self._shared(
            epoch,
            make,
            lambda path: self._read_plan(path, epoch),
            lambda path, plan: plan.save(path),
        )

    def _shared(
        self,
        epoch: int | None,
        make: Callable[[], Made],
        read: Callable[[Path], Made],
        write: Callable[[Path, Made], None],
    ) -> Made:
        path = self._cache.files.path_of(self._run, epoch)
        with self._cache.files.lock_of(path) as lock:
            try:
                found = self._found(path, read)
                if found is None:
                    found = self._awaited(path, lock, read)
            except OSError as error:
                self._warn_of(error)
                lock.release()
                found = None
            if found is not None:
                return found
            made = make()
            if lock.is_acquired:
                found = self._stored(path, lock, made, epoch, read=read, write=write)
            return made if found is None else found

    def _awaited(self, path: Path, lock: FileLock, read: Callable[[Path], Made]) -> Made | None:
        """Return what another process makes; None if it is for this one, with or without lock."""
        give_up = time.monotonic() + _LONGEST_WAIT_S
        self._cache.folder.mkdir(parents=True, exist_ok=True)
        while not lock.acquire():
            if time.monotonic() > give_up:
                self._warn_of(f"another process has not made {path.name} in {_LONGEST_WAIT_S:g} s")
                return None
            time.sleep(_POLL_S)
            found = self._found(path, read)
            if found is not None:
                return found
        return self._found(path, read, is_for_this_one=True)

    def _found(
        self, path: Path, read: Callable[[Path], Made], *, is_for_this_one: bool = False
    ) -> Made | None:
        """Return what is in a file; None if it is not there, or damaged.

        One that is damaged is taken away if it is for this process to make it again.

        Raises
        ------
        OSError
            If the file cannot be read, which says nothing of what is in it.

        """
        try:
            found = read(path)
        except FileNotFoundError:
            return None
        except ValueError as error:
            self._cache.warn("damage", f"A file of `plan_cache` is made again: {error}")
            if is_for_this_one:
                path.unlink(missing_ok=True)
            return None
        for used in (path, self._cache.files.path_of(self._run, None)):
            with suppress(OSError):
                os.utime(used)
        self._planner.release_memory()
        return found

    def _read_plan(self, path: Path, epoch: int) -> EpochPlan:
        plan = EpochPlan.mapped(path)
        found = (plan.epoch, plan.num_replicas, plan.options, plan.removed, plan.edges.tolist())
        planner = self._planner
        if found != (epoch, self._num_replicas, self._options, planner.removed, planner.edges):
            raise not_whole(path, "it is another plan")
        return plan

    def _stored(
        self,
        path: Path,
        lock: FileLock,
        made: Made,
        epoch: int | None,
        *,
        read: Callable[[Path], Made],
        write: Callable[[Path, Made], None],
    ) -> Made | None:
        """Return what was made from its file, so that this process has no copy of its own."""
        num_bytes = _bytes_of(made)
        try:
            if self._cache.files.make_room(path, lock, num_bytes, self._run, epoch):
                write(path, made)
                return self._found(path, read)
            self._warn_of(f"its limit leaves no room for {num_bytes:,} bytes")
        except OSError as error:
            self._warn_of(error)
        return None

    def _warn_of(self, reason: OSError | str) -> None:
        text = str(reason).removesuffix(".")
        self._cache.warn(
            "use", f"`plan_cache` is of no use, so that this process plans for itself: {text}."
        )


def _bytes_of(made: EpochPlan | _core.Settlement) -> int:
    if isinstance(made, _core.Settlement):
        return len(_text_of(made))
    arrays = (made.indices, made.offsets, made.buckets, made.widths)
    others = (made.repeats, made.dropped, made.edges, made.tokens)
    return _HEADER_BYTES + sum(array.nbytes for array in (*arrays, *others))


def _text_of(settlement: _core.Settlement) -> str:
    fields = {name: getattr(settlement, name) for name in _SETTLED}
    return json.dumps({**fields, "digest": _digest(fields)})


def _digest(fields: dict[str, Any]) -> str:
    return hashlib.blake2b(json.dumps(fields).encode(), digest_size=16).hexdigest()


def _write_settlement(path: Path, settlement: _core.Settlement) -> None:
    with draft_of(path) as draft:
        draft.write_text(_text_of(settlement), encoding="utf-8")


def _read_settlement(path: Path) -> _core.Settlement:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        fields = {name: found[name] for name in _SETTLED}
        is_whole = found["digest"] == _digest(fields)
        settlement = _core.Settlement(**fields) if is_whole else None
    except (KeyError, RecursionError, TypeError, ValueError):
        settlement = None
    if settlement is None:
        msg = f"`{path}` must be a settlement that was saved whole, but is not."
        raise ValueError(msg)
    return settlement
