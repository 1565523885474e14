"""A CUDA driver that only pretends, and a torch that takes the host's memory for a device's."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import weakref
from pathlib import Path

import pytest
import torch

from evenstride import cuda, device_memory, device_target, loader_checks, start_producers

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ["tests/cpp/fake_libcuda.cc", "tests/cpp/fake_driver.cc"]


def build_driver(folder):
    """Compile the driver of the C++ tests as the library that the package looks for."""
    library = Path(folder) / "libcuda.so.1"
    compiler = shutil.which("c++") or shutil.which("g++")
    if compiler is None:
        pytest.skip("There is no C++ compiler.")
    command = [compiler, "-std=c++20", "-O1", "-fPIC", "-shared", "-Wl,-soname,libcuda.so.1"]
    command += ["-Icsrc", "-Itests/cpp", *SOURCES, "-o", str(library)]
    subprocess.run(command, cwd=ROOT, check=True)
    return library


class FakeCuda:
    """What the driver has been asked for, and what it was found at."""

    def __init__(self, library):
        self._library = ctypes.CDLL(str(library))
        for name in ("count", "faults", "stream", "waits_of", "records_of"):
            getattr(self._library, f"fake_cuda_{name}").restype = ctypes.c_uint64
        self.current_stream = 0
        self.blocks = []  # Addresses of what was allocated, in order.
        self.handed_over = []
        self.allocated = []  # References to those blocks, which die with them.

    def count(self, call):
        return self._library.fake_cuda_count(call.encode())

    def stream(self, device=0):
        """Return the handle of a new stream of a device."""
        return self._library.fake_cuda_stream(device)

    def waits_of(self, stream):
        """Return how many events a stream was made to wait for."""
        return self._library.fake_cuda_waits_of(ctypes.c_void_p(stream))

    def records_of(self, stream):
        """Return how many events were recorded on a stream."""
        return self._library.fake_cuda_records_of(ctypes.c_void_p(stream))

    def finish(self):
        """Let every stream come to its end."""
        self._library.fake_cuda_finish()

    @property
    def faults(self):
        return self._library.fake_cuda_faults()

    def calls_of(self, run, calls):
        """Return how often `run` makes each of these calls."""
        before = {call: self.count(call) for call in calls}
        run()
        return {call: self.count(call) - before[call] for call in calls}


def stand_in(fake):
    """Return memory of a device that is the host's."""

    class HostMemory:
        dlpack_device = (1, 0)

        def __init__(self, index, stream):
            self.device = torch.device("cpu")
            self.index = index
            self.stream = stream

        def allocate(self, num_bytes):
            block = torch.empty(num_bytes, dtype=torch.uint8)
            fake.blocks.append(block.data_ptr())
            fake.allocated.append(weakref.ref(block))
            return block

        def current_stream(self):
            return fake.current_stream

        def hand_over(self, block):
            fake.handed_over.append(block.data_ptr())

    return HostMemory


def pretend(monkeypatch, fake):
    """Let the package take devices of `fake` for those of torch."""

    def as_device(_, device):
        return torch.device("cuda", device) if isinstance(device, int) else torch.device(device)

    def index_of(device):
        return device.index or 0

    for module in (cuda, device_memory, device_target, loader_checks, start_producers):
        for name, value in [("as_device", as_device), ("index_of", index_of)]:
            if hasattr(module, name):
                monkeypatch.setattr(module, name, value)
    monkeypatch.setattr(device_target, "DeviceMemory", stand_in(fake))
