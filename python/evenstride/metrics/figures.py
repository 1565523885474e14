"""What a meter has counted, bucket by bucket."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from evenstride._tables import aligned, count, percent
from evenstride.metrics.moments import Moments, between_share

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from evenstride.metrics.source import StepCounts

__all__ = ["BucketFigures", "MeterFigures"]

Measure: TypeAlias = Literal["grad_norm", "loss"]

_DIGITS = 4
_MEASURES: dict[Measure, str] = {"grad_norm": "gradient norms", "loss": "losses"}


@dataclass(slots=True)
class BucketFigures:
    """What was dispatched of one bucket, or of all of them, and how training went on it.

    Attributes
    ----------
    steps : int
        Steps whose batch, on this rank, is of the bucket. At least 0.
    samples, tokens, padded_tokens : int
        Of this rank's batches in those steps. At least 0.
    global_samples, global_tokens, global_padded_tokens : int
        Of the batches of all ranks in those steps. At least 0.
    loss, grad_norm, seconds : Moments
        Of the steps for which they are known. A gradient norm counts once for each step of its
        optimizer step; seconds are those from one update to the next.

    """

    steps: int = 0
    samples: int = 0
    tokens: int = 0
    padded_tokens: int = 0
    global_samples: int = 0
    global_tokens: int = 0
    global_padded_tokens: int = 0
    loss: Moments = field(default_factory=Moments)
    grad_norm: Moments = field(default_factory=Moments)
    seconds: Moments = field(default_factory=Moments)

    @property
    def padding_efficiency(self) -> float:
        """Real tokens over padded tokens, of all ranks. In ``[0, 1]``, or NaN."""
        return _ratio(self.global_tokens, self.global_padded_tokens)

    @property
    def mean_length(self) -> float:
        """Tokens a sample, of all ranks. At least 0, or NaN."""
        return _ratio(self.global_tokens, self.global_samples)

    @property
    def tokens_per_second(self) -> float:
        """Real tokens of all ranks a second, of a mean step over its mean seconds."""
        return _ratio(_ratio(self.global_tokens, self.steps), self.seconds.mean)

    def count(self, step: StepCounts) -> None:
        """Count a step."""
        self.steps += 1
        self.samples += step.samples
        self.tokens += step.tokens
        self.padded_tokens += step.padded_tokens
        self.global_samples += step.global_samples
        self.global_tokens += step.global_tokens
        self.global_padded_tokens += step.global_padded_tokens

    def merge(self, other: BucketFigures) -> None:
        """Add all that `other` has counted."""
        for name in _COUNTS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for name in _MOMENTS:
            getattr(self, name).merge(getattr(other, name))

    def to_list(self) -> list[Any]:
        """Return everything as plain numbers: 7 counts, then count, mean, squares... of each."""
        moments = (getattr(self, name) for name in _MOMENTS)
        return [getattr(self, name) for name in _COUNTS] + [
            value
            for one in moments
            for value in (one.count, one.mean if one.count else None, one.squares, one.nonfinite)
        ]

    @classmethod
    def from_list(cls, values: Sequence[Any]) -> BucketFigures:
        """Return what :meth:`to_list` was called on."""
        figures = cls(*values[: len(_COUNTS)])
        for place, name in enumerate(_MOMENTS):
            start = len(_COUNTS) + 4 * place
            numbers, mean, squares, nonfinite = values[start : start + 4]
            mean = math.nan if mean is None else mean
            setattr(figures, name, Moments(numbers, mean, squares, nonfinite))
        return figures

    def scalars(self) -> Iterator[tuple[str, float]]:
        """Yield the names and values that loggers get, NaN where one is not known."""
        yield "steps", self.steps
        yield "padding_efficiency", self.padding_efficiency
        yield "mean_length", self.mean_length
        yield "loss", self.loss.mean
        yield "grad_norm", self.grad_norm.mean
        yield "seconds_per_step", self.seconds.mean
        yield "tokens_per_second", self.tokens_per_second
        for name in _MEASURES:
            yield f"{name}_nonfinite", getattr(self, name).nonfinite or math.nan


_COUNTS = tuple(one.name for one in fields(BucketFigures))[:7]
_MOMENTS = ("loss", "grad_norm", "seconds")


@dataclass(frozen=True)
class MeterFigures:
    """The figures of every bucket and of all together.

    Attributes
    ----------
    buckets : tuple of BucketFigures
        From the shortest lengths to the longest.
    edges : tuple of int
        Bucket ``k`` holds ``edges[k] <= length < edges[k + 1]``.

    """

    buckets: tuple[BucketFigures, ...]
    edges: tuple[int, ...]

    @property
    def total(self) -> BucketFigures:
        """The figures of all buckets together."""
        total = BucketFigures()
        for bucket in self.buckets:
            total.merge(bucket)
        return total

    def between_bucket_share(self, of: Measure = "grad_norm") -> float:
        """Return the share of a variance that lies between the buckets.

        Near 0, steps of different buckets have gradients alike; near 1, which bucket a step is of
        says all about its gradient. :func:`evenstride.metrics.between_share` has the formula.

        Parameters
        ----------
        of : {"grad_norm", "loss"}, default "grad_norm"
            Whose variance over the steps.

        Returns
        -------
        float
            In ``[0, 1]``, or NaN if all values are equal or there are none.

        """
        if of not in tuple(_MEASURES):  # Also if it cannot be hashed.
            msg = f"`of` must be 'grad_norm' or 'loss', but is {of!r}."
            raise ValueError(msg)
        return between_share(getattr(bucket, of) for bucket in self.buckets)

    def scalars(self, prefix: str) -> dict[str, float]:
        """Return what loggers get, under names that begin with `prefix`."""
        return {f"{prefix}/{name}": float(value) for name, value in self._known()}

    def _known(self) -> Iterable[tuple[str, float]]:
        named = [*self.total.scalars()]
        named += [(f"{of}_between_bucket_share", self.between_bucket_share(of)) for of in _MEASURES]
        for place, bucket in enumerate(self.buckets):
            if bucket.steps > 0:
                named += [(f"bucket_{place}/{name}", value) for name, value in bucket.scalars()]
        return [(name, value) for name, value in named if not math.isnan(value)]

    def table(self) -> str:
        """Return the figures as text for people."""
        total = self.total
        header = ["#", "lengths", "steps", "share", "samples", "tokens", "real", "mean"]
        header += ["loss", "norm", "s/step"]

        def row(name: str, lengths: str, bucket: BucketFigures) -> list[str]:
            return [
                name,
                lengths,
                count(bucket.steps),
                percent(_ratio(bucket.steps, total.steps)),
                count(bucket.global_samples),
                count(bucket.global_tokens),
                percent(bucket.padding_efficiency),
                _short(bucket.mean_length),
                _short(bucket.loss.mean),
                _short(bucket.grad_norm.mean),
                _short(bucket.seconds.mean),
            ]

        rows = [
            row(str(place), f"[{self.edges[place]}, {self.edges[place + 1]})", bucket)
            for place, bucket in enumerate(self.buckets)
        ]
        whole = row("all", f"[{self.edges[0]}, {self.edges[-1]})", total)
        shares = [
            f"{percent(self.between_bucket_share(of))} of the variance of {name} between buckets"
            for of, name in _MEASURES.items()
        ]
        return "\n".join([*aligned(header, [*rows, whole]), "", *shares])


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else math.nan


def _short(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.{_DIGITS}g}"
