"""
Planning in C++. Private: use the package `evenstride`.
"""

from __future__ import annotations
import collections.abc
import numpy
import typing

__all__: list[str] = [
    "BucketStatistics",
    "PlanStatistics",
    "Planner",
    "Settlement",
    "available_processors",
    "batch_lists",
    "batch_tokens",
    "compiler",
    "fingerprint",
    "optimal_edges",
    "plan_statistics",
]

class Settlement:
    """
    How many batches each bucket makes in every epoch.
    """
    @property
    def steps(self) -> int: ...

class Planner:
    """
    Plans epochs of one array of lengths, which it refers to.
    """
    def __init__(
        self,
        lengths: numpy.ndarray,
        buckets: typing.SupportsInt
        | typing.SupportsIndex
        | collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex],
        *,
        merge_buckets: typing.SupportsInt | typing.SupportsIndex,
        token_budget: typing.SupportsInt | typing.SupportsIndex,
        max_batch_size: typing.SupportsInt | typing.SupportsIndex,
        batch_size_multiple: typing.SupportsInt | typing.SupportsIndex,
        pad_to_multiple_of: typing.SupportsInt | typing.SupportsIndex,
        max_length: typing.SupportsInt | typing.SupportsIndex,
        composition: str,
        window: typing.SupportsInt | typing.SupportsIndex,
        order: str,
        jitter: typing.SupportsFloat | typing.SupportsIndex,
        accumulation_steps: typing.SupportsInt | typing.SupportsIndex,
        shuffle: bool,
        seed: typing.SupportsInt | typing.SupportsIndex,
        too_long: str,
        empty: str,
        num_threads: typing.SupportsInt | typing.SupportsIndex,
    ) -> None: ...
    def plan(
        self,
        epoch: typing.SupportsInt | typing.SupportsIndex,
        *,
        num_replicas: typing.SupportsInt | typing.SupportsIndex,
        drop_last: bool,
        steps_per_epoch: typing.SupportsInt | typing.SupportsIndex | None = None,
        settlement: Settlement | None = None,
    ) -> dict[str, numpy.ndarray]:
        """
        Return the arrays of the plan of one epoch.
        """
    def settle(
        self,
        *,
        num_replicas: typing.SupportsInt | typing.SupportsIndex,
        drop_last: bool,
        steps_per_epoch: typing.SupportsInt | typing.SupportsIndex | None,
    ) -> Settlement:
        """
        Return what every epoch is to be filled into, as epoch 0 has it.
        """
    @property
    def admitted(self) -> dict[str, int]:
        """
        Samples and tokens of an epoch.
        """
    @property
    def edges(self) -> list[int]: ...
    @property
    def removed(self) -> dict[str, dict[str, int]]:
        """
        Samples and tokens that are no part of any epoch, by reason.
        """

class BucketStatistics:
    """
    What one bucket has in an epoch.
    """
    @property
    def batches(self) -> int: ...
    @property
    def limited_by_batch_size_multiple(self) -> int: ...
    @property
    def limited_by_max_batch_size(self) -> int: ...
    @property
    def limited_by_samples(self) -> int: ...
    @property
    def limited_by_token_budget(self) -> int: ...
    @property
    def longest_width(self) -> int: ...
    @property
    def padded_tokens(self) -> int: ...
    @property
    def quarter_steps(self) -> typing.Annotated[list[int], "FixedSize(4)"]: ...
    @property
    def samples(self) -> int: ...
    @property
    def steps(self) -> int: ...
    @property
    def steps_end(self) -> int: ...
    @property
    def tokens(self) -> int: ...

class PlanStatistics:
    """
    What can be asked of a planned epoch.
    """
    @property
    def batches(self) -> int: ...
    @property
    def buckets(self) -> list[BucketStatistics]: ...
    @property
    def crowded_windows(self) -> int: ...
    @property
    def distinct_shapes(self) -> int: ...
    @property
    def earliest_exhaustion(self) -> float: ...
    @property
    def length_correlation(self) -> float: ...
    @property
    def mean_rank_imbalance(self) -> float: ...
    @property
    def mixed_steps(self) -> int: ...
    @property
    def padded_tokens(self) -> int: ...
    @property
    def prefix_discrepancy(self) -> float: ...
    @property
    def runs(self) -> list[tuple[int, int]]: ...
    @property
    def samples(self) -> int: ...
    @property
    def steps(self) -> int: ...
    @property
    def tokens(self) -> int: ...
    @property
    def width_correlation(self) -> float: ...
    @property
    def windows(self) -> int: ...
    @property
    def worst_rank_imbalance(self) -> float: ...

def available_processors() -> int:
    """
    Return how many processors this process may run on.
    """

def batch_lists(
    indices: numpy.ndarray,
    offsets: numpy.ndarray,
    begin: typing.SupportsInt | typing.SupportsIndex,
    end: typing.SupportsInt | typing.SupportsIndex,
    stride: typing.SupportsInt | typing.SupportsIndex,
) -> list[list[int]]:
    """
    Return batches begin, begin + stride, ... below end, each a list of int.
    """

def batch_tokens(
    lengths: numpy.ndarray,
    indices: numpy.ndarray,
    offsets: numpy.ndarray,
    *,
    num_threads: typing.SupportsInt | typing.SupportsIndex,
) -> numpy.ndarray:
    """
    Return the real tokens of each batch.
    """

def fingerprint(
    lengths: numpy.ndarray, *, num_threads: typing.SupportsInt | typing.SupportsIndex
) -> int:
    """
    Return a hash of the lengths and their order, whatever their dtype.
    """

def optimal_edges(
    lengths: numpy.ndarray,
    num_buckets: typing.SupportsInt | typing.SupportsIndex,
    *,
    token_budget: typing.SupportsInt | typing.SupportsIndex,
    max_batch_size: typing.SupportsInt | typing.SupportsIndex,
    pad_to_multiple_of: typing.SupportsInt | typing.SupportsIndex,
    num_threads: typing.SupportsInt | typing.SupportsIndex,
) -> list[int]:
    """
    Return the inner edges of the buckets that pad least.
    """

def plan_statistics(
    offsets: numpy.ndarray,
    buckets: numpy.ndarray,
    widths: numpy.ndarray,
    tokens: numpy.ndarray,
    *,
    num_replicas: typing.SupportsInt | typing.SupportsIndex,
    num_buckets: typing.SupportsInt | typing.SupportsIndex,
    token_budget: typing.SupportsInt | typing.SupportsIndex,
    max_batch_size: typing.SupportsInt | typing.SupportsIndex,
    batch_size_multiple: typing.SupportsInt | typing.SupportsIndex,
    num_threads: typing.SupportsInt | typing.SupportsIndex,
) -> PlanStatistics:
    """
    Return the statistics of the batches of an epoch.
    """

__version__: str
compiler: str
