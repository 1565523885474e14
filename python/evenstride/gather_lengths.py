"""Lengths of many pieces put one after the other by threads, into memory or a file."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from evenstride.length_sources import LengthSource, Piece

__all__ = ["FileLengths", "MemoryLengths", "RowProgress", "changed", "gather_lengths"]

RowProgress: TypeAlias = "Callable[[int, int], object]"
"""Called in the calling thread, with how many lengths have been read, and of how many."""

_END = 2**63
_COPY_BYTES = 1 << 23  # A multiple of the bytes of every type.
_BETWEEN_LOOKS_S = 0.1


class _Output(Protocol):
    is_stopped: bool

    def put(self, start: int, lengths: NDArray[Any]) -> None:
        """Write lengths, all in [0, 2**63), from `start` on."""


class _Stopped(Exception):  # noqa: N818 - Nothing that anyone sees.
    pass


class MemoryLengths:
    """Lengths in memory, in the narrowest unsigned type of at least 16 bits that holds them."""

    def __init__(self, num_rows: int) -> None:
        self.array: NDArray[Any] = np.empty(num_rows, np.uint16)
        self.is_stopped = False
        self._lock = threading.Lock()

    def put(self, start: int, lengths: NDArray[Any]) -> None:
        """Write lengths from `start` on."""
        dtype = np.promote_types(np.uint16, np.min_scalar_type(int(lengths.max())))
        with self._lock:
            if dtype.itemsize > self.array.itemsize:
                self.array = self.array.astype(dtype)
            self.array[start : start + len(lengths)] = lengths


class FileLengths:
    """Lengths in a new .npy file, in that type, of which no more than a piece is in memory.

    A context manager, which closes the file.

    Attributes
    ----------
    dtype : numpy.dtype
        The type so far.
    tokens, shortest, longest : int
        What they sum up to, the least and the greatest so far.

    """

    def __init__(self, path: Path, num_rows: int) -> None:
        self.dtype = np.dtype(np.uint16)
        self.tokens, self.shortest, self.longest = 0, _END, -1
        self.is_stopped = False
        self._path = path
        self._num_rows = num_rows
        self._lock = threading.Lock()
        self._file, self._begin = self._created(path, self.dtype)

    def __enter__(self) -> FileLengths:  # noqa: PYI034 - Of no subclass.
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def _created(self, path: Path, dtype: np.dtype[Any]) -> tuple[BinaryIO, int]:
        file = path.open("x+b")
        header = {
            "descr": np.lib.format.dtype_to_descr(dtype.newbyteorder("<")),
            "fortran_order": False,
            "shape": (self._num_rows,),
        }
        np.lib.format.write_array_header_1_0(file, header)
        return file, file.tell()

    def put(self, start: int, lengths: NDArray[Any]) -> None:
        """Write lengths from `start` on."""
        tokens = int(lengths.sum(dtype=np.uint64))
        shortest, longest = int(lengths.min()), int(lengths.max())
        dtype = np.promote_types(np.uint16, np.min_scalar_type(longest))
        with self._lock:
            if dtype.itemsize > self.dtype.itemsize:
                self._widen(dtype)
            self._file.seek(self._begin + start * self.dtype.itemsize)
            self._file.write(_raw(lengths, self.dtype))
            self.tokens += tokens
            self.shortest = min(self.shortest, shortest)
            self.longest = max(self.longest, longest)

    def _widen(self, dtype: np.dtype[Any]) -> None:
        """Copy what has been written, and what has not, into a file of a wider type."""
        wider = self._path.with_name(f"{self._path.name}.{dtype.name}")
        try:
            file, begin = self._created(wider, dtype)
            with file:
                self._file.seek(self._begin)
                while cells := self._file.read(_COPY_BYTES):
                    if self.is_stopped:
                        raise _Stopped
                    array = np.frombuffer(cells, self.dtype.newbyteorder("<"))
                    file.write(_raw(array, dtype))
            self._file.close()
            wider.replace(self._path)
        finally:
            wider.unlink(missing_ok=True)
        self._file, self._begin, self.dtype = self._path.open("r+b"), begin, dtype


def _raw(lengths: NDArray[Any], dtype: np.dtype[Any]) -> memoryview:
    return lengths.astype(dtype.newbyteorder("<"), order="C").view(np.uint8).data


def gather_lengths(
    sources: Sequence[LengthSource],
    output: _Output,
    *,
    num_threads: int,
    progress: RowProgress | None = None,
) -> None:
    """Read all sources, in order, with so many threads.

    Where several pieces are wrong, it is the first whose error is raised. An exception, such as
    one of Ctrl-C, stops the threads after what they read at once.

    Raises
    ------
    TypeError, ValueError
        If a length is none; the message names the file and the row.

    """
    jobs, start = [], 0
    for source in sources:
        first_row = 0
        for piece in source.pieces:
            jobs.append((source, piece, start, first_row))
            start += piece.num_rows
            first_row += piece.num_rows
    work = _Work(jobs, output)
    with ThreadPoolExecutor(min(num_threads, max(1, len(jobs)))) as pool:
        try:
            waiting = {pool.submit(work.run) for _ in range(min(num_threads, len(jobs)))}
            while waiting:
                _, waiting = wait(waiting, _BETWEEN_LOOKS_S)
                if progress is not None:
                    progress(work.done, start)
        finally:
            work.stop()
    if work.error is not None:
        raise work.error


class _Work:
    """Pieces that threads take one by one."""

    def __init__(self, jobs: list[tuple[LengthSource, Piece, int, int]], output: _Output) -> None:
        self.done = 0
        self.error: BaseException | None = None
        self._jobs = jobs
        self._output = output
        self._next = 0
        self._end = len(jobs)  # What comes after an error need not be read.
        self._lock = threading.Lock()

    def stop(self) -> None:
        self._end = 0
        self._output.is_stopped = True

    def run(self) -> None:
        while True:
            with self._lock:
                number = self._next
                self._next += 1
            if number >= self._end:
                return
            try:
                self._read(number)
            except _Stopped:
                return
            except BaseException as error:  # noqa: BLE001 - It is raised by who waits.
                with self._lock:
                    if number < self._end:
                        self._end, self.error = number, error

    def _read(self, number: int) -> None:
        source, piece, place, row = self._jobs[number]
        end = place + piece.num_rows
        for lengths in piece.read():
            if number >= self._end:
                raise _Stopped
            if len(lengths) > end - place:
                break
            if len(lengths) > 0:
                _check(source.path, row, lengths)
                self._output.put(place, lengths)
            place += len(lengths)
            row += len(lengths)
            with self._lock:
                self.done += len(lengths)
        else:
            if place == end:
                return
        raise changed(source.path)


def changed(path: Path) -> ValueError:
    """Return what says that a file is no longer what it was."""
    return ValueError(f"`{path}` must not change while it is read, but has.")


def _check(path: Path, first_row: int, lengths: NDArray[Any]) -> None:
    low, high = int(lengths.min()), int(lengths.max())
    if low < 0 or high >= _END:
        place = int(lengths.argmin() if low < 0 else lengths.argmax())
        rule = "at least 0" if low < 0 else "below 2**63"
        msg = (
            f"The length of row {first_row + place} in `{path}` must be {rule}, but is "
            f"{lengths[place]}."
        )
        raise ValueError(msg)
