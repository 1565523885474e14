"""What the benchmarks of large data sets share: lengths, fresh processes, and their peak memory."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from harness import HISTOGRAM, RESULTS, argument_parser

if TYPE_CHECKING:
    import argparse

    from numpy.typing import NDArray

SIZES = (1_000_000, 10_000_000, 100_000_000, 1_000_000_000)

_BLOCK = 1 << 20
_DEFAULT_SIZE = 10_000_000
_QUICK_SIZE = 100_000
_CLEAR_PEAK = "5"
"""What the kernel takes for "the peak is what is resident now", see proc(5), clear_refs."""


# --------------------------------------------------------------------------- sizes and lengths


def write_lengths(path: Path, num_samples: int, *, seed: int = 0) -> None:
    """Draw lengths from the histogram, by its inverse, a block at a time, into a .npy file."""
    table = np.loadtxt(HISTOGRAM, delimiter=",", skiprows=1, dtype=np.int64)
    inverse = np.repeat(table[:, 0].astype(np.uint16), table[:, 1])
    rng = np.random.default_rng(seed)
    lengths = np.lib.format.open_memmap(path, "w+", np.uint16, (num_samples,))
    for first in range(0, num_samples, _BLOCK):
        block = lengths[first : first + _BLOCK]
        block[:] = inverse[rng.integers(0, inverse.size, block.size, dtype=np.uint32)]
    lengths.flush()


def mapped_lengths(path: Path) -> NDArray[np.uint16]:
    """Return those lengths, with every page of the file mapped and read once."""
    lengths: NDArray[np.uint16] = np.load(path, mmap_mode="r")
    for first in range(0, lengths.size, _BLOCK):
        lengths[first : first + _BLOCK].max()
    return lengths


def sized_parser(description: str | None, name: str, full_size: int) -> argparse.ArgumentParser:
    """Return a parser of the options that a benchmark has which goes up to a size."""
    parser = argument_parser(description, name)
    parser.add_argument(
        "--samples",
        type=int,
        default=_DEFAULT_SIZE,
        help=f"the most (default: {_DEFAULT_SIZE}; the full size is {full_size}; with another, "
        "results go nowhere by default)",
    )
    parser.add_argument("--folder", type=Path, help="where lengths are written for a while")
    return parser


def parse_sized(parser: argparse.ArgumentParser, name: str, full_size: int) -> argparse.Namespace:
    """Return the options; `json` is None unless it was given or the size is full."""
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.samples = min(arguments.samples, _QUICK_SIZE)
    if arguments.json is None and arguments.samples == full_size:
        arguments.json = RESULTS / f"{name}.json"
    return arguments


def sizes_up_to(num_samples: int) -> list[int]:
    """Return the sizes of the tables below a number of samples, and that number."""
    return [size for size in SIZES if size < num_samples] + [num_samples]


# --------------------------------------------------------------------------- processes


def in_process(script: str, *arguments: object) -> Any:
    """Run a script of this folder in a fresh process; return the JSON that it prints last."""
    command = [sys.executable, script_of(script), *map(str, arguments)]
    done = subprocess.run(  # noqa: S603 - A script of this folder.
        command, stdout=subprocess.PIPE, text=True, check=True
    )
    return json.loads(done.stdout.splitlines()[-1])


def script_of(name: str) -> str:
    """Return the path of a script of this folder."""
    return str(Path(__file__).with_name(name))


def say(text: str) -> None:
    """Tell those who wait what is measured now."""
    print(text, file=sys.stderr, flush=True)


# --------------------------------------------------------------------------- memory


class Peak:
    """The most memory that this process holds at once, from now on, beyond what it holds now.

    The kernel keeps the peak of what is resident, and sets it back on request, so that no moment is
    missed. Pages of files that are mapped by then are no part of it, wherever they are by the end.
    """

    def __init__(self) -> None:
        gc.collect()
        Path("/proc/self/clear_refs").write_text(_CLEAR_PEAK, encoding="utf-8")
        self._before = _status()

    def bytes(self) -> int:
        """Return the peak so far."""
        now = _status()
        given_back = max(0, self._before["RssFile"] - now["RssFile"])
        return now["VmHWM"] - self._before["VmRSS"] + given_back


def _status() -> dict[str, int]:
    """Return the sizes in /proc/self/status, in bytes."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    fields = (line.replace(":", "").split() for line in lines if line.endswith(" kB"))
    return {name: 1024 * int(size) for name, size, _ in fields}
