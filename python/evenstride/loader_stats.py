"""What a pass of a loader has done."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class LoaderStats:
    """What a pass has done so far.

    Attributes
    ----------
    epoch : int
        The epoch that it is over.
    batches, samples, tokens, padded_tokens : int
        Taken by all consumers in this pass.
    seconds : float
        From the first ``next`` to now, or to the last batch.
    producers_waited_s, consumers_waited_s : float
        Seconds that all workers together waited for room, and all consumers for a batch.
    batches_by_bucket : tuple of int, length n_buckets
        Batches of each bucket.
    memory_slabs, memory_lent, memory_bytes, memory_allocations : int
        Blocks of memory for batches, how many are in use, the bytes of all, and how often memory
        was allocated. 0 if the threads are Python's. For batches that are made on devices, the
        pinned blocks on their way there.
    memory_waits : int
        How often a thread had to wait for a device to read a block.

    """

    epoch: int = 0
    batches: int = 0
    samples: int = 0
    tokens: int = 0
    padded_tokens: int = 0
    seconds: float = 0.0
    producers_waited_s: float = 0.0
    consumers_waited_s: float = 0.0
    batches_by_bucket: tuple[int, ...] = ()
    memory_slabs: int = 0
    memory_lent: int = 0
    memory_bytes: int = 0
    memory_allocations: int = 0
    memory_waits: int = 0

    @property
    def batches_per_second(self) -> float:
        """Batches a second, 0 before the first."""
        return self.batches / self.seconds if self.seconds else 0.0

    @property
    def tokens_per_second(self) -> float:
        """Real tokens a second, 0 before the first batch."""
        return self.tokens / self.seconds if self.seconds else 0.0

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain numbers and lists, for logs."""
        return {
            **asdict(self),
            "batches_by_bucket": list(self.batches_by_bucket),
            "batches_per_second": self.batches_per_second,
            "tokens_per_second": self.tokens_per_second,
        }
