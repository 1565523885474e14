"""Open and read a Megatron data set of 20 GB: the seconds it takes, and the memory it does not.

The ``.bin`` is sparse, so that it takes no room on the disk; what is read of it is zeros, which the
page cache holds as it would hold anything else.
"""

from __future__ import annotations

import argparse
import os
import struct
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import evenstride as es
from harness import MAX_BATCH_SIZE, TOKEN_BUDGET, memory_mib

ROWS = 7_000_000
BATCHES = 25_000
WARM_UP = 1_000
REACH_S = 1.0
REACH_MIB = 32.0
"""Memory that may be added by all batches beyond the warm-up."""


def write(prefix: Path, num_rows: int) -> int:
    """Write a data set of int32 rows of 200 to 1,228 tokens; return the bytes of its ``.bin``."""
    sizes = np.random.default_rng(0).integers(200, 1_229, num_rows, dtype=np.int32)
    starts = np.zeros(num_rows, np.int64)
    np.cumsum(4 * sizes[:-1].astype(np.int64), out=starts[1:])
    num_bytes = int(starts[-1]) + 4 * int(sizes[-1])
    with prefix.with_suffix(".bin").open("wb") as file:
        file.truncate(num_bytes)
    with prefix.with_suffix(".idx").open("wb") as file:
        file.write(b"MMIDIDX\x00\x00" + struct.pack("<QBQQ", 1, 4, num_rows, num_rows + 1))
        for numbers in (sizes, starts, np.arange(num_rows + 1, dtype=np.int64)):
            numbers.tofile(file)
    return num_bytes


def forget(path: Path) -> None:
    """Take a file out of the page cache."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def seconds_to_open(prefix: Path) -> float:
    """Return how long it takes to open a data set."""
    start = time.perf_counter()
    es.RaggedDataset.from_megatron(prefix)
    return time.perf_counter() - start


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=ROWS, help="of the data set")
    parser.add_argument("--batches", type=int, default=BATCHES, help="to read")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        prefix = Path(folder) / "large"
        num_bytes = write(prefix, arguments.rows)
        seconds_to_open(prefix)  # Imports too.
        cached = [seconds_to_open(prefix) for _ in range(5)]
        fresh = []
        for _ in range(5):
            forget(prefix.with_suffix(".idx"))
            fresh.append(seconds_to_open(prefix))
        print(f"{arguments.rows:,} rows, {num_bytes / 1e9:.1f} GB")
        for name, seconds in (("with", cached), ("without", fresh)):
            print(
                f"opens in {1e3 * min(seconds):.0f} to {1e3 * max(seconds):.0f} ms {name} the "
                "index in the page cache"
            )
        ds = es.RaggedDataset.from_megatron(prefix)
        sampler = es.BucketBatchSampler(
            ds.lengths, token_budget=TOKEN_BUDGET, max_batch_size=MAX_BATCH_SIZE
        )
        before, largest = 0.0, 0.0
        with es.Loader(ds, sampler, es.PadCollator({"input_ids": es.Field()})) as loader:
            for number, _ in zip(range(arguments.batches), loader, strict=False):
                if number % 1_000 == 0:
                    largest = max(largest, memory_mib())
                if number <= WARM_UP:
                    before = largest
        print(f"{arguments.batches:,} batches: {before:.0f} MiB of its own, then {largest:.0f}")
    return int(max(cached + fresh) > REACH_S or largest - before > REACH_MIB)


if __name__ == "__main__":
    sys.exit(main())
