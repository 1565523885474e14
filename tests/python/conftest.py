"""What all tests share: how hypothesis runs, and the real lengths."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import settings

from device_support import FakeCuda, build_driver, pretend
from evenstride import _core
from plan_cache_support import count_made
from support import real_lengths

settings.register_profile("evenstride", deadline=None, max_examples=60, print_blob=True)
settings.load_profile("evenstride")


@pytest.fixture(scope="session")
def lengths():
    """902,087 lengths, in a fixed random order."""
    return real_lengths()


@pytest.fixture
def npy(tmp_path):
    """Return the path of a file with few lengths, for a command."""
    from command_support import LENGTHS  # noqa: PLC0415 - It skips where an extra is missing.

    path = tmp_path / "lengths.npy"
    np.save(path, LENGTHS)
    return str(path)


@pytest.fixture
def no_columns(monkeypatch):
    """Let output be as wide and as plain as it is by itself."""
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.delenv("FORCE_COLOR", raising=False)


@pytest.fixture(scope="module")
def one_thread():
    """Let torch compute in one thread: with small models, more only wait for each other."""
    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(num_threads)


@pytest.fixture
def records(tmp_path, monkeypatch):
    """Let the model of framework jobs record what it is trained on in the test's own folder."""
    monkeypatch.setenv("EVENSTRIDE_RECORD", str(tmp_path))


@pytest.fixture
def made(monkeypatch):
    """Return a list that gets the epochs that are planned, and "settlement" where one is made."""
    return count_made(monkeypatch)


@pytest.fixture(scope="session")
def fake_driver(tmp_path_factory):
    """Load a driver that pretends, before the package looks for one."""
    if _core.cuda_compiler is None:
        pytest.skip("The package was built without a CUDA compiler.")
    return FakeCuda(build_driver(tmp_path_factory.mktemp("driver")))


@pytest.fixture
def fake_cuda(fake_driver, monkeypatch):
    """Let the package use that driver, and see that it finds no fault."""
    pretend(monkeypatch, fake_driver)
    fake_driver.current_stream = 0
    fake_driver.blocks.clear()
    fake_driver.handed_over.clear()
    fake_driver.allocated.clear()
    faults = fake_driver.faults
    yield fake_driver
    fake_driver.finish()
    assert fake_driver.faults == faults
