"""How fast batches of the same samples come out of a ``DataLoader`` and out of a ``Loader``."""

from __future__ import annotations

import time
import warnings
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import islice, zip_longest
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch
from torch.nn import functional
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader

from evenstride import _core
from evenstride.collate import PadCollator
from evenstride.fields import Field
from evenstride.loader import Loader
from evenstride.sampler import BucketBatchSampler

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from torch import Tensor

    from evenstride.bench_data import BenchData

    Batch = Mapping[str, Tensor]
    Batches = Iterable[Batch]

__all__ = ["COMPARED", "CONTENDERS", "Bench", "Contender", "Measurement", "UnequalBatchesError"]

_T = TypeVar("_T")

COMPARED = 16
"""Batches whose equality is checked."""


@dataclass(frozen=True)
class PadRows:
    """The collator that people write: `pad_sequence`, and a mask."""

    field: str
    pad_to_multiple_of: int

    def __call__(self, rows: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
        """Return a batch as a `PadCollator` makes it."""
        tokens = [row[self.field] for row in rows]
        lengths = torch.tensor([len(row) for row in tokens])
        padded = pad_sequence(tokens, batch_first=True)
        width = -(-max(1, padded.shape[1]) // self.pad_to_multiple_of) * self.pad_to_multiple_of
        if width > padded.shape[1]:
            inner = (0, 0) * (padded.dim() - 2)
            padded = functional.pad(padded, (*inner, 0, width - padded.shape[1]))
        mask = (torch.arange(width) < lengths[:, None]).long()
        return {"attention_mask": mask, self.field: padded}


@dataclass(frozen=True)
class Contender:
    """One way to have batches.

    Attributes
    ----------
    loader : {"DataLoader", "Loader"}
        What the training loop iterates over.
    collate : {"pad_sequence", "PadCollator"}
        What makes a batch of samples.
    num_workers : int
        Worker processes of a ``DataLoader``, and threads of a ``Loader``.

    """

    loader: str
    collate: str
    num_workers: int

    @property
    def name(self) -> str:
        """What it is called in a table."""
        kind = "worker" if self.loader == "DataLoader" else "thread"
        workers = f"{self.num_workers} {kind}{'' if self.num_workers == 1 else 's'}"
        return f"{self.loader}, {workers}, {self.collate}"


CONTENDERS = (
    *(Contender("DataLoader", "pad_sequence", workers) for workers in (0, 1, 2, 4)),
    Contender("DataLoader", "PadCollator", 0),
    *(
        Contender("Loader", "PadCollator", threads)
        for threads in sorted({1, 2, _core.available_processors()})
    ),
)


@dataclass(frozen=True)
class Measurement:
    """What a contender has done in its time.

    Attributes
    ----------
    contender : Contender
        Which one.
    batches, tokens : int
        Batches after the first, and the real tokens in them.
    seconds : float
        What they took.
    first_wait_ms, median_wait_ms, p99_wait_ms : float
        Milliseconds in ``next``: for the first batch, start included, and for the others.

    """

    contender: Contender
    batches: int
    tokens: int
    seconds: float
    first_wait_ms: float
    median_wait_ms: float
    p99_wait_ms: float

    @property
    def tokens_per_second(self) -> float:
        """Real tokens a second."""
        return self.tokens / self.seconds

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values, ready for JSON."""
        plain = asdict(self)
        contender = plain.pop("contender")
        return {**contender, **plain, "tokens_per_second": self.tokens_per_second}


class UnequalBatchesError(Exception):
    """Contenders do not give the same batches, so that their speeds say nothing."""


class Bench:
    """Contenders that take the same batches of the same samples.

    Parameters
    ----------
    data : BenchData
        The samples.
    options : mapping of str to Any
        Those of :func:`plan_epoch`. Batches are those of rank 0.
    seconds : float
        How long each contender is measured.

    """

    def __init__(self, data: BenchData, options: Mapping[str, Any], seconds: float) -> None:
        options = dict(options)
        self._epoch = options.pop("epoch", 0)
        self.data = data
        self._seconds = seconds
        self.sampler = BucketBatchSampler(data.dataset.lengths, rank=0, **options)
        self.sampler.set_epoch(self._epoch)
        plan = self.sampler.plan
        self._tokens = plan.tokens[:: plan.num_replicas]

    def run(self) -> Iterator[tuple[Contender, Measurement | RuntimeError]]:
        """Yield each contender, and what it has done or why it cannot.

        Raises
        ------
        UnequalBatchesError
            Before anything is measured, if not all of them have the same batches.

        """
        expected = list(islice(self._pass(self._loader(CONTENDERS[0])), COMPARED))
        errors = [_try(self._check, one, expected) for one in CONTENDERS]
        for one, error in zip(CONTENDERS, errors, strict=True):
            yield one, _try(self._measured, one) if error is None else error

    def _loader(self, contender: Contender) -> Batches:
        field, dataset = self.data.field, self.data.dataset
        multiple = self.sampler.options.pad_to_multiple_of
        collate: PadRows | PadCollator = PadRows(field, multiple)
        if contender.collate == "PadCollator":
            collate = PadCollator({field: Field()}, pad_to_multiple_of=multiple)
        num_workers = contender.num_workers
        if contender.loader == "Loader":
            return Loader(dataset, self.sampler, collate, num_workers=num_workers)
        with _no_note_of_workers():
            return DataLoader(
                dataset,
                batch_sampler=self.sampler,
                collate_fn=collate,
                num_workers=num_workers,
                persistent_workers=num_workers > 0,
            )

    def _pass(self, loader: Batches) -> Iterator[Batch]:
        self.sampler.set_epoch(self._epoch)
        with _no_note_of_workers():
            batches = iter(loader)
        yield from batches

    def _check(self, contender: Contender, expected: Sequence[Batch]) -> None:
        given = islice(self._pass(self._loader(contender)), len(expected))
        nothing: Batch = {}
        for step, (batch, wanted) in enumerate(zip_longest(given, expected, fillvalue=nothing)):
            if not _are_equal(batch, wanted):
                msg = (
                    f"Batch {step} of {contender.name} must be that of {CONTENDERS[0].name}, but "
                    "differs from it."
                )
                raise UnequalBatchesError(msg)

    def _measured(self, contender: Contender) -> Measurement:
        waits = self._waits(self._loader(contender))
        first = next(waits)
        begin = time.perf_counter()
        others = [next(waits)]
        while time.perf_counter() < begin + self._seconds:
            others.append(next(waits))
        seconds = time.perf_counter() - begin
        places = np.arange(1, 1 + len(others)) % len(self._tokens)
        median, p99 = np.percentile(others, [50, 99])
        return Measurement(
            contender,
            batches=len(others),
            tokens=int(self._tokens[places].sum()),
            seconds=seconds,
            first_wait_ms=1e3 * first,
            median_wait_ms=1e3 * float(median),
            p99_wait_ms=1e3 * float(p99),
        )

    def _waits(self, loader: Batches) -> Iterator[float]:
        """Yield the seconds that each batch of pass after pass takes to come."""
        while True:
            begin = time.perf_counter()
            for _ in self._pass(loader):
                yield time.perf_counter() - begin
                begin = time.perf_counter()


@contextmanager
def _no_note_of_workers() -> Iterator[None]:
    """Keep torch from a warning: more workers than processors are worth a try."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "This DataLoader will create")
        yield


def _try(function: Callable[..., _T], *args: Any) -> _T | RuntimeError:
    """Call what may fail for lack of memory that processes share, or of processes."""
    try:
        return function(*args)
    except RuntimeError as error:
        return error


def _are_equal(batch: Batch, other: Batch) -> bool:
    return batch.keys() == other.keys() and all(
        torch.equal(batch[key], other[key]) for key in other
    )
