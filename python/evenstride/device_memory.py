"""Devices and their memory, as torch has them: the one place where the device path asks torch."""

from __future__ import annotations

import warnings
from typing import Any

import torch

from evenstride import _core
from evenstride.callers import levels_to_user

_said: set[str] = set()


class DeviceMemory:
    """Memory of a CUDA device, taken from torch's allocator on a stream that is not torch's.

    What is allocated there belongs to that stream: when its last tensor dies, torch lets later work
    of that stream have it, once every stream that it was handed to has come to that point.
    """

    def __init__(self, index: int, stream: int) -> None:
        self.device = torch.device("cuda", index)
        self.dlpack_device = (2, index)  # DLPack's number for CUDA.
        external: Any = torch.cuda.ExternalStream  # Without types.
        self._stream = external(stream, device=self.device)

    def allocate(self, num_bytes: int) -> torch.Tensor:
        """Return a tensor of bytes, at a multiple of 64."""
        with torch.cuda.stream(self._stream):
            return torch.empty(num_bytes, dtype=torch.uint8, device=self.device)

    def current_stream(self) -> int:
        """Return the handle of the stream that the calling thread works on."""
        return int(torch.cuda.current_stream(self.device).cuda_stream)

    def hand_over(self, block: torch.Tensor) -> None:
        """Note that the calling thread's current stream uses a block."""
        block.record_stream(torch.cuda.current_stream(self.device))


def as_device(name: str, device: Any) -> torch.device:
    """Return a device that this torch has; say what is wrong with it else."""
    try:
        given = torch.device(device)
    except (RuntimeError, TypeError) as error:
        if isinstance(device, int):  # Of whichever kind torch has; it has none.
            msg = f"`{name}` must be a device that this torch has, but is {device}. {_missing()}"
            raise ValueError(msg) from error  # noqa: TRY004 - An int is of the right kind.
        msg = f"`{name}` must be a device that torch knows, but is {device!r}."
        raise (ValueError if isinstance(device, str) else TypeError)(msg) from error
    if given.type == "cuda":
        if not torch.cuda.is_available():
            msg = f"`{name}` must be a device that this torch has, but is {given}. {_missing()}"
            raise ValueError(msg)
        num_devices = torch.cuda.device_count()
        index: int | None = given.index
        if (0 if index is None else index) >= num_devices:
            msg = f"`{name}` must be a CUDA device in [0, {num_devices}), but is {given}."
            raise ValueError(msg)
    elif given.type not in ("cpu", "meta"):
        try:
            torch.empty(0, device=given)
        except (NotImplementedError, RuntimeError) as error:
            msg = f"`{name}` must be a device that this torch has, but is {given}."
            raise ValueError(msg) from error
    return given


def why_not(device: torch.device) -> str | None:
    """Return a clause that says why the kernel does not serve a device; None if it does."""
    if device.type != "cuda":
        return "the kernel is for CUDA devices only"
    if torch.version.hip is not None:
        return "this torch is for ROCm, and the kernel for CUDA"
    if _core.cuda_compiler is None:
        return "evenstride was built without a CUDA compiler"
    return _core.kernel_error(index_of(device))


def index_of(device: torch.device) -> int:
    """Return the number of a CUDA device; that of the thread's current one if it has none."""
    index: Any = device.index  # None in "cuda", whatever its type says.
    return torch.cuda.current_device() if index is None else int(index)


def say_fallback(device: torch.device, reason: str) -> None:
    """Warn, once for each reason, that batches take the way over the host."""
    if reason not in _said:
        _said.add(reason)
        msg = f"Batches for {device} are collated on the host and copied, because {reason}"
        warnings.warn(msg.removesuffix(".") + ".", stacklevel=levels_to_user())


def _missing() -> str:
    if torch.version.cuda is None:
        return "It is built without CUDA."
    return _core.driver_error() or "It finds no CUDA device."
