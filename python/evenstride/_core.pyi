"""
Planning in C++. Private: use the package `evenstride`.
"""

from __future__ import annotations
import collections.abc
import numpy
import typing
import typing_extensions

__all__: list[str] = [
    "BucketStatistics",
    "Collator",
    "Column",
    "Delivery",
    "Destination",
    "DeviceBatch",
    "DeviceWorkers",
    "GivenBlocks",
    "MadeBatch",
    "PlanAhead",
    "PlanStatistics",
    "Planner",
    "Settlement",
    "Stager",
    "Workers",
    "available_processors",
    "batch_lists",
    "batch_tokens",
    "compiler",
    "cuda_compiler",
    "device_stream",
    "driver_error",
    "fingerprint",
    "kernel_error",
    "optimal_edges",
    "plan_statistics",
]

class Column:
    """
    Rows of one field, in chunks that are read where they lie.
    """
    def __init__(
        self,
        name: str,
        origin: str,
        dtype: str,
        cell_shape: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex],
        is_ragged: bool,
    ) -> None: ...
    def append_offsets(self, values: numpy.ndarray, offsets: numpy.ndarray) -> None:
        """
        Append rows [offsets[i], offsets[i + 1]) of the values.
        """
    def append_ranges(
        self,
        values: numpy.ndarray,
        starts: numpy.ndarray,
        lengths: numpy.ndarray,
        start_bytes: typing.SupportsInt | typing.SupportsIndex,
    ) -> None:
        """
        Append rows of lengths[i] cells from byte starts[i] * start_bytes of the values on.
        """
    def append_rows(self, values: numpy.ndarray) -> None:
        """
        Append one row for each cell.
        """
    def lengths(self) -> numpy.ndarray:
        """
        Return the length of every row, in cells.
        """
    def row(self, row: typing.SupportsInt | typing.SupportsIndex) -> numpy.ndarray:
        """
        Return a read-only view of the values of a row.
        """
    @property
    def cell_shape(self) -> tuple[int, ...]: ...
    @property
    def cell_values(self) -> int: ...
    @property
    def dtype(self) -> str: ...
    @property
    def is_ragged(self) -> bool: ...
    @property
    def longest(self) -> int: ...
    @property
    def name(self) -> str: ...
    @property
    def num_rows(self) -> int: ...

class Collator:
    """
    Makes batches of samples of some columns.
    """
    def __init__(
        self,
        outputs: collections.abc.Sequence[
            tuple[
                str,
                str,
                Column,
                str,
                typing.SupportsInt | typing.SupportsIndex,
                bool,
                typing.SupportsInt | typing.SupportsIndex,
                typing.SupportsInt | typing.SupportsIndex,
                Column | None,
            ]
        ],
        rows: numpy.ndarray | None,
        pad_to_multiple_of: typing.SupportsInt | typing.SupportsIndex,
    ) -> None: ...
    def collate(self, samples: typing.Any) -> tuple[typing_extensions.CapsuleType, ...]:
        """
        Return one DLPack capsule for each output, in memory that is used again.
        """
    def collate_into(
        self, samples: typing.Any, allocate: collections.abc.Callable[[int], int]
    ) -> list[tuple[int, list[int], list[int]]]:
        """
        Collate to the address that allocate(bytes) returns, a multiple of 64; return place, shape and strides of each output, in values.
        """
    def most_bytes(
        self,
        most_samples: typing.SupportsInt | typing.SupportsIndex,
        most_tokens: typing.SupportsInt | typing.SupportsIndex,
    ) -> int:
        """
        Return the most bytes of a batch of so many samples and padded tokens.
        """
    @property
    def num_samples(self) -> int: ...
    @property
    def slabs(self) -> dict[str, int]:
        """
        Slabs of memory, how many are lent, the bytes of all, and allocations so far.
        """
    @property
    def truncated(self) -> dict[str, dict[str, int]]:
        """
        Samples and tokens that max_length has cut, by key.
        """

class Delivery:
    """
    The queues of one pass.
    """
    def __init__(
        self,
        *,
        num_batches: typing.SupportsInt | typing.SupportsIndex,
        taken: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex],
        num_targets: typing.SupportsInt | typing.SupportsIndex,
        depth: typing.SupportsInt | typing.SupportsIndex,
        num_producers: typing.SupportsInt | typing.SupportsIndex,
        in_order: bool,
    ) -> None: ...
    def claim(self) -> int | None:
        """
        Wait for room; return the next batch to make, or None.
        """
    def close(self) -> None:
        """
        Wake everybody, and hand out nothing more.
        """
    def fail(self, batch: typing.SupportsInt | typing.SupportsIndex, exception: typing.Any) -> None:
        """
        Deliver an exception instead of a batch.
        """
    def has_failed(self) -> bool:
        """
        Return whether a failure was thrown.
        """
    def leave(self, target: typing.SupportsInt | typing.SupportsIndex) -> None:
        """
        Let the others go on without a target.
        """
    def progress(self) -> tuple[int, list[int], int]:
        """
        Return the first batch that is not taken, those beyond it that are, and how many are.
        """
    def put(self, batch: typing.SupportsInt | typing.SupportsIndex, object: typing.Any) -> None:
        """
        Deliver a batch that was claimed.
        """
    def put_back(
        self,
        target: typing.SupportsInt | typing.SupportsIndex,
        batch: typing.SupportsInt | typing.SupportsIndex,
        object: typing.Any,
    ) -> None:
        """
        Undo a take.
        """
    def queue_depths(self) -> list[int]:
        """
        Return the ready batches of each target.
        """
    def take(
        self, target: typing.SupportsInt | typing.SupportsIndex
    ) -> tuple[int, typing.Any] | None:
        """
        Wait for a batch; return its number and the object, or None at the end.
        """
    def waits(self) -> tuple[float, float]:
        """
        Return the seconds that producers and consumers have waited.
        """

class GivenBlocks:
    """
    Memory that is given for batches.
    """
    def __init__(self) -> None: ...
    def __len__(self) -> int:
        """
        Return how many blocks wait for a batch.
        """
    def close(self) -> None:
        """
        Let go of all blocks. Not in a process that was forked since.
        """
    def put(
        self,
        owner: typing.Any,
        address: typing.SupportsInt | typing.SupportsIndex,
        capacity: typing.SupportsInt | typing.SupportsIndex,
    ) -> None:
        """
        Give a block at a multiple of 64 bytes, which lives as long as its owner.
        """

class MadeBatch:
    """
    A batch in memory.
    """
    def copy_to(self, address: typing.SupportsInt | typing.SupportsIndex) -> None:
        """
        Copy its bytes.
        """
    @property
    def num_bytes(self) -> int:
        """
        Its size.
        """
    @property
    def owner(self) -> typing.Any:
        """
        Who owns the block that was given and holds it, or None.
        """

class Workers:
    """
    Threads that make the batches of a plan.
    """
    def __init__(
        self,
        collator: Collator,
        indices: numpy.ndarray,
        offsets: numpy.ndarray,
        delivery: Delivery,
        *,
        first: typing.SupportsInt | typing.SupportsIndex,
        stride: typing.SupportsInt | typing.SupportsIndex,
        num_threads: typing.SupportsInt | typing.SupportsIndex,
        least_capacity: typing.SupportsInt | typing.SupportsIndex,
        num_idle: typing.SupportsInt | typing.SupportsIndex,
        most_idle: typing.SupportsInt | typing.SupportsIndex,
        given: GivenBlocks,
    ) -> None: ...
    def capsules(self, made: MadeBatch) -> tuple[typing_extensions.CapsuleType, ...]:
        """
        Return one DLPack capsule for each output of a batch.
        """
    def close(self) -> None:
        """
        End the threads, and keep no memory. Not in a process that was forked since.
        """
    def count(self, made: MadeBatch) -> None:
        """
        Count what was cut in a batch.
        """
    def places(self, made: MadeBatch) -> list[tuple[int, list[int], list[int]]]:
        """
        Return place, shape and strides of each output of a batch in its memory, in values.
        """
    def put_back(
        self,
        target: typing.SupportsInt | typing.SupportsIndex,
        batch: typing.SupportsInt | typing.SupportsIndex,
        made: MadeBatch,
    ) -> None:
        """
        Undo a take.
        """
    def take(
        self, target: typing.SupportsInt | typing.SupportsIndex
    ) -> tuple[int, MadeBatch] | None:
        """
        Wait for a batch; return its number and the batch, or None at the end.
        """
    @property
    def lent(self) -> int:
        """
        How many batches' memory is in use.
        """
    @property
    def slabs(self) -> dict[str, int]:
        """
        Slabs of memory, how many are lent, the bytes of all, and allocations so far.
        """

class Settlement:
    """
    How many batches each bucket makes in every epoch.
    """
    def __init__(
        self,
        *,
        batches: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex],
        steps: typing.SupportsInt | typing.SupportsIndex,
        repeats: typing.SupportsInt | typing.SupportsIndex,
    ) -> None: ...
    @property
    def batches(self) -> list[int]: ...
    @property
    def repeats(self) -> int: ...
    @property
    def steps(self) -> int: ...

class PlanAhead:
    """
    A plan that is made in the background.
    """
    def ask_to_stop(self) -> None:
        """
        Let the work end, and do not wait for it.
        """
    def stop(self) -> None:
        """
        End the work and its thread.
        """
    def take(self) -> dict[str, numpy.ndarray] | None:
        """
        Return the arrays, or raise what making them raised; None if taken or stopped.
        """
    def wait(self, seconds: typing.SupportsFloat | typing.SupportsIndex) -> bool:
        """
        Return whether there is nothing to wait for, now or within so many seconds.
        """
    @property
    def fraction(self) -> float:
        """
        How much is done, in [0, 1].
        """

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
        progress: collections.abc.Callable[[float], None] | None = None,
    ) -> None: ...
    def plan(
        self,
        epoch: typing.SupportsInt | typing.SupportsIndex,
        *,
        num_replicas: typing.SupportsInt | typing.SupportsIndex,
        drop_last: bool,
        steps_per_epoch: typing.SupportsInt | typing.SupportsIndex | None = None,
        settlement: Settlement | None = None,
        progress: collections.abc.Callable[[float], None] | None = None,
    ) -> dict[str, numpy.ndarray]:
        """
        Return the arrays of the plan of one epoch.
        """
    def plan_ahead(
        self,
        epoch: typing.SupportsInt | typing.SupportsIndex,
        *,
        num_replicas: typing.SupportsInt | typing.SupportsIndex,
        drop_last: bool,
        steps_per_epoch: typing.SupportsInt | typing.SupportsIndex | None,
        settlement: Settlement | None,
    ) -> PlanAhead:
        """
        Begin to make a plan; None if there is no thread to be had.
        """
    def release_memory(self) -> None:
        """
        Give back the memory that is kept from plan to plan.
        """
    def settle(
        self,
        *,
        num_replicas: typing.SupportsInt | typing.SupportsIndex,
        drop_last: bool,
        steps_per_epoch: typing.SupportsInt | typing.SupportsIndex | None,
        progress: collections.abc.Callable[[float], None] | None = None,
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

class DeviceBatch:
    """
    A batch on its way to a device.
    """
    def capsules(
        self,
        collator: Collator,
        device_type: typing.SupportsInt | typing.SupportsIndex,
        device_id: typing.SupportsInt | typing.SupportsIndex,
    ) -> tuple[typing_extensions.CapsuleType, ...]:
        """
        Return one DLPack capsule for each output.
        """
    def count(self, collator: Collator) -> None:
        """
        Count what was cut in it, once a consumer has it for good: it cannot be submitted again.
        """
    def places(self, collator: Collator) -> list[tuple[int, list[int], list[int]]]:
        """
        Return place, shape and strides of each output, in values.
        """
    @property
    def is_given(self) -> bool:
        """
        Whether its memory was given before it needed it.
        """
    @property
    def num_bytes(self) -> int:
        """
        Of all outputs.
        """
    @property
    def owner(self) -> typing.Any:
        """
        Who owns the memory that was given for its outputs.
        """
    @property
    def padded_tokens(self) -> int:
        """
        Samples times the width of the widest output.
        """

class Destination:
    """
    The memory of one device for batches, and the way there.
    """
    @typing.overload
    def __init__(
        self, ordinal: typing.SupportsInt | typing.SupportsIndex, given: GivenBlocks
    ) -> None: ...
    @typing.overload
    def __init__(
        self,
        ordinal: typing.SupportsInt | typing.SupportsIndex,
        *,
        num_blocks: typing.SupportsInt | typing.SupportsIndex,
        block_bytes: typing.SupportsInt | typing.SupportsIndex,
    ) -> None: ...
    def hand_over(
        self, batch: DeviceBatch, stream: typing.SupportsInt | typing.SupportsIndex
    ) -> None:
        """
        Let a stream wait for a batch that was submitted.
        """
    def has(self, batch: DeviceBatch) -> bool:
        """
        Return whether a batch was submitted here.
        """
    def release(
        self,
        batch: DeviceBatch,
        streams: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex],
    ) -> None:
        """
        End the lease of a batch's memory after what these streams have been given.
        """
    def submit(
        self, batch: DeviceBatch, *, most_blocks: typing.SupportsInt | typing.SupportsIndex = 0
    ) -> bool:
        """
        Submit a batch; return False if there is no memory for it. It takes a small part of the device, or up to most_blocks blocks.
        """
    def submit_into(
        self,
        batch: DeviceBatch,
        owner: typing.Any,
        address: typing.SupportsInt | typing.SupportsIndex,
        capacity: typing.SupportsInt | typing.SupportsIndex,
    ) -> None:
        """
        Submit a batch into memory that is for it alone.
        """
    @property
    def num_multiprocessors(self) -> int:
        """
        Of the device.
        """

class Stager:
    """
    Stages batches in pinned memory.
    """
    def __init__(
        self,
        collator: Collator,
        destination: Destination,
        *,
        num_slabs: typing.SupportsInt | typing.SupportsIndex,
        most_samples: typing.SupportsInt | typing.SupportsIndex,
        most_tokens: typing.SupportsInt | typing.SupportsIndex,
    ) -> None: ...
    def stage(
        self,
        number: typing.SupportsInt | typing.SupportsIndex,
        collator: Collator,
        samples: typing.Any,
    ) -> DeviceBatch:
        """
        Stage a batch of samples.
        """
    @property
    def slabs(self) -> dict[str, int]:
        """
        Slabs, how many are lent, the bytes of all, allocations and waits.
        """

class DeviceWorkers:
    """
    Threads that stage the batches of a plan.
    """
    def __init__(
        self,
        stager: Stager,
        indices: numpy.ndarray,
        offsets: numpy.ndarray,
        delivery: Delivery,
        destinations: collections.abc.Sequence[Destination],
        *,
        first: typing.SupportsInt | typing.SupportsIndex,
        stride: typing.SupportsInt | typing.SupportsIndex,
        num_threads: typing.SupportsInt | typing.SupportsIndex,
    ) -> None: ...
    def close(self) -> None:
        """
        End the threads. Not in a process that was forked since.
        """
    def put_back(
        self,
        target: typing.SupportsInt | typing.SupportsIndex,
        batch: typing.SupportsInt | typing.SupportsIndex,
        made: DeviceBatch,
    ) -> None:
        """
        Undo a take.
        """
    def take(
        self, target: typing.SupportsInt | typing.SupportsIndex
    ) -> tuple[int, DeviceBatch] | None:
        """
        Wait for a batch; return its number and the batch, or None at the end.
        """

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

def device_stream(ordinal: typing.SupportsInt | typing.SupportsIndex) -> int:
    """
    Return the handle of the stream of a device that batches are submitted on.
    """

def driver_error() -> str | None:
    """
    Return why there is no driver that has a device; None if there is.
    """

def fingerprint(
    lengths: numpy.ndarray, *, num_threads: typing.SupportsInt | typing.SupportsIndex
) -> int:
    """
    Return a hash of the lengths and their order, whatever their dtype.
    """

def kernel_error(ordinal: typing.SupportsInt | typing.SupportsIndex) -> str | None:
    """
    Return why the kernel cannot run on a device; None if it can.
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
cuda_compiler: str
