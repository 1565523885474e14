"""How a sequence of samples is cut into batches."""

from __future__ import annotations

import re
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import evenstride as es
from support import (
    admitted,
    batches_of,
    check_plan,
    greedy,
    is_too_long,
    lognormal,
    many_lengths,
    width,
)


def sizes_by_bucket(plan):
    sizes = np.diff(plan.offsets)
    return [sorted(sizes[plan.buckets == k].tolist()) for k in range(len(plan.edges) - 1)]


@st.composite
def fills(draw):
    pad = draw(st.sampled_from([1, 2, 8]))
    return draw(many_lengths()), {
        "token_budget": draw(st.integers(64, 400)),
        "max_batch_size": draw(st.none() | st.integers(1, 12)),
        "batch_size_multiple": draw(st.sampled_from([1, 1, 2, 4, 8])),
        "pad_to_multiple_of": pad,
        "buckets": draw(st.sets(st.integers(1, 60), max_size=3).map(sorted)),
    }


def by_bucket(lengths, options):
    groups = [[] for _ in range(len(options["buckets"]) + 1)]
    for i, length in enumerate(lengths):
        groups[int(np.digitize(length, options["buckets"]))].append(i)
    return [group for group in groups if group]


def cut(indices, lengths, options):
    sizes = greedy([lengths[i] for i in indices], options)
    bounds = np.cumsum([0, *sizes]).tolist()
    return [indices[begin:end] for begin, end in pairwise(bounds)]


@given(fills())
def test_frozen_batches_are_the_sorted_bucket_cut_greedily(problem):
    lengths, options = problem
    wanted = [
        sorted(batch)
        for group in by_bucket(lengths, options)
        for batch in cut(sorted(group, key=lambda i: (lengths[i], i)), lengths, options)
    ]
    plan = es.plan_epoch(lengths, **options, composition="frozen")
    assert sorted(sorted(batch) for batch in batches_of(plan)) == sorted(wanted)


@given(fills(), st.integers(0, 5))
def test_without_shuffle_the_longest_come_first_sorted_and_cut_greedily(problem, epoch):
    lengths, options = problem
    wanted = [
        sorted(batch)
        for group in reversed(by_bucket(lengths, options))
        for batch in cut(sorted(group, key=lambda i: (-lengths[i], i)), lengths, options)
    ]
    plan = es.plan_epoch(lengths, **options, shuffle=False, epoch=epoch)
    assert sorted(sorted(batch) for batch in batches_of(plan)) == sorted(wanted)
    widths = plan.widths.tolist()
    assert widths == sorted(widths, reverse=True)


@given(fills(), st.integers(0, 5), st.sampled_from(["shuffle", "window"]))
def test_no_batch_could_have_been_closed_later_in_every_order(problem, epoch, composition):
    """Two batches of a bucket never fit together into one, but for its last and its rests."""
    lengths, options = problem
    options["batch_size_multiple"] = 1
    plan = es.plan_epoch(lengths, **options, epoch=epoch, composition=composition)
    check_plan(plan, lengths, options)
    for group in by_bucket(lengths, options):
        fewest = len(greedy(sorted((lengths[i] for i in group), reverse=True), options))
        ceiling = width([max(lengths[i] for i in group)], options["pad_to_multiple_of"])
        per_batch = min(options["token_budget"] // ceiling, options["max_batch_size"] or 10**9)
        bucket = np.digitize(lengths[group[0]], plan.edges) - 1
        made = int((plan.buckets == bucket).sum())
        assert fewest <= made <= -(-len(group) // per_batch)


@pytest.mark.parametrize("composition", ["shuffle", "window"])
def test_the_number_of_batches_is_that_of_a_greedy_fill_of_a_permutation(composition):
    lengths = lognormal(40_000)
    options = {"token_budget": 16_384, "max_batch_size": 40, "buckets": [300, 900], "window": 256}
    random = np.random.default_rng(3)
    for epoch in range(3):
        plan = es.plan_epoch(lengths, **options, composition=composition, epoch=epoch)
        for bucket, made in enumerate(np.bincount(plan.buckets)):
            sequence = random.permutation(lengths[np.digitize(lengths, [300, 900]) == bucket])
            if composition == "window":
                runs = [np.sort(sequence[i : i + 256]) for i in range(0, len(sequence), 256)]
                sequence = np.concatenate([run[:: (-1) ** i] for i, run in enumerate(runs)])
            assert abs(made - len(greedy(sequence.tolist(), options))) <= 0.01 * made + 3


@given(st.integers(1, 300), st.integers(1, 50), st.integers(50, 500), st.integers(1, 20))
def test_equal_lengths_fill_all_batches_but_one(count, length, budget, max_batch_size):
    plan = es.plan_epoch([length] * count, token_budget=budget, max_batch_size=max_batch_size)
    full = min(budget // length, max_batch_size)
    rest = [count % full] if count % full else []
    assert sorted(np.diff(plan.offsets).tolist()) == sorted([full] * (count // full) + rest)


@given(fills(), st.sampled_from(["shuffle", "window", "frozen"]))
def test_batches_are_cut_to_the_multiple_wherever_the_width_admits_it(problem, composition):
    lengths, options = problem
    multiple = options["batch_size_multiple"]
    plan = es.plan_epoch(lengths, **options, composition=composition)
    check_plan(plan, lengths, options)
    for sizes, end in zip(sizes_by_bucket(plan), plan.edges[1:].tolist(), strict=True):
        widest = width([end - 1], options["pad_to_multiple_of"])
        admits = min(options["token_budget"] // widest, options["max_batch_size"] or 10**9)
        if admits >= multiple:
            assert sum(size % multiple != 0 for size in sizes) <= 1


def test_a_batch_size_multiple_loses_nothing_on_large_sets():
    lengths = lognormal(60_000)
    options = {"token_budget": 32_768, "buckets": [300, 900, 2000], "batch_size_multiple": 8}
    plan = es.plan_epoch(lengths, **options)
    assert np.array_equal(np.sort(plan.indices), np.arange(len(lengths)))
    for sizes in sizes_by_bucket(plan):
        assert sum(size % 8 != 0 for size in sizes) <= 2


@given(many_lengths(), st.integers(1, 60), st.integers(1, 8), st.integers(1, 3))
def test_too_long_samples_are_alone_and_all_others_as_if_they_were_not_there(
    lengths, budget, buckets, pad
):
    options = {"token_budget": max(budget, pad), "pad_to_multiple_of": pad, "too_long": "alone"}
    plan = es.plan_epoch(lengths, **options, buckets=buckets, composition="frozen")
    check_plan(plan, lengths, {**options, "buckets": buckets})
    alone = [i for i, length in enumerate(lengths) if is_too_long(length, options)]
    batches = batches_of(plan)
    assert all([i] in batches for i in alone)


@pytest.mark.parametrize("composition", ["shuffle", "window", "frozen"])
@pytest.mark.parametrize("order", ["stride", "mixed"])
def test_too_long_samples_are_alone_in_every_composition(composition, order):
    if order == "mixed" and composition != "shuffle":
        pytest.skip("refused")
    lengths = [51, 3, 14, 2, 9, 2, 100, 1] * 30
    options = {"token_budget": 12, "buckets": [3, 10], "too_long": "alone", "max_length": 8}
    plan = es.plan_epoch(lengths, **options, composition=composition, order=order)
    check_plan(plan, lengths, {**options, "order": order})


@given(many_lengths(), st.integers(0, 70), st.sampled_from(["drop", "keep"]))
def test_removed_samples_and_tokens_are_counted_by_reason(lengths, max_length, empty):
    options = {"token_budget": 64, "max_length": max_length, "too_long": "drop", "empty": empty}
    if not admitted(lengths, options):
        with pytest.raises(ValueError, match="must leave at least 1 sample"):
            es.plan_epoch(lengths, **options)
        return
    with (
        pytest.warns(UserWarning, match="are in no epoch")
        if (sum(length for length in lengths if length > min(64, max_length)) > 0.01 * sum(lengths))
        else _no_warning()
    ):
        plan = es.plan_epoch(lengths, **options)
    check_plan(plan, lengths, options)


class _no_warning:  # noqa: N801 - Reads as a function, like what it stands in for.
    def __enter__(self):
        return self

    def __exit__(self, *_):
        return False


@pytest.mark.parametrize("length", [2**31 - 1, 2**31, 2**32, 2**40, 2**62, 2**63 - 2])
def test_lengths_and_budgets_at_the_top_of_int64_do_not_overflow(length):
    lengths = [length, 1, length, length - 1, 2]
    plan = es.plan_epoch(lengths, token_budget=2**63 - 1, buckets=[3])
    check_plan(plan, lengths, {"token_budget": 2**63 - 1, "buckets": [3]})
    assert max(plan.widths.tolist()) == length
    assert plan.edges.tolist()[:2] == [0, 3]


def test_the_longest_length_of_all_is_planned_or_refused_with_a_sentence():
    lengths = [2**63 - 1, 1]
    try:
        plan = es.plan_epoch(lengths, token_budget=2**63 - 1, buckets=[3])
    except ValueError as error:
        assert str(error).startswith("`lengths[0]` must be in")  # noqa: PT017 - Either is right.
    else:
        assert int(plan.edges[-1]) == 2**63


def test_lengths_above_the_budget_do_not_overflow():
    lengths = [2**63 - 2, 2**62, 5, 2**63 - 2]
    plan = es.plan_epoch(
        lengths, token_budget=8, buckets=[3], too_long="alone", composition="frozen"
    )
    check_plan(plan, lengths, {"token_budget": 8, "buckets": [3], "too_long": "alone"})


def test_a_width_that_no_integer_holds_is_refused_even_for_a_sample_that_is_alone():
    options = {"token_budget": 2**63 - 1, "pad_to_multiple_of": 2**62, "too_long": "alone"}
    widest = es.plan_epoch([1, 2**62, 7], **options, buckets=[3], composition="frozen")
    check_plan(widest, [1, 2**62, 7], {**options, "buckets": [3]})
    message = (
        f"`lengths[1]` must be in [0, {2**62 + 1}) for pad_to_multiple_of = {2**62}, "
        f"but is {2**62 + 1}."
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        es.plan_epoch([1, 2**62 + 1, 7], **options)


def test_a_largest_batch_beyond_the_number_of_samples_is_no_limit():
    lengths = lognormal(300)
    plans = [
        es.plan_epoch(lengths, token_budget=8192, max_batch_size=most).indices.tolist()
        for most in (None, 300, 2**63 - 1)
    ]
    assert plans[0] == plans[1] == plans[2]
