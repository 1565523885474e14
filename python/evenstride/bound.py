"""A padding collator for the columns of one data set: what makes its batches."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch.utils.data import get_worker_info
from torch.utils.dlpack import from_dlpack

from evenstride import _core
from evenstride.blocks import tensors_in
from evenstride.collate_rows import stacked_or_listed
from evenstride.fields import TORCH_DTYPES
from evenstride.options import UNLIMITED
from evenstride.outputs import outputs_of
from evenstride.rows import row_tensor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from evenstride.blocks import Place
    from evenstride.collate import PadCollator

    Samples: TypeAlias = Sequence[int] | NDArray[np.int64]

# What torch's own function calls, after a failing look for a method that takes longer than this.
_tensor: Callable[[Any], torch.Tensor] = getattr(torch._C, "_from_dlpack", from_dlpack)  # noqa: SLF001


class BoundCollator:
    """Makes batches of samples of some columns: all of their rows, or `rows` of them."""

    def __init__(
        self,
        collate: PadCollator,
        columns: Mapping[str, _core.Column],
        rows: NDArray[np.int64] | None = None,
    ) -> None:
        outputs, self._main, self._listed = outputs_of(collate, columns)
        self.native = _core.Collator(outputs, rows, collate.pad_to_multiple_of)
        self._outputs = outputs
        self._keys = [output.key for output in outputs]
        self._dtypes = [TORCH_DTYPES[output.dtype] for output in outputs]
        self._rows = rows

    @property
    def truncated(self) -> dict[str, dict[str, int]]:
        """Samples and tokens that were cut, by key."""
        return self.native.truncated

    def lengths(self) -> NDArray[np.integer[Any]]:
        """Return the tokens of every sample as they count for the mask.

        Raises
        ------
        ValueError
            If no key is made of a ragged field.

        """
        main = self._main
        if main is None:
            msg = f"A field of {self._keys} must be ragged, so that there are lengths, but none is."
            raise ValueError(msg)
        lengths: NDArray[np.integer[Any]] = main.column.lengths()
        if self._rows is not None:
            lengths = lengths[self._rows]
        if main.start == 0 and main.max_length == UNLIMITED:
            return lengths
        longest = main.column.longest  # Bounds beyond it need not fit into the type.
        lengths = lengths - min(main.start, longest)
        return lengths.clip(0, min(main.max_length, longest))

    def batch(self, samples: Samples) -> dict[str, Any]:
        """Return the batch of some samples."""
        if get_worker_info() is not None:
            return self._shared(samples)
        return self.tensors(self.native.collate(samples), lambda: samples)

    def tensors(self, capsules: Sequence[Any], samples: Callable[[], Samples]) -> dict[str, Any]:
        """Return the batch of some samples whose outputs have been made."""
        tensors = map(_tensor, capsules)
        return self._completed(dict(zip(self._keys, tensors, strict=True)), samples)

    def tensors_in(
        self,
        storage: torch.UntypedStorage,
        places: Iterable[Place],
        samples: Callable[[], Samples],
    ) -> dict[str, Any]:
        """Return the batch of some samples whose outputs have been made in memory of torch's."""
        tensors = tensors_in(storage, self._dtypes, places)
        return self._completed(dict(zip(self._keys, tensors, strict=True)), samples)

    def padded_tokens(self, batch: Mapping[str, Any]) -> int:
        """Return samples times the width of the widest output of a batch."""
        shapes = [batch[output.key].shape[: 1 + output.has_width] for output in self._outputs]
        return max(map(math.prod, shapes))

    @property
    def has_lists(self) -> bool:
        """Whether a batch has more than its outputs: ragged fields that are not padded."""
        return bool(self._listed)

    def _completed(self, batch: dict[str, Any], samples: Callable[[], Samples]) -> dict[str, Any]:
        return {**batch, **self._lists(samples())} if self._listed else batch

    def _shared(self, samples: Samples) -> dict[str, Any]:
        """Return a batch in memory that the parent of this worker process can map."""
        storages: list[torch.UntypedStorage] = []

        def allocate(num_bytes: int) -> int:
            new_shared: Any = torch.UntypedStorage._new_shared  # noqa: SLF001 - As torch's own does.
            storages.append(new_shared(num_bytes))
            return int(storages[0].data_ptr())

        places = self.native.collate_into(samples, allocate)
        return self.tensors_in(storages[0], places, lambda: samples)

    def _lists(self, samples: Samples) -> dict[str, Any]:
        """Return the ragged fields that are not padded."""
        rows = [self._row(sample) for sample in samples]
        return {
            name: stacked_or_listed([row_tensor(column, row) for row in rows])
            for name, column in self._listed.items()
        }

    def _row(self, sample: int) -> int:
        if self._rows is not None:
            return int(self._rows[sample])
        return sample + self.native.num_samples if sample < 0 else sample
