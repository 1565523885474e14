"""Gather and pad batches: Evenstride against numpy, torch, Hugging Face and FBGEMM, one thread.

Rows lie in one array of int32, as they would in a mapped file, and batches are those of a plan, so
every row is somewhere else in memory. Each contender gets the indices of a batch, reads its rows in
the form that it wants, and returns int64 ids and an int64 mask.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import numpy as np
import torch

import evenstride as es
from baselines_collate import (
    Rows,
    fbgemm_padder,
    hugging_face_collator,
    pad_arrays,
    pad_nested,
    pad_tensors,
)
from harness import (
    EDGES,
    MAX_BATCH_SIZE,
    TOKEN_BUDGET,
    Contender,
    alternate,
    compare,
    finish,
    load_lengths,
    parse_arguments,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from harness import Row

    Collate = Callable[[list[int]], dict[str, torch.Tensor]]

SHORT = 128


def contenders(values: np.ndarray, offsets: np.ndarray) -> dict[str, Collate]:
    """Return the ways to make a batch of indices, ours first."""
    rows = Rows(values, offsets)
    dataset = es.RaggedDataset({"input_ids": (values, offsets)})
    collate = es.PadCollator({"input_ids": es.Field(padding_value=0)})
    pad_fbgemm, pad_lists = fbgemm_padder(), hugging_face_collator()
    found: dict[str, Collate] = {
        "ours": lambda indices: collate(dataset.__getitems__(indices)),
        "numpy row loop": lambda indices: pad_arrays([rows.array(i) for i in indices]),
        "pad_sequence + mask": lambda indices: pad_tensors([rows.tensor(i) for i in indices]),
        "torch.nested": lambda indices: pad_nested([rows.tensor(i) for i in indices]),
    }
    if pad_fbgemm is not None:
        found["FBGEMM jagged_1d_to_dense"] = lambda indices: pad_fbgemm(
            [rows.tensor(i) for i in indices]
        )
    if pad_lists is not None:
        found["DataCollatorWithPadding from lists"] = lambda indices: pad_lists(
            [rows.listed(i) for i in indices]
        )
    return found


def check(found: dict[str, Collate], batches: Sequence[list[int]]) -> None:
    """Assert that every contender makes the same batches as ours."""
    for indices in batches:
        expected = found["ours"](indices)
        for name, collate in found.items():
            batch = collate(indices)
            assert batch.keys() == expected.keys(), name
            assert all(torch.equal(batch[key], expected[key]) for key in expected), name
            assert all(batch[key].dtype == torch.int64 for key in batch), name


def rows_of(
    work: str,
    found: dict[str, Collate],
    batches: Sequence[list[int]],
    reach: dict[str, float],
    *,
    rounds: int,
) -> list[Row]:
    """Time the contenders on the same batches, and return a row for each but ours."""

    def all_of(collate: Collate, batches: Sequence[list[int]]) -> Callable[[], None]:
        def call() -> None:
            for indices in batches:
                collate(indices)

        return call

    # What is slow gets fewer of them in a round.
    parts = {"DataCollatorWithPadding from lists": 20}
    timed = {
        name: Contender(all_of(collate, batches[:: parts.get(name, 1)]))
        for name, collate in found.items()
    }
    alternate(timed, rounds=rounds)
    for name, part in parts.items():
        if name in timed:
            share = len(batches) / len(batches[::part])
            timed[name].rounds[:] = [[share * s for s in one] for one in timed[name].rounds]
    return [
        compare(
            work,
            timed["ours"],
            items=len(batches),
            baseline=name,
            theirs=one,
            reach=reach.get(name),
        )
        for name, one in timed.items()
        if name != "ours"
    ]


def main() -> int:
    arguments = parse_arguments(__doc__, "collate")
    torch.set_num_threads(1)
    lengths = load_lengths()
    offsets = np.zeros(lengths.size + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    values = np.random.default_rng(0).integers(1, 30_000, offsets[-1], dtype=np.int32)
    plan = es.plan_epoch(
        lengths, token_budget=TOKEN_BUDGET, max_batch_size=MAX_BATCH_SIZE, buckets=EDGES
    )
    every = 400 if arguments.quick else 100
    planned = [plan[i].tolist() for i in range(0, len(plan), every)]
    rng = np.random.default_rng(1)
    short = [rng.choice(np.flatnonzero(lengths <= SHORT), 64).tolist() for _ in range(len(planned))]
    single = [[int(i)] for i in rng.choice(lengths.size, len(planned))]
    found = contenders(values, offsets)
    rounds = 3 if arguments.quick else 15
    results: list[Row] = []
    for work, batches, reach in (
        (
            f"{len(planned)} batches of the plan",
            planned,
            {
                "numpy row loop": 2.0,
                "pad_sequence + mask": 5.0,
                "DataCollatorWithPadding from lists": 200.0,
            },
        ),
        (f"{len(short)} batches of 64 rows up to {SHORT} tokens", short, {"numpy row loop": 10.0}),
        (
            f"one batch of 64 rows up to {SHORT} tokens, {len(short)} times",
            short[:1] * len(short),
            {},
        ),
        (f"{len(single)} batches of one row", single, {}),
    ):
        check(found, batches[::20])
        results += rows_of(work, found, batches, reach, rounds=rounds)
    return finish("collate", results, arguments)


if __name__ == "__main__":
    sys.exit(main())
