"""The kernel alone, with a full grid, against a device-to-device copy of as many bytes."""

from __future__ import annotations

import statistics
import sys
import time
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from gpu.section import Section, run_section, synchronize
from gpu.shapes import KERNEL, KINDS, PadAlone, Shape, shapes
from gpu.trace import watch

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpu.trace import Trace

OUTPUT_BYTES = 256 << 20
LEAST_BYTES = 64 << 20
REACH = 0.85
HEAD = ["batch", "read", "written", "GB/s (p10..p90)", "copy", "share"]


@dataclass
class Timed:
    """A shape, its bytes, and how often the kernel and the copy ran on it."""

    shape: Shape
    read_bytes: int
    written_bytes: int
    kernel_s: list[float] = field(default_factory=list)
    copy_s: list[float] = field(default_factory=list)
    slab_rates: list[float] = field(default_factory=list)
    """Of the copies to the device, in GB/s."""

    @property
    def num_bytes(self) -> int:
        return self.read_bytes + self.written_bytes

    def rates(self, seconds: list[float]) -> list[float]:
        """Return bytes a second, in GB: the median, the 10th and the 90th percentile."""
        quantiles = np.quantile(seconds, [0.5, 0.9, 0.1]).tolist()
        return [1e-9 * self.num_bytes / one for one in quantiles]


def run(section: Section) -> None:
    runs = 3 if section.quick else 9
    output_bytes = OUTPUT_BYTES if section.is_cuda else 1 << 16
    with watch(section.device):  # The profiler's own beginnings.
        synchronize(section.device)
    timed: list[Timed] = []
    for shape in shapes()[:: 4 if section.quick else 1]:
        if section.is_cuda and section.seconds_left < 20:
            section.note(f"No time for {shape.name}, and what comes after.")
            break
        with section.attempt(shape.name):
            timed.append(time_shape(shape, output_bytes, runs, section.device))
    if timed:
        tabulate(section, timed)
    with section.attempt("the small grid", must=False):
        small_grid(section, output_bytes, runs)
    for name, pad in padders().items():
        with section.attempt(name, must=False):
            compare(section, name, pad, output_bytes, runs)


def time_shape(shape: Shape, output_bytes: int, runs: int, device: torch.device) -> Timed:
    """Run kernel and copy in turns, so that whatever else the device does hits both."""
    alone = PadAlone(shape, output_bytes, device)
    timed = Timed(shape, alone.read_bytes, alone.written_bytes)
    alone.check()
    half = timed.num_bytes // 2
    source, target = (torch.ones(half, dtype=torch.uint8, device=device) for _ in range(2))
    target.copy_(source)
    synchronize(device)
    with watch(device) as trace:
        for _ in range(runs):
            alone.run()
            target.copy_(source)
            synchronize(device)
    timed.kernel_s = seconds_named(trace, KERNEL, runs)
    timed.copy_s = seconds_named(trace, "DtoD" if device.type == "cuda" else "aten::copy_", runs)
    timed.slab_rates = [
        1e-9 * event.num_bytes / event.seconds for event in trace.named("HtoD") if event.num_bytes
    ]
    return timed


def seconds_named(trace: Trace, name: str, runs: int) -> list[float]:
    """Return the times of all runs of what has a name."""
    seconds = [event.seconds for event in trace.named(name)]
    if len(seconds) != runs:
        msg = f"The profiler must have seen {runs} runs of {name}, but saw {len(seconds)}."
        raise RuntimeError(msg)
    return seconds


def tabulate(section: Section, timed: list[Timed]) -> None:
    """Add the table, and state the shares of the copy's rate that were reached."""
    rows, shares = [], {}
    for one in timed:
        median, p10, p90 = one.rates(one.kernel_s)
        copy = one.rates(one.copy_s)[0]
        if one.written_bytes >= LEAST_BYTES or not section.is_cuda:
            shares[one.shape.name] = median / copy
        rows.append(
            [
                one.shape.name,
                f"{one.read_bytes / 2**20:.0f} MiB",
                f"{one.written_bytes / 2**20:.0f} MiB",
                f"{median:.0f} ({p10:.0f}..{p90:.0f})",
                f"{copy:.0f}",
                f"{median / copy:.0%}",
            ]
        )
    section.table("Kernel alone, full grid: GB read plus written a second", HEAD, rows)
    section.keep("shares of the copy's rate", shares)
    what = "kernel's rate / device copy's"
    ordered = sorted(shares.values())
    middle, slowest = statistics.median(ordered), ordered[0]
    section.require(f"{what}, median of {len(shares)} shapes", middle, REACH, "", at_least=True)
    section.require(f"{what}, slowest shape", slowest, REACH, "", at_least=True)
    slabs = [rate for one in timed for rate in one.slab_rates]
    if slabs:
        section.note(f"Slabs reach the device at {statistics.median(slabs):.1f} GB/s.")


def small_grid(section: Section, output_bytes: int, runs: int) -> None:
    """Time the part of the device that a loader takes, beside the full grid."""
    alone = PadAlone(Shape(KINDS[1], 2_048, 0.8), output_bytes, section.device)
    rates = []
    for has_full_grid in (False, True):
        with watch(section.device) as trace:
            for _ in range(runs):
                alone.run(has_full_grid=has_full_grid)
        seconds = statistics.median(seconds_named(trace, KERNEL, runs))
        rates.append(1e-9 * (alone.read_bytes + alone.written_bytes) / seconds)
    section.note(
        f"int32 -> int64, 2048 wide: {rates[0]:.0f} GB/s with a loader's small grid, "
        f"{rates[1]:.0f} GB/s with the full one."
    )


# ---------------------------------------------------------------------------- other kernels


def padders() -> dict[str, Any]:
    """Return other ways to pad int64 values that a device has already."""
    return {"torch.nested": pad_nested, "FBGEMM jagged_to_padded_dense": pad_fbgemm}


def pad_nested(values: torch.Tensor, offsets: torch.Tensor, width: int) -> torch.Tensor:
    """Pad with ``torch.nested``."""
    nested = torch.nested.nested_tensor_from_jagged(values, offsets, max_seqlen=width)
    return torch.nested.to_padded_tensor(nested, 0)


def pad_fbgemm(values: torch.Tensor, offsets: torch.Tensor, width: int) -> torch.Tensor:
    """Pad with FBGEMM."""
    import fbgemm_gpu  # noqa: F401, PLC0415 - It registers torch's operators.

    pad = torch.ops.fbgemm.jagged_to_padded_dense
    return pad(values[:, None], [offsets], [width], 0)[..., 0]


def compare(section: Section, name: str, pad: Any, output_bytes: int, runs: int) -> None:
    """Time another kernel on the rows of ours, int64 to int64, without a mask."""
    rows = []
    for fill in (1.0, 0.5):
        shape = Shape(KINDS[2], 2_048, fill)
        alone = PadAlone(shape, output_bytes, section.device)
        values = torch.from_numpy(alone.values).to(section.device)
        offsets = torch.from_numpy(alone.offsets).to(section.device)
        kind = "int64"
        try:
            made = pad(values, offsets, shape.width)
        except (RuntimeError, NotImplementedError):
            kind, values = "float64", values.double()  # Not for integers: as many bytes.
            made = pad(values, offsets, shape.width)
        assert torch.equal(made.long(), next(iter(alone.run().values())))
        ours = seconds_of(section, alone.run, runs)
        theirs = seconds_of(section, partial(pad, values, offsets, shape.width), runs)
        scale = 1e-9 * (alone.read_bytes + alone.written_bytes)
        rows.append(
            [
                f"{shape.name} ({kind})",
                f"{scale / ours:.0f} GB/s",
                f"{scale / theirs:.0f} GB/s",
                f"{theirs / ours:.2f}",
            ]
        )
    section.table(f"Kernel alone against {name}", ["batch", "ours", name, "ratio"], rows)


def seconds_of(section: Section, call: Callable[[], Any], runs: int) -> float:
    """Return the mean time of what a call does on the device, less copies from the host."""
    call()
    with watch(section.device) as trace:
        began_s = time.perf_counter()
        for _ in range(runs):
            call()
        host_s = time.perf_counter() - began_s
    work = [event.seconds for event in trace.events if "HtoD" not in event.name]
    return (sum(work) if section.is_cuda else host_s) / runs


if __name__ == "__main__":
    sys.exit(run_section(run, __doc__))
