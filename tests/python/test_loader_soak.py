"""A short run of what `make soak` runs for long."""

from __future__ import annotations

import pytest

from loader_soak import Soak


@pytest.mark.parametrize("seed", range(3))
def test_loaders_under_random_use_yield_what_they_should(seed):
    soak = Soak(seed)
    soak.run(1500)
    assert soak.batches >= 1500
