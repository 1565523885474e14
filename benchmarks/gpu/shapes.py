"""The batches on which the kernel is timed alone, and how it is run on them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.profiler import record_function

import evenstride as es
from evenstride import _core
from evenstride.device_target import Device, DeviceTarget
from gpu.section import synchronize

if TYPE_CHECKING:
    from collections.abc import Mapping

KERNEL = "evenstride_pad"


@dataclass(frozen=True)
class Kind:
    """What is made of a row."""

    name: str
    wire: str
    outs: tuple[str, ...]
    mask: torch.dtype | None = None

    @property
    def bytes_of_place(self) -> int:
        """All outputs have so many bytes for each place of the rectangle."""
        sizes = [getattr(torch, out).itemsize for out in self.outs]
        return sum(sizes) + (self.mask.itemsize if self.mask else 0)


KINDS = (
    Kind("uint16 -> int64", "uint16", ("int64",)),
    Kind("int32 -> int64", "int32", ("int64",)),
    Kind("int64 -> int64", "int64", ("int64",)),
    Kind("int32 -> int32", "int32", ("int32",)),
    Kind("uint8 -> uint8", "uint8", ("uint8",)),
    Kind("uint16 -> int64, int64 mask", "uint16", ("int64",), torch.int64),
    Kind("int32 -> int64, bool mask", "int32", ("int64",), torch.bool),
    Kind("uint16 -> int64 ids, labels and mask", "uint16", ("int64", "int64"), torch.int64),
)


@dataclass(frozen=True)
class Shape:
    """A kind, a width, and the share of the rectangle that is tokens."""

    kind: Kind
    width: int
    fill: float
    side: str = "right"

    @property
    def name(self) -> str:
        side = "" if self.side == "right" else ", left"
        return f"{self.kind.name}, {self.width} wide, fill {self.fill:g}{side}"


def shapes() -> list[Shape]:
    """Return the shapes to time: kinds at one shape, two of them at all widths and fills."""
    found = [Shape(kind, 2_048, 0.8) for kind in KINDS]
    for kind in KINDS[:2]:
        for width in (128, 512, 2_048, 8_192):
            found += [Shape(kind, width, fill) for fill in (1.0, 0.5)]
    found += [Shape(KINDS[0], 2_047, 0.8), Shape(KINDS[1], 1_001, 0.8)]
    found += [Shape(KINDS[0], 2_048, 0.8, "left"), Shape(KINDS[0], 2_047, 0.8, "left")]
    return found


class PadAlone:
    """Runs the kernel on one batch, with as many blocks as a device takes at once."""

    def __init__(self, shape: Shape, output_bytes: int, device: torch.device) -> None:
        kind, width = shape.kind, shape.width
        num_rows = max(2, output_bytes // (kind.bytes_of_place * width))
        rng = np.random.default_rng(0)
        least = max(0, round((2 * shape.fill - 1) * width))
        self.lengths = rng.integers(least, width + 1, num_rows)
        self.lengths[-1] = width
        self.offsets = np.concatenate([[0], self.lengths.cumsum()])
        most = 100 if kind.wire == "uint8" else 30_000
        self.values = rng.integers(1, most, self.offsets[-1], dtype=kind.wire)
        self.dataset = es.RaggedDataset({"x": (self.values, self.offsets)})
        self.collate = es.PadCollator(
            {
                f"x{n}": es.Field(0, getattr(torch, out), source="x")
                for n, out in enumerate(kind.outs)
            },
            attention_mask=kind.mask is not None,
            mask_dtype=kind.mask or torch.int64,
            padding_side=shape.side,
        )
        self.rows = np.arange(num_rows)
        self.device = device
        self.read_bytes = self.values.nbytes
        self.written_bytes = num_rows * width * kind.bytes_of_place
        self._bound = self.collate.bound_to(self.dataset)
        if device.type != "cuda":
            return
        self._place = Device(device, 1)
        self._target = DeviceTarget(self._bound, self._place)
        self._stager = _core.Stager(
            self._bound.native,
            self._place.native,
            num_slabs=2,
            most_samples=num_rows,
            most_tokens=num_rows * width,
        )

    def run(self, *, has_full_grid: bool = True) -> Mapping[str, Any]:
        """Stage the batch, pad it on the device, and wait; return the outputs."""
        if self.device.type != "cuda":
            with record_function(KERNEL):
                return self.collate(self.dataset.__getitems__(self.rows))
        native, supply = self._place.native, self._place.supply
        made = self._stager.stage(0, self._bound.native, self.rows)
        block = supply.allocate(made.num_bytes)
        supply.given.put(block, block.data_ptr(), block.numel())
        full = 8 * native.num_multiprocessors
        assert native.submit(made, most_blocks=full if has_full_grid else 0)
        batch = self._target.finished(made, lambda: self.rows)
        synchronize(self.device)
        return batch

    def check(self) -> None:
        """Assert that some rows are the host's."""
        made = self.run()
        some = np.unique(np.concatenate([self.rows[:4], self.rows[-4:], self.rows[::97][:64]]))
        width = next(iter(made.values())).shape[1]
        # The last row is the longest, so the host's batch of these rows is as wide.
        expected = self.collate(self.dataset.__getitems__(some))
        for key, wanted in expected.items():
            found = made[key][torch.from_numpy(some).to(self.device)].cpu()
            assert found.shape == (len(some), width), key
            assert torch.equal(found, wanted), key
