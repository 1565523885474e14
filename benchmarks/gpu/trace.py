"""What a device did, as torch's profiler saw it: kernels and copies, their times and bytes."""

from __future__ import annotations

import contextlib
import json
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from torch.profiler import ProfilerActivity, profile

from gpu.section import synchronize

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch

DEVICE_WORK = ("kernel", "gpu_memcpy", "gpu_memset")
HOST_WORK = ("cpu_op", "user_annotation")
"""What stands for it in a dry run."""


@dataclass(frozen=True)
class Event:
    """A kernel or a copy."""

    name: str
    begin_us: float
    seconds: float
    num_bytes: int


@dataclass
class Trace:
    """All that a device did while it was watched, in order."""

    events: list[Event] = field(default_factory=list)

    def named(self, part: str) -> list[Event]:
        """Return the events whose name has a part."""
        return [event for event in self.events if part in event.name]


@contextlib.contextmanager
def watch(device: torch.device) -> Iterator[Trace]:
    """Watch a device during a block; the trace is filled at its end."""
    is_cuda = device.type == "cuda"
    found = Trace()
    with profile(
        activities=[ProfilerActivity.CUDA if is_cuda else ProfilerActivity.CPU]
    ) as watched:
        yield found
        synchronize(device)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        watched.export_chrome_trace(str(path))
        entries = json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
    kinds = DEVICE_WORK if is_cuda else HOST_WORK
    found.events += sorted(
        (
            Event(
                name=str(entry["name"]),
                begin_us=float(entry["ts"]),
                seconds=1e-6 * float(entry["dur"]),
                num_bytes=int(entry.get("args", {}).get("bytes", 0)),
            )
            for entry in entries
            if entry.get("cat") in kinds and "dur" in entry
        ),
        key=lambda event: event.begin_us,
    )
