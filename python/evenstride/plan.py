"""The plan of one epoch."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, SupportsIndex, overload

import numpy as np

from evenstride import _core
from evenstride.options import as_integer, as_num_threads
from evenstride.plan_file import not_whole, read_arrays, write_arrays
from evenstride.step_info import StepInfo, as_rank, as_step

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator

    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from evenstride.lengths import LengthArray
    from evenstride.stats import PlanStats

    IndexArray = NDArray[np.integer[Any]]
    PlanArrays = dict[str, NDArray[Any]]

_FILE_VERSION = 1
_LISTS_AT_ONCE = 64
_DTYPES = {
    "indices": ("i4", "u4", "i8"),
    "offsets": ("i8",),
    "buckets": ("i2",),
    "widths": ("i4", "i8"),
    "repeats": ("i8",),
    "dropped": ("i8",),
    "edges": ("i8", "u8"),
    "tokens": ("u8",),
}


class RankBatches(Sequence["IndexArray"]):
    """The batches of one rank in the order of the steps, each an array of sample indices."""

    def __init__(self, plan: EpochPlan, rank: int) -> None:
        self._plan = plan
        self._rank = rank

    def __len__(self) -> int:
        """Return the number of steps."""
        return self._plan.num_steps

    @overload
    def __getitem__(self, step: SupportsIndex) -> IndexArray: ...
    @overload
    def __getitem__(self, step: slice) -> list[IndexArray]: ...
    def __getitem__(self, step: SupportsIndex | slice) -> IndexArray | list[IndexArray]:
        """Return the batch of a step."""
        if isinstance(step, slice):
            return [self[i] for i in range(*step.indices(len(self)))]
        number = as_integer("step", step)
        steps = len(self)
        if not -steps <= number < steps:
            msg = f"`step` must be in [{-steps}, {steps}), but is {number}."
            raise IndexError(msg)
        return self._plan[number % steps * self._plan.num_replicas + self._rank]


class EpochPlan:
    """Every batch of one epoch, in order.

    Batch ``i`` holds the samples ``indices[offsets[i]:offsets[i + 1]]``, which is also ``plan[i]``.
    Batches are step-major: rank ``r`` of step ``t`` has batch ``t * num_replicas + r``. Made by
    :func:`plan_epoch` and :attr:`BucketBatchSampler.plan`. All arrays are read-only.

    Attributes
    ----------
    indices : ndarray of int32, uint32 or int64, shape (n_placed,)
        Samples, batch after batch, in ``[0, n_samples)``. The narrowest type that holds them.
    offsets : ndarray of int64, shape (n_batches + 1,)
        Where each batch begins in `indices`, and the end.
    buckets : ndarray of int16, shape (n_batches,)
        The bucket of each batch, in ``[0, n_buckets)``.
    widths : ndarray of int32 or int64, shape (n_batches,)
        Tokens of a row of each batch once padded, at least 1.
    num_steps, num_replicas : int
        Steps of the epoch and batches of each step, at least 1.
    edges : ndarray of int64, shape (n_buckets + 1,)
        Bucket ``k`` holds ``edges[k] <= length < edges[k + 1]``; from 0 to the longest + 1.
    repeats : ndarray of int64, shape (n_repeats,)
        Samples that the epoch has once more, where there were too few for a whole step.
    dropped : ndarray of int64, shape (n_dropped,)
        Samples that ``drop_last=True`` left out of this epoch.
    removed : dict of str to dict
        Samples and tokens that no epoch has, by reason: ``"too_long"`` and ``"empty"``.
    options : dict
        The options that the plan was made with.
    epoch : int
        The epoch that it is of.

    Examples
    --------
    >>> import evenstride as es
    >>> plan = es.plan_epoch([3, 9, 4, 8, 3, 9], token_budget=18, buckets=[6])
    >>> len(plan), plan.edges.tolist(), plan.buckets.tolist()
    (3, [0, 6, 10], [1, 0, 1])
    >>> sorted(plan[1].tolist())
    [0, 2, 4]

    """

    def __init__(
        self,
        arrays: PlanArrays,
        facts: dict[str, Any],
        lengths: LengthArray | None = None,
    ) -> None:
        for array in arrays.values():
            array.flags.writeable = False
        self.indices: IndexArray = arrays["indices"]
        self.offsets: NDArray[np.int64] = arrays["offsets"]
        self.buckets: NDArray[np.int16] = arrays["buckets"]
        self.widths: IndexArray = arrays["widths"]
        self.repeats: NDArray[np.int64] = arrays["repeats"]
        self.dropped: NDArray[np.int64] = arrays["dropped"]
        self.edges: NDArray[np.int64] = arrays["edges"]
        self.num_replicas: int = facts["num_replicas"]
        self.epoch: int = facts["epoch"]
        self.removed: dict[str, dict[str, int]] = facts["removed"]
        self.options: dict[str, Any] = facts["options"]
        self._lengths = lengths
        self._path: str | None = None
        if "tokens" in arrays:
            self.__dict__["tokens"] = arrays["tokens"]  # Where the cached property looks first.

    @property
    def num_steps(self) -> int:
        """Number of steps."""
        return len(self) // self.num_replicas

    def __len__(self) -> int:
        """Return the number of batches, over all ranks."""
        return len(self.offsets) - 1

    def __getitem__(self, batch: SupportsIndex) -> IndexArray:
        """Return the sample indices of a batch: a read-only view, shape (n_samples_of_batch,)."""
        number = as_integer("batch", batch)
        if not -len(self) <= number < len(self):
            msg = f"`batch` must be in [{-len(self)}, {len(self)}), but is {number}."
            raise IndexError(msg)
        number %= len(self)
        return self.indices[self.offsets[number] : self.offsets[number + 1]]

    def __iter__(self) -> Iterator[IndexArray]:
        """Yield the sample indices of every batch."""
        return (self[batch] for batch in range(len(self)))

    def __repr__(self) -> str:
        """Return a summary."""
        return (
            f"<EpochPlan of epoch {self.epoch}: {self.num_steps:,} steps x {self.num_replicas:,} "
            f"ranks, {len(self.indices):,} samples in {len(self.edges) - 1:,} buckets>"
        )

    def _repr_html_(self) -> str:
        from evenstride.notebook import summary_of  # noqa: PLC0415 - For notebooks alone.

        return summary_of(self)

    def batches(self, rank: SupportsIndex = 0) -> RankBatches:
        """Return the batches of one rank, a sequence of arrays of sample indices.

        Parameters
        ----------
        rank : int, default 0
            In ``[0, num_replicas)``.

        """
        return RankBatches(self, as_rank(rank, self.num_replicas))

    def lists(self, rank: int, start: int, stop: int) -> Iterator[list[list[int]]]:
        """Yield the batches of one rank in steps [start, stop), some at a time, as lists of int."""
        for begin in range(start, stop, _LISTS_AT_ONCE):
            end = min(begin + _LISTS_AT_ONCE, stop)
            yield _core.batch_lists(
                self.indices,
                self.offsets,
                begin * self.num_replicas + rank,
                end * self.num_replicas,
                self.num_replicas,
            )

    @cached_property
    def tokens(self) -> NDArray[np.uint64]:
        """Real tokens of each batch, shape (n_batches,)."""
        if self._lengths is None:
            msg = "`tokens` must come from the lengths or a file, but this plan has neither."
            raise RuntimeError(msg)
        tokens = _core.batch_tokens(
            self._lengths, _unsigned(self.indices), self.offsets, num_threads=as_num_threads(None)
        )
        tokens.flags.writeable = False
        return tokens

    @property
    def padded_tokens(self) -> NDArray[np.int64]:
        """Padded tokens of each batch, which are samples times width, shape (n_batches,)."""
        return np.multiply(np.diff(self.offsets), self.widths, dtype=np.int64)

    @property
    def largest_step(self) -> int:
        """The step with the most padded tokens on a rank.

        Run it first, as a warm-up, and training that must run out of memory does so at once.
        """
        return int(self.padded_tokens.argmax()) // self.num_replicas

    def step_info(self, step: SupportsIndex, rank: SupportsIndex = 0) -> StepInfo:
        """Return what a step holds, on a rank and on all ranks. No communication.

        Parameters
        ----------
        step : int
            In ``[0, num_steps)``.
        rank : int, default 0
            In ``[0, num_replicas)``.

        """
        number = as_step(step, self.num_steps)
        first = number * self.num_replicas
        batches = slice(first, first + self.num_replicas)
        mine = first + as_rank(rank, self.num_replicas)
        samples = np.diff(self.offsets[first : first + self.num_replicas + 1])
        padded = samples * self.widths[batches]
        tokens = self.tokens_of(batches)
        return StepInfo(
            bucket=int(self.buckets[mine]),
            width=int(self.widths[mine]),
            samples=int(samples[mine - first]),
            tokens=int(tokens[mine - first]),
            padded_tokens=int(padded[mine - first]),
            global_samples=sum(samples.tolist()),
            global_tokens=sum(tokens.tolist()),
            global_padded_tokens=sum(padded.tolist()),
        )

    def tokens_of(self, batches: slice) -> NDArray[np.uint64]:
        """Return the real tokens of some batches: at least one, one after the other."""
        if "tokens" in self.__dict__ or self._lengths is None:
            return self.tokens[batches]
        bounds = self.offsets[batches.start : batches.stop + 1]
        lengths = self._lengths[self.indices[bounds[0] : bounds[-1]]]
        return np.add.reduceat(lengths, bounds[:-1] - bounds[0], dtype=np.uint64)

    def stats(self) -> PlanStats:
        """Return everything that can be asked of the epoch. See :class:`PlanStats`."""
        from evenstride.stats import stats_of  # noqa: PLC0415 - The plan itself needs none of it.

        return stats_of(self)

    def plot(self, path: str | os.PathLike[str] | None = None) -> Figure:
        """Draw where the steps of each bucket come in the epoch. Needs ``evenstride[plot]``.

        Parameters
        ----------
        path : path-like, optional
            Where to save the picture; its suffix says the format.

        Returns
        -------
        matplotlib.figure.Figure

        """
        from evenstride.report import plot_plan  # noqa: PLC0415 - matplotlib is an extra.

        return plot_plan(self, path)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the plan to a file, atomically, in the format of safetensors.

        Everything but the lengths is in it: :meth:`load` needs nothing else.
        """
        write_arrays(path, {**self._arrays(), "tokens": self.tokens}, self._metadata())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> EpochPlan:
        """Return a plan that was saved. Its arrays stay in the file, memory-mapped.

        Raises
        ------
        ValueError
            If the file is not whole, not a plan, or of another version of the format.

        """
        plan = cls.mapped(path)
        plan._path = str(Path(path).resolve())  # noqa: SLF001 - Of its own class.
        return plan

    @classmethod
    def mapped(cls, path: str | os.PathLike[str]) -> EpochPlan:
        """Return what :meth:`load` does, but pickled as its arrays: the file may be taken away."""
        arrays, metadata = read_arrays(path)
        version = metadata.get("evenstride_plan", "none")
        if version != str(_FILE_VERSION):
            msg = f"`{path}` must be a plan of version {_FILE_VERSION}, but has version {version}."
            raise ValueError(msg)
        try:
            tokens = arrays["tokens"]
            plan = cls(arrays, json.loads(metadata["facts"]))
        except (ValueError, KeyError, TypeError) as error:
            reason = f"it has {type(error).__name__} {error}"
            raise not_whole(path, reason) from error
        for fault in plan._faults(len(tokens)):
            raise not_whole(path, fault)
        return plan

    def _faults(self, num_tokens: int) -> Iterator[str]:
        """Yield what is wrong with the arrays of a plan from elsewhere."""
        batches, ranks = len(self), self.num_replicas
        facts: dict[str, Any] = self._facts()
        for name, dtype in _DTYPES.items():
            if getattr(self, name).dtype.str.strip("<=|") not in dtype:
                yield f"its {name} have dtype {getattr(self, name).dtype}"
        if (
            not isinstance(facts["num_replicas"], int)
            or batches < 1
            or ranks < 1
            or batches % ranks != 0
        ):
            yield f"it has {batches} batches for {ranks!r} ranks"
        if not isinstance(facts["options"], dict) or not isinstance(facts["removed"], dict):
            yield "its facts are not all there"
        if not len(self.buckets) == len(self.widths) == num_tokens == batches:
            yield f"not all of its arrays have {batches} batches"
        num_buckets = len(self.edges) - 1
        if num_buckets < 1 or self.buckets.min() < 0 or self.buckets.max() >= num_buckets:
            yield f"its buckets are not in [0, {num_buckets})"
        if self.widths.min() < 1:
            yield "its widths are not all at least 1"
        rises = self.offsets[0] == 0 and bool((self.offsets[1:] > self.offsets[:-1]).all())
        if not rises or self.offsets[-1] != len(self.indices):
            yield f"its offsets do not rise from 0 to {len(self.indices)}"

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle a loaded plan as its path, another as its arrays, with the tokens for lengths."""
        if self._path is not None:
            return EpochPlan.load, (self._path,)
        arrays = {name: np.asarray(array) for name, array in self._arrays().items()}
        return EpochPlan, ({**arrays, "tokens": np.asarray(self.tokens)}, self._facts())

    def _arrays(self) -> dict[str, NDArray[Any]]:
        names = ("indices", "offsets", "buckets", "widths", "repeats", "dropped", "edges")
        return {name: getattr(self, name) for name in names}

    def _facts(self) -> dict[str, Any]:
        names = ("num_replicas", "epoch", "removed", "options")
        return {name: getattr(self, name) for name in names}

    def _metadata(self) -> dict[str, str]:
        return {"evenstride_plan": str(_FILE_VERSION), "facts": json.dumps(self._facts())}


def _unsigned(array: IndexArray) -> IndexArray:
    return array.view(f"u{array.dtype.itemsize}")
