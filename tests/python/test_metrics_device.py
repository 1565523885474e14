"""Numbers that stay on a device: when a meter waits for them."""

from __future__ import annotations

import pytest
import torch
from torch.utils import _pytree as pytree

import evenstride as es

NUM_STEPS = 600
READS = []


class DeviceTensor(torch.Tensor):
    """Says that it is on a device, and notes when it is copied to the host."""

    @staticmethod
    def __new__(cls, data):
        return torch.Tensor._make_wrapper_subclass(cls, data.shape, dtype=data.dtype, device="cuda")

    def __init__(self, data):
        self.data_ = data

    def __repr__(self):
        return "on a device"

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        args, kwargs = pytree.tree_map_only(cls, lambda one: one.data_, (args, kwargs or {}))
        result = func(*args, **kwargs)
        if func is torch.ops.aten._to_copy.default and kwargs["device"].type == "cpu":
            READS.append(tuple(result.shape))
            return result
        assert func is not torch.ops.aten._local_scalar_dense.default
        return pytree.tree_map_only(torch.Tensor, cls, result)


@pytest.fixture
def meter():
    READS.clear()
    return es.metrics.BatchMeter(es.plan_epoch([4] * NUM_STEPS, token_budget=4))


def on_device(value, dtype=torch.float32):
    return DeviceTensor(torch.tensor(value, dtype=dtype))


def test_updates_wait_for_no_device(meter):
    for step in range(100):
        meter.update(step, loss=on_device(step), grad_norm=on_device(2.0))
    assert READS == []
    total = meter.figures().total
    assert (total.loss.mean, total.grad_norm.mean) == (49.5, 2)
    assert READS == [(100,), (100,)]


def test_numbers_of_different_types_are_read_together(meter):
    for step in range(100):
        loss = on_device(step, torch.bfloat16) if step % 2 else on_device(step, torch.float64)
        meter.update(step, loss=loss)
    assert meter.figures().total.loss.mean == 49.5
    assert READS == [(50,), (50,)]


def test_few_numbers_are_kept_on_a_device(meter):
    for step in range(NUM_STEPS):
        meter.update(step, loss=on_device(step))
    assert READS == [(256,), (256,)]


def test_a_tensor_may_change_after_the_update(meter):
    loss = on_device(3.0)
    meter.update(0, loss=loss)
    loss.data_.fill_(9)
    assert meter.figures().total.loss.mean == 3


def test_updates_are_kept_where_a_device_fails(meter, monkeypatch):
    for step in range(5):
        meter.update(step, loss=on_device(step))

    def fail(tensors):
        raise RuntimeError(len(tensors))

    with monkeypatch.context() as patch:
        patch.setattr(torch, "stack", fail)
        with pytest.raises(RuntimeError, match=r"^5$"):
            meter.figures()
    assert meter.figures().total.loss.mean == 2


def test_whole_numbers_of_a_device_are_read_as_floats(meter):
    meter.update(0, loss=on_device(2, torch.int64))
    assert type(meter.state_dict()["window"][0][9]) is float


def test_complex_numbers_on_a_device_are_refused(meter):
    message = r"^`loss` must be a real number or a tensor of one, but is on a device\.$"
    with pytest.raises(TypeError, match=message):
        meter.update(0, loss=on_device(1j, torch.complex64))
