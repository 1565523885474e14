"""What all tests share: how hypothesis runs, and the real lengths."""

from __future__ import annotations

import pytest
from hypothesis import settings

from support import real_lengths

settings.register_profile("evenstride", deadline=None, max_examples=60, print_blob=True)
settings.load_profile("evenstride")


@pytest.fixture(scope="session")
def lengths():
    """902,087 lengths, in a fixed random order."""
    return real_lengths()
