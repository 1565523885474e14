"""Edges of buckets: those that are found, and those that are given."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import evenstride as es
from support import REAL, lognormal, many_lengths, padding_efficiency


@given(many_lengths(), st.integers(1, 12), st.integers(1, 300), st.sampled_from([1, 8]))
def test_edges_strictly_increase_and_leave_no_bucket_empty(lengths, buckets, budget, pad):
    edges = es.optimal_edges(lengths, buckets, token_budget=budget, pad_to_multiple_of=pad)
    assert type(edges) is list
    assert all(type(edge) is int for edge in edges)
    assert len(edges) < buckets
    assert edges == sorted(set(edges))
    occupied = np.unique(np.digitize(lengths, edges))
    assert occupied.tolist() == list(range(len(edges) + 1))


@pytest.mark.parametrize("buckets", [1, 2, 6, 30])
def test_edges_are_ready_to_be_given(buckets):
    lengths = lognormal(5000)
    options = {"token_budget": 16_384, "max_batch_size": 40, "pad_to_multiple_of": 8}
    edges = es.optimal_edges(lengths, buckets, **options)
    found = es.plan_epoch(lengths, buckets=buckets, **options)
    given_edges = es.plan_epoch(lengths, buckets=edges, **options)
    assert found.edges.tolist() == given_edges.edges.tolist() == [0, *edges, lengths.max() + 1]
    assert np.array_equal(found.indices, given_edges.indices)


def test_edges_do_not_depend_on_the_order_of_the_lengths():
    lengths = lognormal(5000)
    for order in (np.sort(lengths), lengths[::-1]):
        assert es.optimal_edges(order, 8, token_budget=8192) == es.optimal_edges(
            lengths, 8, token_budget=8192
        )


def test_equal_lengths_are_one_bucket_however_many_are_asked_for():
    assert es.optimal_edges([7] * 100, 10, token_budget=64) == []
    assert es.plan_epoch([7] * 100, token_budget=64, buckets=10).edges.tolist() == [0, 8]


def test_two_lengths_are_at_most_two_buckets():
    assert es.optimal_edges([1, 2], 30, token_budget=64) in ([], [2])
    assert es.optimal_edges([10] * 1000 + [500] * 1000, 30, token_budget=8000)[0] in range(11, 501)


def test_one_edge_separates_what_pads_most():
    for edge in es.optimal_edges([10] * 50 + [1000] * 50, 2, token_budget=5000):
        assert 11 <= edge <= 1000


def test_samples_above_the_budget_are_no_error_here():
    edges = es.optimal_edges([1, 5, 9, 5000], 3, token_budget=16)
    assert all(1 <= edge <= 5000 for edge in edges)


def test_found_edges_pad_less_than_the_given_ones_on_real_lengths(lengths):
    limits = {"token_budget": REAL["token_budget"], "max_batch_size": REAL["max_batch_size"]}
    edges = es.optimal_edges(lengths, 6, **limits)
    assert len(edges) == 5
    found = padding_efficiency(es.plan_epoch(lengths, **limits, buckets=edges), lengths)
    theirs = padding_efficiency(es.plan_epoch(lengths, **REAL), lengths)
    assert found > theirs + 0.015
    assert found >= 0.8365


@pytest.mark.parametrize(("buckets", "reached"), [(8, 0.87), (16, 0.9285), (32, 0.96)])
def test_more_buckets_pad_less_on_real_lengths(lengths, buckets, reached):
    limits = {"token_budget": REAL["token_budget"], "max_batch_size": REAL["max_batch_size"]}
    plan = es.plan_epoch(lengths, **limits, buckets=buckets)
    assert padding_efficiency(plan, lengths) >= reached


def test_a_heavy_atom_at_the_top_is_no_trap():
    lengths = np.concatenate([lognormal(80_000, longest=8191), np.full(20_000, 8192)])
    limits = {"token_budget": 49_152, "max_batch_size": 64}
    quantiles = np.quantile(lengths, np.arange(1, 6) / 6).astype(int)
    equal_mass = sorted(set(quantiles.tolist()))
    found = es.plan_epoch(lengths, **limits, buckets=6)
    other = es.plan_epoch(lengths, **limits, buckets=equal_mass)
    assert padding_efficiency(found, lengths) > padding_efficiency(other, lengths)


@given(st.sets(st.integers(1, 70), max_size=8).map(sorted), st.integers(1, 10))
def test_merging_keeps_every_so_many_edges(edges, merge_buckets):
    lengths = list(range(71))
    plan = es.plan_epoch(lengths, token_budget=100, buckets=edges, merge_buckets=merge_buckets)
    inner = [edge for i, edge in enumerate(edges, 1) if i % merge_buckets == 0]
    assert plan.edges.tolist() == [0, *inner, 71]


def test_merging_applies_to_found_edges_too():
    lengths = lognormal(5000)
    edges = es.optimal_edges(lengths, 9, token_budget=8192)
    plan = es.plan_epoch(lengths, token_budget=8192, buckets=9, merge_buckets=3)
    assert plan.edges.tolist() == [0, *edges[2::3], lengths.max() + 1]


@pytest.mark.parametrize("kind", [tuple, np.array, range], ids=["tuple", "array", "range"])
def test_edges_may_be_any_sequence_of_integers(kind):
    edges = range(300, 900, 200) if kind is range else kind([300, 500, 700])
    lengths = lognormal(1000)
    plan = es.plan_epoch(lengths, token_budget=4096, buckets=edges)
    assert plan.edges.tolist() == [0, 300, 500, 700, lengths.max() + 1]


@pytest.mark.parametrize(
    ("edges", "message"),
    [
        ([0, 5], "`buckets[0]` must be in [1, 2**63), but is 0."),
        ([-3], "`buckets[0]` must be in [1, 2**63), but is -3."),
        ([5, 2**63], f"`buckets[1]` must be in [1, 2**63), but is {2**63}."),
    ],
)
def test_wrong_edges_are_refused_with_their_place(edges, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        es.plan_epoch([3, 8, 9], token_budget=64, buckets=edges)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"num_buckets": 0}, ValueError, "`num_buckets` must be in [1, 2**63), but is 0."),
        ({"num_buckets": 2.0}, TypeError, "`num_buckets` must be an integer, but is 2.0."),
        ({"token_budget": 0}, ValueError, "`token_budget` must be in [1, 2**63), but is 0."),
        ({"max_batch_size": 0}, ValueError, "`max_batch_size` must be in [1, 2**63), but is 0."),
        (
            {"pad_to_multiple_of": 0},
            ValueError,
            "`pad_to_multiple_of` must be in [1, 2**63), but is 0.",
        ),
        ({"lengths": []}, ValueError, "`lengths` must have at least 1 sample, but has 0."),
    ],
)
def test_wrong_arguments_are_refused_by_name(arguments, error, message):
    arguments = {"lengths": [3, 4], "num_buckets": 2, "token_budget": 64, **arguments}
    lengths, buckets = arguments.pop("lengths"), arguments.pop("num_buckets")
    with pytest.raises(error, match=f"^{re.escape(message)}$"):
        es.optimal_edges(lengths, buckets, **arguments)
