"""What the device path asks of torch, with a torch that only notes it."""

from __future__ import annotations

import contextlib
import re
import warnings
from types import SimpleNamespace

import pytest
import torch

from collate_support import whole
from evenstride import _core, device_memory
from evenstride.device_memory import DeviceMemory, as_device, index_of


class FakeTorch:
    """Streams as names, and notes of what is done on which."""

    def __init__(self, monkeypatch):
        self.current = SimpleNamespace(cuda_stream=7)
        self.notes = []
        monkeypatch.setattr(torch.cuda, "ExternalStream", self.external)
        monkeypatch.setattr(torch.cuda, "stream", self.on)
        monkeypatch.setattr(torch.cuda, "current_stream", self.current_stream)
        monkeypatch.setattr(torch, "empty", self.empty)

    def external(self, handle, device):
        return SimpleNamespace(cuda_stream=handle, device=device)

    @contextlib.contextmanager
    def on(self, stream):
        before, self.current = self.current, stream
        yield
        self.current = before

    def current_stream(self, device):
        self.notes.append(("current_stream", device))
        return self.current

    def empty(self, num_bytes, **options):
        return SimpleNamespace(
            num_bytes=num_bytes,
            options=options,
            stream=self.current.cuda_stream,
            record_stream=lambda stream: self.notes.append(("record", stream.cuda_stream)),
        )


@pytest.fixture
def fake_torch(monkeypatch):
    return FakeTorch(monkeypatch)


def test_memory_is_allocated_on_the_stream_that_writes_it(fake_torch):
    memory = DeviceMemory(1, 42)
    block = memory.allocate(100)
    assert (block.num_bytes, block.stream) == (100, 42)
    assert block.options == {"dtype": torch.uint8, "device": torch.device("cuda", 1)}
    assert fake_torch.current.cuda_stream == 7


def test_the_consumers_current_stream_is_the_one_of_that_device(fake_torch):
    assert DeviceMemory(1, 42).current_stream() == 7
    assert fake_torch.notes == [("current_stream", torch.device("cuda", 1))]


def test_torch_is_told_that_the_consumers_stream_uses_a_block(fake_torch):
    memory = DeviceMemory(0, 42)
    memory.hand_over(memory.allocate(1))
    assert fake_torch.notes[-1] == ("record", 7)


@pytest.mark.usefixtures("fake_torch")
def test_dlpack_calls_the_device_by_its_number():
    assert DeviceMemory(3, 42).dlpack_device == (2, 3)


def test_the_device_without_a_number_is_the_current_one(monkeypatch):
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 5)
    assert index_of(torch.device("cuda")) == 5
    assert index_of(torch.device("cuda:1")) == 1


@pytest.fixture
def two_devices(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)


@pytest.mark.usefixtures("two_devices")
def test_a_device_beyond_the_last_is_named():
    message = "`device` must be a CUDA device in [0, 2), but is cuda:2."
    with pytest.raises(ValueError, match=whole(message)):
        as_device("device", "cuda:2")
    assert as_device("device", "cuda:1") == torch.device("cuda:1")
    assert as_device("device", "cuda") == torch.device("cuda")


@pytest.mark.parametrize(
    ("device", "kind", "message"),
    [
        ("gpu", ValueError, "`targets[1]` must be a device that torch knows, but is 'gpu'."),
        (1.5, TypeError, "`targets[1]` must be a device that torch knows, but is 1.5."),
        (
            0,
            ValueError,
            (
                "`targets[1]` must be a device that this torch has, but is 0. It is built without "
                "CUDA."
            ),
        ),
        ("mps", ValueError, "`targets[1]` must be a device that this torch has, but is mps."),
    ],
)
@pytest.mark.skipif(torch.cuda.is_available(), reason="needs no CUDA")
def test_says_which_device_there_is_not(device, kind, message):
    with pytest.raises(kind, match=whole(message)):
        as_device("targets[1]", device)


def test_a_driver_that_is_missing_is_what_is_said(monkeypatch):
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(_core, "driver_error", lambda: "There is none.")
    with pytest.raises(ValueError, match=re.escape("but is cuda. There is none.")):
        as_device("device", "cuda")
    monkeypatch.setattr(_core, "driver_error", lambda: None)
    with pytest.raises(ValueError, match=re.escape("but is cuda. It finds no CUDA device.")):
        as_device("device", "cuda")


def test_warnings_point_at_the_code_that_uses_the_package(monkeypatch):
    monkeypatch.setattr(device_memory, "_said", set())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        device_memory.say_fallback(torch.device("mps"), "of a reason")
        device_memory.say_fallback(torch.device("mps"), "of a reason")
    (warning,) = caught
    assert warning.filename == __file__
