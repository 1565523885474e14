"""What `evenstride bench` has measured, for people and as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from evenstride._tables import aligned, count, number
from evenstride.bench import COMPARED

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from evenstride.bench import Bench, Measurement

__all__ = ["bench_dict", "bench_tables"]

_COLUMNS = {
    "batches": "taken in the time, after the first; pass follows pass",
    "tokens/s": "real tokens a second",
    "first": "wait for the first batch, in milliseconds: what it takes to start",
    "p50": "median of the waits for a batch, in milliseconds",
    "p99": "the wait that one batch in a hundred exceeds, in milliseconds",
}

_CAUTION = (
    "The loop takes batches and does nothing else. In training, workers and threads go on while "
    "the model computes; with 0 workers, each step takes as much longer as its batch does."
)


def bench_tables(
    bench: Bench, done: Sequence[Measurement], left_out: Mapping[str, str]
) -> list[str]:
    """Return what was measured as blocks of text."""
    lengths = bench.data.dataset.lengths
    compared = min(COMPARED, len(bench.sampler))
    facts = {
        "samples": bench.data.origin,
        "size": f"{count(len(lengths))} samples, {count(int(lengths.sum()))} tokens",
        "batches": f"{count(len(bench.sampler))} an epoch",
        "checked": f"the first {compared} batches are equal in all of these",
    }
    rows = [
        [
            one.contender.name,
            count(one.batches),
            count(round(one.tokens_per_second)),
            number(one.first_wait_ms, 1),
            number(one.median_wait_ms, 3),
            number(one.p99_wait_ms, 3),
        ]
        for one in done
    ]
    blocks = [
        "\n".join(f"{name:7}  {fact}" for name, fact in facts.items()),
        "\n".join(aligned(["contender", *_COLUMNS], rows, left=1)),
        "\n".join(f"{name:8}  {text}" for name, text in _COLUMNS.items()),
        *(f"Without {name}: {reason}" for name, reason in left_out.items()),
        *_verdict(done),
    ]
    return [*blocks, _CAUTION]


def _verdict(done: Sequence[Measurement]) -> list[str]:
    """Return a sentence on the fastest of each kind."""
    fastest: dict[tuple[str, str], Measurement] = {}
    for one in sorted(done, key=lambda one: one.tokens_per_second):
        fastest[one.contender.loader, one.contender.collate] = one
    best = fastest.pop(("Loader", "PadCollator"), None)
    if best is None or not fastest or not all(one.tokens for one in fastest.values()):
        return []
    ratios = [
        f"{best.tokens_per_second / other.tokens_per_second:.2f} times those of "
        f"{other.contender.name}"
        for other in fastest.values()
    ]
    return [f"Real tokens a second of {best.contender.name}: {'; '.join(ratios)}."]


def bench_dict(
    bench: Bench, done: Sequence[Measurement], left_out: Mapping[str, str]
) -> dict[str, Any]:
    """Return what was measured as plain values, ready for JSON."""
    lengths = bench.data.dataset.lengths
    return {
        "field": bench.data.field,
        "random_tokens": bench.data.is_random,
        "samples": len(lengths),
        "tokens": int(lengths.sum()),
        "batches": len(bench.sampler),
        "checked_batches": min(COMPARED, len(bench.sampler)),
        "contenders": [one.to_dict() for one in done],
        "left_out": dict(left_out),
    }
