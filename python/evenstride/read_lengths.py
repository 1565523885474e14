"""Lengths from the files and folders that people keep them in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, SupportsIndex

from evenstride.gather_lengths import MemoryLengths, gather_lengths
from evenstride.length_files import are_paths, find_files
from evenstride.open_lengths import check_unchanged, open_lengths, stamps_of
from evenstride.options import as_num_threads
from evenstride.read_columns import column_in
from evenstride.sources_arrow import column_lengths, schema_of

if TYPE_CHECKING:
    from evenstride.lengths import LengthArray

__all__ = ["read_lengths"]


def read_lengths(
    source: Any,
    *,
    key: str | None = None,
    column: str | None = None,
    counts: bool = False,
    num_threads: SupportsIndex | None = None,
) -> LengthArray:
    r"""Return the lengths that a file or folder holds, or those of the rows in it. Needs no torch.

    Parameters
    ----------
    source : path-like, list of path-like, or what holds Arrow columns
        A ``.npy`` file, which is memory-mapped, or an ``.npz`` file; a Parquet or Arrow file
        (``.parquet``, ``.pq``, ``.arrow``, ``.feather``, ``.ipc``), or a folder that Hugging Face's
        ``save_to_disk`` wrote; a folder that ``RaggedDataset.save`` wrote; an ``.idx`` file of
        Megatron, or the prefix of one; or, whatever else its suffix, text: one integer a line, or
        columns with or without a header. ``"-"`` is text from the standard input. Empty lines and
        lines that begin with ``#`` are skipped. JSON is not read; convert it to Parquet.

        Of several, the lengths come one after the other, in this order. Any other folder stands
        for the Parquet, Arrow or .idx files at any depth in it, or else .npy, .npz or text files,
        sorted by their paths as text ("part-10" comes before "part-2"), without those whose names
        begin with "." or "_". A pattern such as ``"corpus/*.parquet"`` stands for what it
        matches, sorted alike.

        A pyarrow Table, RecordBatch or array, or a Hugging Face Dataset, is read in memory.
    key : str, optional
        Which array of an ``.npz`` file. Needed if it has several.
    column : str, optional
        Which column of a text file: its name in the header, or its number from 0. By default the
        only one, or the one named "length" or "lengths". Which column of a Parquet or Arrow file:
        one of lists, whose lengths are meant, or one of integers, which are lengths. By default the
        only one of lists, else the one named "input_ids", "length" or "lengths"; of several files,
        the same. Which field of a saved folder: by default the first that is ragged.
    counts : bool, default False
        A text file is a histogram: the column "count" or "counts", else the one after the lengths,
        says how many samples have the length. The lengths come in the order of the lines.
    num_threads : int, optional
        Threads to read with. By default as many as there are processors, up to 4.

    Returns
    -------
    ndarray of int, shape (n_samples,)
        What is not an array already is in the narrowest of uint16, uint32 and uint64.
        :func:`evenstride.write_lengths.write_lengths` writes more than memory holds to a file.

    Raises
    ------
    ImportError
        If pyarrow is missing for a Parquet or Arrow file.
    OSError
        If the file cannot be read.
    TypeError, ValueError
        If it does not hold what it should; the message names the line or row.

    Warns
    -----
    UserWarning
        If a text file looks like a histogram, and `counts` is False.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp(), "histogram.csv")
    >>> _ = path.write_text("length,count\n40,2\n41,3\n")
    >>> read_lengths(path, counts=True).tolist()
    [40, 40, 41, 41, 41]

    """
    if not are_paths(source):
        for name, given in (("key", key), ("counts", counts)):
            if given:
                msg = f"`{name}` must be left out for a {type(source).__name__}."
                raise ValueError(msg)
        chosen = column_in(schema_of(source), "source", column)
        return column_lengths(source, chosen.name)
    threads = as_num_threads(num_threads)
    files = find_files(source)
    stamps = stamps_of(files)
    sources = open_lengths(files, key=key, column=column, counts=counts, num_threads=threads)
    if len(sources) == 1 and sources[0].array is not None:
        check_unchanged(stamps)
        return sources[0].array
    lengths = MemoryLengths(sum(found.num_rows for found in sources))
    gather_lengths(sources, lengths, num_threads=threads)
    check_unchanged(stamps)
    return lengths.array
