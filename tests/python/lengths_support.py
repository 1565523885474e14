"""What the tests of written lengths share."""

from __future__ import annotations

import re

import numpy as np
import pytest

from evenstride.read_lengths import read_lengths
from evenstride.write_lengths import write_lengths


def written(source, output, **options):
    """Return what is in the file, which must be what the summary says and what is read at once."""
    summary = write_lengths(source, output, **options)
    lengths = np.load(summary.output)
    assert (summary.samples, summary.dtype) == (len(lengths), lengths.dtype.name)
    assert summary.tokens == int(lengths.sum())
    assert summary.shortest == (int(lengths.min()) if len(lengths) else None)
    assert summary.longest == (int(lengths.max()) if len(lengths) else None)
    assert read_lengths(source, **options).tolist() == lengths.tolist()
    assert [file.name for file in output.parent.iterdir() if file.name.startswith(".")] == []
    return lengths


def refuses(kind, message, source, output, **options):
    with pytest.raises(kind, match=f"^{re.escape(message)}$"):
        write_lengths(source, output, **options)
    assert not output.exists()
    assert [file.name for file in output.parent.iterdir() if file.name.startswith(".")] == []
