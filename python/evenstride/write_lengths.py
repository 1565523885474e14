"""Lengths of any number of samples, from files into one file."""

from __future__ import annotations

import shlex
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, SupportsIndex

from evenstride.drafts import draft_of
from evenstride.gather_lengths import FileLengths, gather_lengths
from evenstride.length_files import find_files
from evenstride.open_lengths import check_unchanged, open_lengths, stamps_of
from evenstride.options import as_num_threads

if TYPE_CHECKING:
    import os

    from evenstride.gather_lengths import RowProgress
    from evenstride.length_files import Paths

__all__ = ["WrittenLengths", "write_lengths"]

_LEAST_BUDGET = 16_384
_BUDGET_END = 2**63


@dataclass(frozen=True)
class WrittenLengths:
    """What :func:`write_lengths` has written.

    Attributes
    ----------
    output : str
        The file.
    samples, tokens : int
        How many lengths there are, and what they sum up to.
    shortest, longest : int or None
        The least and the greatest length; None if there are no samples.
    dtype : str
        Their type: "uint16", "uint32" or "uint64".
    files : int
        How many files or folders they are from.
    seconds : float
        How long it took.
    rows_per_second : float
        Samples by these seconds.

    """

    output: str
    samples: int
    tokens: int
    shortest: int | None
    longest: int | None
    dtype: str
    files: int
    seconds: float
    rows_per_second: float

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON."""
        return asdict(self)

    def table(self) -> str:
        """Return them as text, and which command may come next."""
        facts = {
            "samples": f"{self.samples:,}",
            "tokens": f"{self.tokens:,}",
            "shortest": "-" if self.shortest is None else f"{self.shortest:,}",
            "longest": "-" if self.longest is None else f"{self.longest:,}",
            "type": self.dtype,
            "files": f"{self.files:,}",
            "seconds": f"{self.seconds:.1f}",
            "rows a second": f"{self.rows_per_second:,.0f}",
        }
        width = max(map(len, facts))
        lines = [f"{name:{width}}  {value}" for name, value in facts.items()]
        if self.longest is None:
            return "\n".join(lines)
        budget = max(_LEAST_BUDGET, 1 << (8 * self.longest - 1).bit_length())
        if budget >= _BUDGET_END:
            return "\n".join(lines)
        command = f"evenstride tune {shlex.quote(self.output)} --token-budget {budget}"
        return "\n".join([*lines, "", f"Next: {command}"])


def write_lengths(
    source: Paths,
    output: str | os.PathLike[str],
    *,
    key: str | None = None,
    column: str | None = None,
    counts: bool = False,
    num_threads: SupportsIndex | None = None,
    progress: RowProgress | None = None,
) -> WrittenLengths:
    """Write the lengths that files hold, or those of the rows in them, to one .npy file.

    The file appears once it is whole. Lengths are in the order of the files as they are given, and
    of their rows. They are not held in memory, but for those of text, of an .npz file and of a
    Hugging Face folder with an indices mapping.

    Parameters
    ----------
    source, key, column, counts
        As :func:`evenstride.read_lengths.read_lengths` takes them.
    output : path-like
        Must end in ``.npy``, and be none of the files that are read. Its type is uint16 where all
        lengths are below 65,536, else uint32 or uint64.
    num_threads : int, optional
        Threads to read with. By default as many as there are processors, up to 4.
    progress : callable, optional
        Is called with how many lengths have been read, and of how many, several times a second.

    Returns
    -------
    WrittenLengths

    Raises
    ------
    ImportError
        If pyarrow is missing for a Parquet or Arrow file.
    OSError
        If a file cannot be read or written.
    TypeError, ValueError
        If a file does not hold what it should, or changes meanwhile; the message names it, and the
        line or row.

    Examples
    --------
    >>> import numpy as np, pyarrow as pa, pyarrow.parquet, tempfile
    >>> folder = tempfile.mkdtemp()
    >>> for number, rows in enumerate([[[7, 8], [9]], [[], [1, 2, 3]]]):
    ...     pa.parquet.write_table(pa.table({"input_ids": rows}), f"{folder}/{number}.parquet")
    >>> written = write_lengths(folder, f"{folder}/lengths.npy")
    >>> written.samples, written.tokens, written.dtype
    (4, 6, 'uint16')
    >>> np.load(written.output, mmap_mode="r")
    memmap([2, 1, 0, 3], dtype=uint16)

    """
    begin = time.perf_counter()
    path = Path(output)
    if path.suffix != ".npy":
        msg = f"`output` must end in .npy, but is `{path}`."
        raise ValueError(msg)
    threads = as_num_threads(num_threads)
    files = find_files(source)
    stamps = stamps_of(files)
    sources = open_lengths(files, key=key, column=column, counts=counts, num_threads=threads)
    if path.exists() and any(path.samefile(file) for file in stamps):
        msg = f"`output` must be another file than the samples', but is `{path}`."
        raise ValueError(msg)
    num_rows = sum(found.num_rows for found in sources)
    with draft_of(path) as draft:
        try:
            with FileLengths(draft, num_rows) as lengths:
                gather_lengths(sources, lengths, num_threads=threads, progress=progress)
                check_unchanged(stamps)
        except OSError as error:
            if error.filename is None or str(error.filename).startswith(str(draft)):
                error.filename = str(path)  # Nobody has asked for a draft.
            raise
    seconds = time.perf_counter() - begin
    return WrittenLengths(
        str(path),
        num_rows,
        lengths.tokens,
        lengths.shortest if num_rows else None,
        lengths.longest if num_rows else None,
        lengths.dtype.name,
        len(sources),
        seconds,
        num_rows / seconds,
    )
