"""The samples that `evenstride bench` makes batches of: the user's own, or random tokens."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from evenstride._tables import count
from evenstride.dataset import RaggedDataset
from evenstride.lengths import as_lengths
from evenstride.read_columns import chosen_column, chosen_field, format_of
from evenstride.read_lengths import read_lengths

if TYPE_CHECKING:
    import os

    from evenstride.lengths import LengthArray

__all__ = ["MOST_RANDOM_TOKENS", "BenchData", "open_data", "random_data"]

MOST_RANDOM_TOKENS = 1 << 27
"""Of 2 bytes each, so that they take 256 MiB."""

_RANDOM_FIELD = "input_ids"


@dataclass(frozen=True)
class BenchData:
    """A data set of one field.

    Attributes
    ----------
    dataset : RaggedDataset
        The samples.
    field : str
        Its field.
    origin : str
        What it is, in words.
    is_random : bool
        Whether there were only lengths, and the tokens are random.

    """

    dataset: RaggedDataset
    field: str
    origin: str
    is_random: bool = False


def open_data(
    path: str | os.PathLike[str],
    *,
    key: str | None = None,
    column: str | None = None,
    counts: bool = False,
) -> BenchData:
    """Return the samples in a file or folder; where it has lengths alone, random tokens of these.

    Takes what :func:`read_lengths` takes, and raises what that raises.
    """
    file = Path(path)
    kind = format_of(file)
    if key is None and not counts:
        if kind == "arrow":
            chosen = chosen_column(file, column)
            if chosen.is_list:
                dataset = RaggedDataset.from_arrow(file, chosen.name)
                _, shape = dataset.fields[chosen.name]
                if shape[0] is not None:
                    msg = (
                        f"`{chosen.name}` of `{file}` must have rows of any length, but all have "
                        f"{shape[0]}."
                    )
                    raise ValueError(msg)
                return BenchData(dataset, chosen.name, f"`{chosen.name}` of `{file}`")
        elif kind == "saved":
            arrays = chosen_field(file, column)
            chunks = [(chunk.values, chunk.offsets) for chunk in arrays.chunks]
            dataset = RaggedDataset({arrays.name: chunks})
            return BenchData(dataset, arrays.name, f"`{arrays.name}` of `{file}`")
        elif kind == "megatron" and column is None:
            dataset = RaggedDataset.from_megatron(file)
            return BenchData(dataset, next(iter(dataset.fields)), f"`{file}`")
    lengths = read_lengths(path, key=key, column=column, counts=counts)
    return random_data(lengths, "standard input" if str(file) == "-" else f"`{file}`")


def random_data(
    lengths: LengthArray, origin: str, most_tokens: int = MOST_RANDOM_TOKENS
) -> BenchData:
    """Return random tokens for all lengths, or for every n-th of them where they would be too many.

    Raises
    ------
    TypeError, ValueError
        If these are no lengths.

    """
    lengths = as_lengths(lengths)
    if lengths.size > 0 and lengths.min() < 0:
        sample = int(lengths.argmin())
        msg = f"`lengths[{sample}]` must be at least 0, but is {lengths[sample]}."
        raise ValueError(msg)
    costs = np.minimum(lengths.astype(np.uint64), np.uint64(most_tokens + 1)).astype(np.int64)
    every = max(1, -(-int(costs.sum()) // most_tokens))
    taken = costs[::every]
    taken = taken[: np.searchsorted(np.cumsum(taken), most_tokens, side="right")]
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(taken)])
    values = np.random.default_rng(0).integers(0, 2**15, offsets[-1], dtype=np.uint16)
    which = "each" if every == 1 else f"1 in {count(every)}"
    return BenchData(
        RaggedDataset({_RANDOM_FIELD: (values, offsets)}),
        _RANDOM_FIELD,
        f"{origin} has lengths alone: random tokens in memory, for {which} of them",
        is_random=True,
    )
