"""Batches that are padded on a CUDA device, straight into memory that is used again."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, SupportsIndex

from evenstride import _core
from evenstride.device_memory import as_device, say_fallback, why_not
from evenstride.device_target import Device, DeviceTarget, as_memory
from evenstride.indices import as_rows
from evenstride.loader_checks import as_limited
from evenstride.loader_moving import moved
from evenstride.producers import is_native

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch

    from evenstride.collate import PadCollator
    from evenstride.dataset import RaggedDataset

__all__ = ["DeviceCollator", "is_built"]

_MOST_TOKENS = 2**40
_MOST_DEPTH = 2**20


def is_built() -> bool:
    """Return whether the package was built with a CUDA compiler, and so has the kernel."""
    return _core.cuda_compiler is not None


class DeviceCollator:
    """Makes batches of rows in a device's memory.

    The rows travel as they are stored, packed into one block of pinned memory: one copy, one launch
    of a kernel that widens, pads and derives every output, and one event, which the calling
    thread's current stream waits for. The host does not wait for the batch, and the driver
    allocates nothing once the largest batch was made.

    Where the kernel was not built, or the device is not CUDA's, batches are collated on the host
    and copied, with the same result and one warning.

    Parameters
    ----------
    dataset : RaggedDataset
        Where the rows are.
    collate : PadCollator
        What becomes of them.
    device : torch.device, default "cuda"
        "cuda" alone is the current one.
    max_padded_tokens, max_batch_size : int, optional
        The largest batch: samples times width, and samples, in ``[1, 2**40]``. They size the memory
        for tokens, and for values of which each sample has one, at the start; larger batches are
        refused. By default memory grows with the largest batch so far.
    depth : int, default 2
        The host waits for the device once ``depth + 2`` batches are on their way, in
        ``[1, 2**20]``.
    memory : {"torch", "ring"}, default "torch"
        Where outputs lie: in memory that torch allocates for each batch, to which torch's own rules
        apply, or in ``depth + 2`` blocks that are used in turn. In a ring the next call ends the
        lease of a batch: its tensors must not be used any more. Blocks whose tensors are kept are
        not used again; when all are kept, the next call is an error. Threads may share a collator
        with torch's memory only.

    Raises
    ------
    TypeError
        If an argument is not of its kind.
    ValueError
        If a value is outside its range, or torch has no such device.
    MemoryError
        If there is no memory for the largest batch.
    RuntimeError
        If the driver fails, or this process was forked from one that used the device.

    Warns
    -----
    UserWarning
        Once, if batches are collated on the host.

    Examples
    --------
    >>> import torch
    >>> import evenstride as es
    >>> from evenstride.cuda import DeviceCollator
    >>> ds = es.RaggedDataset.from_lists([[5, 6, 7], [8]])
    >>> collate = es.PadCollator({"input_ids": es.Field()})
    >>> if torch.cuda.is_available():
    ...     batch = DeviceCollator(ds, collate, max_padded_tokens=49_152)([0, 1])

    """

    def __init__(
        self,
        dataset: RaggedDataset,
        collate: PadCollator,
        *,
        device: torch.device | str | int = "cuda",
        max_padded_tokens: SupportsIndex | None = None,
        max_batch_size: SupportsIndex | None = None,
        depth: SupportsIndex = 2,
        memory: str = "torch",
    ) -> None:
        if not is_native(dataset, collate):
            msg = (
                "`dataset` must be a RaggedDataset and `collate` a PadCollator, whose methods are "
                f"their own, but they are a {type(dataset).__name__} and a "
                f"{type(collate).__name__}."
            )
            raise TypeError(msg)
        uses_ring = as_memory("memory", memory) == "ring"
        num_slabs = as_limited("depth", depth, _MOST_DEPTH) + 2
        self._most_tokens = _largest("max_padded_tokens", max_padded_tokens)
        self._most_samples = _largest("max_batch_size", max_batch_size)
        self._dataset = dataset
        self._bound = collate.bound_to(dataset)
        self._device = as_device("device", device)
        self._numbers = 0
        self._target: DeviceTarget | None = None
        if (reason := why_not(self._device)) is not None:
            say_fallback(self._device, reason)
            return
        largest = {
            "most_samples": 0 if max_batch_size is None else self._most_samples,
            "most_tokens": 0 if max_padded_tokens is None else self._most_tokens,
        }
        try:
            block_bytes = self._bound.native.most_bytes(**largest)
            place = Device(self._device, block_bytes, num_blocks=num_slabs if uses_ring else 0)
            self._stager = _core.Stager(
                self._bound.native, place.native, num_slabs=num_slabs, **largest
            )
        except MemoryError as error:
            msg = (
                f"`max_padded_tokens`, {max_padded_tokens}, and `max_batch_size`, "
                f"{max_batch_size}, must be of batches for which there is memory."
            )
            raise MemoryError(msg) from error
        self._target = DeviceTarget(self._bound, place)

    def __call__(self, indices: Any) -> dict[str, Any]:
        """Return a batch of rows, ready on the calling thread's current stream.

        Parameters
        ----------
        indices : sequence of int, or array or tensor of integers
            Rows of the data set; negative ones count from the end.

        Returns
        -------
        dict of str to torch.Tensor
            Keys and shapes are those of the collator's batches; lists of tensors where a ragged
            field has no :class:`Field`.

        Raises
        ------
        IndexError, TypeError, ValueError
            If an index is no row of the data set, a value does not fit into its output, or the
            batch is larger than the largest one.
        RuntimeError
            If the device fails, or tensors keep all of the ring.

        """
        # A list is quicker as it is.
        rows = indices if isinstance(indices, list) else as_rows(indices, len(self._dataset))
        if len(rows) > self._most_samples:
            msg = (
                f"A batch must have at most `max_batch_size` = {self._most_samples} samples, but "
                f"has {len(rows)}."
            )
            raise ValueError(msg)
        if self._target is None:
            collated = self._bound.batch(rows)
            self._check_tokens(self._bound.padded_tokens(collated))
            batch: dict[str, Any] = moved(collated, device=self._device, pins_memory=False)
            return batch
        made = self._stager.stage(self._numbers, self._bound.native, rows)
        self._numbers += 1
        self._check_tokens(made.padded_tokens)
        batch = self._target.finished(made, lambda: rows)
        made.count(self._bound.native)
        return batch

    def _check_tokens(self, padded_tokens: int) -> None:
        if padded_tokens > self._most_tokens:
            msg = (
                f"A batch must have at most `max_padded_tokens` = {self._most_tokens} padded "
                f"tokens, but has {padded_tokens}."
            )
            raise ValueError(msg)

    @contextlib.contextmanager
    def lease(self, indices: Any) -> Iterator[dict[str, Any]]:
        """Lend a batch for a block of code, at whose end its memory may be used again.

        Parameters
        ----------
        indices : sequence of int, or array or tensor of integers
            Rows of the data set; negative ones count from the end.

        Yields
        ------
        dict of str to torch.Tensor
            What a call returns.

        Raises
        ------
        IndexError, TypeError, ValueError, RuntimeError
            As a call does.

        """
        try:
            yield self(indices)
        finally:
            if self._target is not None:
                self._target.release()

    @property
    def truncated(self) -> dict[str, dict[str, int]]:
        """Samples and tokens that `max_length` has cut, by key, as the collator counts them."""
        return self._bound.truncated

    def __reduce__(self) -> tuple[Any, ...]:
        msg = (
            "A `DeviceCollator` has memory of a device, and cannot be copied or pickled: make one "
            "where it is needed, of its data set and collator, which can."
        )
        raise TypeError(msg)


def _largest(name: str, value: SupportsIndex | None) -> int:
    return _MOST_TOKENS if value is None else as_limited(name, value, _MOST_TOKENS)
