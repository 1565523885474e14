"""The contract of a plan, transcribed: slow, and too plain to be wrong."""

from __future__ import annotations

import hashlib
from collections import Counter
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np
from hypothesis import strategies as st

from evenstride import compare

HISTOGRAM = Path(__file__).parents[2] / "benchmarks" / "data" / "length_histogram.csv"
REAL = {"token_budget": 49_152, "max_batch_size": 64, "buckets": [770, 1216, 1728, 2432, 3296]}

ORDERS = [order for order in compare.ORDERS if order != "mixed"]
COMPOSITIONS = ["shuffle", "window", "frozen"]


@cache
def real_lengths():
    table = np.loadtxt(HISTOGRAM, delimiter=",", skiprows=1, dtype=np.int64)
    lengths = np.random.default_rng(7).permutation(np.repeat(table[:, 0], table[:, 1]))
    lengths.flags.writeable = False
    return lengths


def lognormal(count, seed=0, longest=4096):
    """Lengths as many corpora have them: a median of 600 tokens and a long tail."""
    drawn = np.random.default_rng(seed).lognormal(np.log(600), 1, count)
    return np.clip(drawn, 1, longest).astype(np.int64)


def width(lengths, pad_to_multiple_of=1):
    longest = max(1, *lengths) if len(lengths) else 1
    return -(-longest // pad_to_multiple_of) * pad_to_multiple_of


def is_too_long(length, options):
    max_length = options.get("max_length")
    return (max_length is not None and length > max_length) or (
        width([length], options.get("pad_to_multiple_of", 1)) > options["token_budget"]
    )


def reason_of_removal(length, options):
    if length == 0 and options.get("empty", "keep") == "drop":
        return "empty"
    if is_too_long(length, options) and options.get("too_long", "error") == "drop":
        return "too_long"
    return None


def admitted(lengths, options):
    return [i for i, length in enumerate(lengths) if reason_of_removal(length, options) is None]


def removed(lengths, options):
    amounts = {reason: {"samples": 0, "tokens": 0} for reason in ("too_long", "empty")}
    for length in lengths:
        reason = reason_of_removal(length, options)
        if reason is not None:
            amounts[reason]["samples"] += 1
            amounts[reason]["tokens"] += length
    return amounts


def batches_of(plan):
    offsets, indices = plan.offsets.tolist(), plan.indices.tolist()
    return [indices[begin:end] for begin, end in pairwise(offsets)]


def check_batches(plan, lengths, options):
    """Every batch keeps every limit, and the arrays say what is in it."""
    budget, most = options["token_budget"], options.get("max_batch_size") or len(lengths)
    edges = plan.edges.tolist()
    is_mixed_order = options.get("order") == "mixed" and options.get("shuffle", True)
    batches = batches_of(plan)
    assert len(plan) == len(batches) == len(plan.buckets) == len(plan.widths)
    assert plan.offsets[0] == 0
    assert plan.offsets[-1] == len(plan.indices)
    for batch, bucket, wide in zip(
        batches, plan.buckets.tolist(), plan.widths.tolist(), strict=True
    ):
        of_batch = [lengths[i] for i in batch]
        assert 1 <= len(batch) <= most
        assert wide == width(of_batch, options.get("pad_to_multiple_of", 1))
        assert len(batch) == 1 or len(batch) * wide <= budget
        if any(is_too_long(length, options) for length in of_batch):
            assert options["too_long"] == "alone"
            assert len(batch) == 1
            assert is_mixed_order or bucket == len(edges) - 2
        elif is_mixed_order:
            assert edges[bucket] <= max(of_batch) < edges[bucket + 1]
        else:
            assert all(edges[bucket] <= length < edges[bucket + 1] for length in of_batch)


def check_coverage(plan, lengths, options):
    """Every admitted sample once, but for those that the plan lists."""
    wanted = Counter(admitted(lengths, options))
    wanted.update(plan.repeats.tolist())
    wanted.subtract(plan.dropped.tolist())
    assert Counter(plan.indices.tolist()) == +wanted
    assert min(wanted.values()) >= 0
    assert plan.removed == removed(lengths, options)


def check_edges(plan, lengths, options):
    edges = plan.edges.tolist()
    longest = max(lengths[i] for i in admitted(lengths, options))
    assert edges[0] == 0
    assert edges[-1] == longest + 1
    assert all(low < high for low, high in pairwise(edges))
    buckets = options.get("buckets", 6)
    merge = options.get("merge_buckets", 1)
    if isinstance(buckets, int):
        assert len(edges) - 1 <= -(-buckets // merge)
    else:
        # Every `merge` adjacent buckets are one, so that every `merge`-th inner edge stays.
        kept = buckets[merge - 1 :: merge]
        assert edges[1:-1] == [edge for edge in kept if edge <= longest]


def mixed_steps(plan):
    steps = plan.buckets.reshape(plan.num_steps, plan.num_replicas)
    return int((steps != steps[:, :1]).any(axis=1).sum())


def check_steps(plan, options):
    assert plan.num_replicas == options.get("num_replicas", 1)
    assert plan.num_steps >= 1
    assert len(plan) == plan.num_steps * plan.num_replicas
    if options.get("order") != "mixed" or not options.get("shuffle", True):
        assert mixed_steps(plan) <= len(plan.edges)
    if options.get("drop_last", False):
        assert len(plan.repeats) == 0
    else:
        assert len(plan.dropped) == 0
        assert len(plan.repeats) < plan.num_replicas


def check_plan(plan, lengths, options):
    lengths = [int(length) for length in lengths]
    check_edges(plan, lengths, options)
    check_batches(plan, lengths, options)
    check_coverage(plan, lengths, options)
    check_steps(plan, options)


def greedy(sequence, options):
    """Cut lengths, in this order, into the longest batches that fit; return their sizes."""
    budget, most = options["token_budget"], options.get("max_batch_size") or len(sequence)
    multiple = options.get("batch_size_multiple", 1)
    pad = options.get("pad_to_multiple_of", 1)
    sizes, opened = [], []
    for length in sequence:
        while opened and (
            len(opened) == most or (len(opened) + 1) * width([*opened, length], pad) > budget
        ):
            whole = len(opened) // multiple * multiple or len(opened)
            sizes.append(whole)
            opened = opened[whole:]
        opened.append(length)
    whole = len(opened) // multiple * multiple
    return sizes + [size for size in (whole, len(opened) - whole) if size]


ARRAYS = ["indices", "offsets", "buckets", "widths", "repeats", "dropped", "edges"]


def same_plans(one, other):
    return all(np.array_equal(getattr(one, name), getattr(other, name)) for name in ARRAYS)


def digest(plan):
    """Hash a plan, alike on every platform."""
    arrays = [plan.offsets, plan.indices, plan.buckets, plan.widths]
    data = b"".join(np.asarray(array).astype("<i8").tobytes() for array in arrays)
    return hashlib.sha256(data).hexdigest()


def labels_of_steps(plan):
    """Return the bucket of each step, none of which may be mixed."""
    assert mixed_steps(plan) == 0
    return plan.buckets[:: plan.num_replicas].astype(np.int64)


def runs_of(labels):
    """How long each run of equal labels is."""
    bounds = np.flatnonzero(np.diff(labels, prepend=-1, append=-1))
    return np.diff(bounds)


def prefix_discrepancy(labels):
    worst, total = 0.0, len(labels)
    for bucket in np.unique(labels):
        counts = np.cumsum(labels == bucket)
        expected = np.arange(1, total + 1) * (counts[-1] / total)
        worst = max(worst, float(np.abs(counts - expected).max()))
    return worst


def padding_efficiency(plan, lengths):
    tokens = int(np.asarray(lengths)[plan.indices].sum())
    return tokens / int((np.diff(plan.offsets) * plan.widths.astype(np.int64)).sum())


@st.composite
def many_lengths(draw, longest=60, max_size=80):
    """Lengths of several kinds: any, few distinct ones, and all alike."""
    distinct = draw(st.sampled_from([1, 2, 5, longest + 1]))
    if distinct > longest:
        return draw(st.lists(st.integers(0, longest), min_size=1, max_size=max_size))
    values = draw(st.lists(st.integers(0, longest), min_size=distinct, max_size=distinct))
    return draw(st.lists(st.sampled_from(values), min_size=1, max_size=max_size))


@st.composite
def problems(draw, orders=(*ORDERS, "weighted", "mixed"), **fixed):
    """Lengths and options that have a plan, or are refused for having no sample or no step."""
    lengths = draw(many_lengths())
    pad = draw(st.sampled_from([1, 1, 2, 7, 8]))
    order = draw(st.sampled_from(orders))
    options = {
        "token_budget": draw(st.integers(pad, 200)),
        "max_batch_size": draw(st.none() | st.integers(1, 12)),
        "batch_size_multiple": draw(st.sampled_from([1, 1, 2, 4])),
        "pad_to_multiple_of": pad,
        "max_length": draw(st.none() | st.integers(0, 70)),
        "buckets": draw(st.integers(1, 8) | st.sets(st.integers(1, 70), max_size=5).map(sorted)),
        "composition": "shuffle" if order == "mixed" else draw(st.sampled_from(COMPOSITIONS)),
        "window": draw(st.integers(1, 40)),
        "merge_buckets": draw(st.sampled_from([1, 1, 2, 3])),
        "order": order,
        "jitter": draw(st.sampled_from([0, 0.25, 0.49])),
        "accumulation_steps": draw(st.integers(1, 4)),
        "shuffle": draw(st.sampled_from([True, True, False])),
        "seed": draw(st.integers(0, 2**64 - 1)),
        "num_replicas": draw(st.integers(1, 9)),
        "drop_last": draw(st.booleans()),
        "too_long": draw(st.sampled_from(["drop", "alone"])),
        "empty": draw(st.sampled_from(["keep", "drop"])),
        "epoch": draw(st.integers(0, 2**64 - 1)),
    }
    return lengths, {**options, **fixed}
