"""Runs `ray_lengths.py` on a local Ray, and compares all it writes with plain Python.

python examples/check_ray_lengths.py [--rows 100000]
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from ray_lengths import FIELD, open_chunks

NUM_FILES = 7
NUM_BLOCKS = 21


def write_corpus(folder: Path, num_rows: int) -> list[str]:
    """Write texts of words into Parquet files, and return them in their order."""
    random.seed(0)
    words = ["a", "stride", "of", "buckets", "größer", "长度", ""]
    texts = [" ".join(random.choices(words, k=random.randrange(80))) for _ in range(num_rows)]
    folder.mkdir()
    step = -(-num_rows // NUM_FILES)
    for number in range(NUM_FILES):
        table = pa.table({"text": texts[number * step : (number + 1) * step]})
        parquet.write_table(table, folder / f"{number}.parquet", row_group_size=1000)
    return texts


def check(output: Path, texts: list[str]) -> int:
    """Compare each row and each length, and return the number of chunks."""
    expected = [text.encode() for text in texts]
    lengths = [len(row) for row in expected]
    assert np.load(output / "lengths.npy").tolist() == lengths
    parts = [np.load(part) for part in sorted(output.glob("lengths/*.npy"))]
    assert np.concatenate(parts).tolist() == lengths
    ds = open_chunks(output)
    assert ds.lengths.tolist() == lengths
    assert all(bytes(ds[i][FIELD].tolist()) == row for i, row in enumerate(expected))
    assert all(chunk.name.isdecimal() for chunk in output.glob("chunks/*"))
    return len(parts)


def main() -> None:
    """Make a corpus, run the script twice, and check what it has written."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rows", type=int, default=100_000)
    rows = parser.parse_args().rows
    script = Path(__file__).with_name("ray_lengths.py")
    with tempfile.TemporaryDirectory() as folder:
        corpus = Path(folder, "corpus")
        texts = write_corpus(corpus, rows)
        for run in ("first", "second"):
            output = Path(folder, run)
            begin = time.perf_counter()
            command = [sys.executable, str(script), str(corpus), str(output)]
            subprocess.run([*command, "--blocks", str(NUM_BLOCKS)], check=True)
            seconds = time.perf_counter() - begin
            chunks = check(output, texts)
            assert chunks == NUM_BLOCKS
            print(f"{run} run: {rows:,} rows in {chunks} chunks are right; {seconds:.0f} s")
    versions = ", ".join(f"{name} {version(name)}" for name in ("ray", "pyarrow", "numpy"))
    print(f"Python {sys.version.split()[0]}, {versions}")


if __name__ == "__main__":
    main()
