"""`BatchMeter` against its own definition."""

from __future__ import annotations

import copy
import math
import pickle

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import evenstride as es
from evenstride.cursor import Cursor
from evenstride.metrics.moments import merged

COUNTS = ["samples", "tokens", "padded_tokens"]


def moments_of(values):
    """Mean and variance of the finite values, and how many there are of them and of others."""
    known = np.array([value for value in values if value is not None])
    finite = known[np.isfinite(known)] if len(known) else known
    mean, variance = (finite.mean(), finite.var()) if len(finite) else (math.nan, math.nan)
    return len(finite), mean, variance, len(known) - len(finite)


def share_of(groups):
    """Variance of the means of groups, weighted, over the variance of all values."""
    groups = [
        np.array([v for v in group if v is not None and math.isfinite(v)]) for group in groups
    ]
    every = np.concatenate(groups)
    if len(every) == 0 or every.var() == 0:
        return math.nan
    means = np.concatenate([np.full(len(group), group.mean()) for group in groups if len(group)])
    return means.var() / every.var()


def check(figures, run, steps, values):
    """Compare figures with the contract, over all of these steps at once."""
    plan, rank = run["plan"], run["rank"]
    bucket_of = [plan.buckets[step * plan.num_replicas + rank] for step in steps]
    assert figures.edges == tuple(plan.edges.tolist())
    for bucket, found in enumerate(figures.buckets):
        mine = [place for place, label in enumerate(bucket_of) if label == bucket]
        assert found.steps == len(mine)
        for prefix, ranks in (("", [rank]), ("global_", range(plan.num_replicas))):
            batches = [steps[i] * plan.num_replicas + r for i in mine for r in ranks]
            samples = [len(plan[batch]) for batch in batches]
            tokens = sum(int(run["lengths"][plan[batch]].sum()) for batch in batches)
            padded = sum(int(plan.widths[b]) * n for b, n in zip(batches, samples, strict=True))
            wanted = [sum(samples), tokens, padded]
            assert [getattr(found, prefix + name) for name in COUNTS] == wanted
        for name in values:
            one = getattr(found, name)
            result = one.count, one.mean, one.variance, one.nonfinite
            wanted = moments_of([values[name][place] for place in mine])
            assert result == pytest.approx(wanted, rel=1e-9, abs=1e-9, nan_ok=True)
    for name in ("loss", "grad_norm"):
        groups = [
            [value for value, label in zip(values[name], bucket_of, strict=True) if label == bucket]
            for bucket in range(len(figures.buckets))
        ]
        result = figures.between_bucket_share(name)
        assert result == pytest.approx(share_of(groups), rel=1e-6, abs=1e-9, nan_ok=True)


def spread(steps, norms, accumulation_steps):
    """Each norm, for all steps of its optimizer step up to its own that have none yet."""
    known = [None] * len(steps)
    for place, norm in enumerate(norms):
        for before in range(place + 1):
            together = {steps[before] // accumulation_steps, steps[place] // accumulation_steps}
            if norm is not None and len(together) == 1 and known[before] is None:
                known[before] = norm
    return known


NUMBERS = st.none() | st.integers(-1000, 1000).map(lambda i: i / 8)
VALUES = NUMBERS | st.sampled_from([math.nan, math.inf, -math.inf])


@st.composite
def runs(draw):
    num_replicas = draw(st.integers(1, 3))
    lengths = np.array(draw(st.lists(st.integers(0, 30), min_size=6, max_size=60)))
    plan = es.plan_epoch(
        lengths,
        token_budget=40,
        buckets=[8, 20],
        num_replicas=num_replicas,
        seed=draw(st.integers(0, 9)),
    )
    accumulation_steps = draw(st.integers(1, 4))
    start = draw(st.integers(0, plan.num_steps - 1))
    steps = list(range(start, plan.num_steps))
    values = st.lists(VALUES, min_size=len(steps), max_size=len(steps))
    seconds = [place / 16 for place in range(len(steps))]
    return {
        "lengths": lengths,
        "plan": plan,
        "rank": draw(st.integers(0, num_replicas - 1)),
        "accumulation_steps": accumulation_steps,
        "window": draw(st.integers(accumulation_steps, 12)),
        "steps": steps,
        "losses": draw(values),
        "norms": draw(values),
        "seconds": seconds,
        "reads": draw(st.sets(st.integers(0, len(steps)))),
    }


def measured(run, update):
    names = ("rank", "accumulation_steps", "window")
    meter = es.metrics.BatchMeter(run["plan"], **{name: run[name] for name in names})
    columns = (run[name] for name in ("steps", "losses", "norms", "seconds"))
    for place, (step, loss, norm, seconds) in enumerate(zip(*columns, strict=True)):
        update(meter, step, loss, norm, seconds)
        if place in run["reads"]:
            meter.figures()
    return meter


@given(runs())
def test_matches_its_definition(run):
    meter = measured(
        run,
        lambda meter, step, loss, norm, seconds: meter.update(
            step, loss=loss, grad_norm=norm, seconds=seconds
        ),
    )
    known = spread(run["steps"], run["norms"], run["accumulation_steps"])
    values = {"loss": run["losses"], "grad_norm": known, "seconds": run["seconds"]}
    check(meter.figures("epoch"), run, run["steps"], values)
    last = slice(-run["window"], None)
    values = {name: column[last] for name, column in values.items()}
    check(meter.figures("window"), run, run["steps"][last], values)


@given(st.lists(st.lists(st.floats(-1e100, 1e100), max_size=8), max_size=6))
def test_merged_moments_are_those_of_all_values(groups):
    parts = []
    for group in groups:
        part = es.metrics.Moments()
        for value in group:
            part.add(value)
        parts.append(part)
    whole = merged(parts)
    count, mean, variance, _ = moments_of([value for group in groups for value in group])
    scale = max((abs(value) for group in groups for value in group), default=0)
    assert whole.count == count
    assert whole.mean == pytest.approx(mean, abs=1e-12 * scale, nan_ok=True)
    assert whole.variance == pytest.approx(variance, abs=1e-12 * scale**2, nan_ok=True)


def test_values_whose_squares_are_infinite_count_as_infinite():
    groups = [es.metrics.Moments(), es.metrics.Moments()]
    for value in (1e141, -1e200, 1.7e308, -1.7e308, 1e140, -1e140):
        groups[0].add(value)
    groups[1].add(1e140)
    assert (groups[0].count, groups[0].nonfinite) == (2, 4)
    assert es.metrics.between_share(groups) == pytest.approx(0.25)


def test_a_small_variance_around_a_large_mean_does_not_cancel_out():
    moments = es.metrics.Moments()
    for place in range(1000):
        moments.add(1e9 + place % 2)
    assert moments.variance == pytest.approx(0.25)


def new_sampler(**options):
    fixed = {"token_budget": 24, "buckets": [6], "seed": 3}
    return es.BucketBatchSampler([3, 9, 4, 8, 3, 9, 5, 11, 2, 7], **{**fixed, **options})


def test_follows_the_epochs_of_a_sampler():
    sampler = new_sampler()
    meter = es.metrics.BatchMeter(sampler, window=3)
    for epoch in range(2):
        for step, _ in enumerate(sampler):
            meter.update(step, loss=epoch)
        figures = meter.figures("epoch")
        assert (meter.epoch, figures.total.steps) == (epoch, len(sampler))
        assert figures.total.loss.mean == epoch
        assert [b.samples for b in figures.buckets] == [
            b.samples for b in sampler.plan.stats().buckets
        ]
        tokens = [record.counts.tokens for record in meter._window]
        assert tokens == sampler.plan.tokens[-3:].tolist()


def test_the_window_goes_on_over_epochs():
    sampler = new_sampler()
    meter = es.metrics.BatchMeter(sampler, window=4)
    for epoch in range(2):
        for step, _ in enumerate(sampler):
            meter.update(step, loss=epoch)
            if (epoch, step) == (1, 1):
                assert meter.figures("window").total.loss.mean == 0.5
                assert meter.figures("epoch").total.loss.mean == 1


def shown_by_loader(sampler):
    """Iterate as a loader that reads ahead does, and shows a position of its own for each batch."""
    for number, batch in enumerate(list(sampler), 1):
        ahead = sampler.cursor
        sampler.follow(Cursor(ahead.epoch, ahead.began, ahead.began + number))
        yield batch
        sampler.follow(ahead)


@pytest.mark.parametrize("batches_of", [iter, shown_by_loader])
@given(tells=st.lists(st.booleans(), min_size=20, max_size=20))
def test_knows_by_itself_which_step_it_is(batches_of, tells):
    sampler = new_sampler()
    told, alone = (es.metrics.BatchMeter(sampler) for _ in range(2))
    tells = iter(tells)
    # Passes of an epoch that are left amid it, the last one at its end; then one of the next.
    for epoch, start, stop in [(0, 0, 1), (0, 0, 3), (0, 2, 3), (0, 2, 5), (1, 0, 5)]:
        sampler.load_state_dict({**sampler.state_dict(), "epoch": epoch, "step": start})
        for step, batch in enumerate(batches_of(sampler), start):
            told.update(step, loss=len(batch), seconds=1)
            alone.update(step if next(tells) else None, loss=len(batch), seconds=1)
            if step + 1 == stop:
                break
        assert alone.state_dict() == told.state_dict()
        assert (alone.epoch, alone.figures("epoch").total.steps) == (epoch, stop - start)


@pytest.mark.parametrize(("accumulation_steps", "share"), [(1, 0.025), (4, 0.102)])
def test_norms_that_have_nothing_to_do_with_buckets_have_the_documented_share(
    accumulation_steps, share
):
    draw = np.random.default_rng(0)
    shares = []
    for _ in range(400):
        groups = [es.metrics.Moments() for _ in range(6)]
        for bucket in np.arange(200 // accumulation_steps) % 6:
            norm = draw.random()
            for _ in range(accumulation_steps):
                groups[bucket].add(norm)
        shares.append(es.metrics.between_share(groups))
    assert np.mean(shares) == pytest.approx(share, rel=0.1)


def test_an_update_that_fails_counts_no_step():
    sampler = new_sampler()
    sampler.load_state_dict({**sampler.state_dict(), "step": 2})
    meter = es.metrics.BatchMeter(sampler)
    next(iter(sampler))
    with pytest.raises(TypeError, match=r"^`loss` must be a real number"):
        meter.update(loss="1.0")
    meter.update(loss=1.0)
    assert meter.state_dict()["step"] == 2


def test_a_step_that_is_not_after_the_last_begins_anew():
    meter = es.metrics.BatchMeter(new_sampler().plan)
    for step in (0, 1, 2, 1):
        meter.update(step)
    assert meter.figures("epoch").total.steps == 1


def test_ranks_of_a_sampler_see_the_same_global_counts():
    lengths = [5, 1]  # One sample a rank: 5 real tokens on one, 1 on the other.
    meters = []
    for rank in range(2):
        sampler = es.BucketBatchSampler(
            lengths, token_budget=5, buckets=1, num_replicas=2, rank=rank
        )
        meters.append(es.metrics.BatchMeter(sampler))
        meters[-1].update(0)
    totals = [meter.figures().total for meter in meters]
    assert sorted(total.tokens for total in totals) == [1, 5]
    assert [total.global_tokens for total in totals] == [6, 6]


def test_seconds_are_those_between_updates_and_since_start(monkeypatch):
    now = 0.0
    monkeypatch.setattr("time.perf_counter", lambda: now)
    sampler = new_sampler()
    meter = es.metrics.BatchMeter(sampler)
    for moment, begins in ((1, False), (4, False), (9, True)):
        if begins:
            now = 7.0
            meter.start()
        now = float(moment)
        meter.update()
    seconds = meter.figures("epoch").total.seconds
    assert (seconds.count, seconds.mean) == (2, (3 + 2) / 2)
    sampler.set_epoch(1)
    now = 100.0
    meter.update(0)
    assert meter.figures("epoch").total.seconds.count == 0
    sampler.set_epoch(2)
    meter.start()
    now = 101.5
    meter.update(0)
    assert meter.figures("epoch").total.seconds.mean == 1.5


@pytest.mark.parametrize("is_read", [False, True])
def test_a_gradient_norm_may_come_later(is_read):
    meter = es.metrics.BatchMeter(new_sampler().plan, accumulation_steps=2)
    with pytest.raises(
        RuntimeError, match=r"^`add_grad_norm` must come after an `update`, but there was none\.$"
    ):
        meter.add_grad_norm(1)
    for step in range(3):
        meter.update(step)
        if is_read:
            meter.figures()
        if step > 0:
            meter.add_grad_norm(step)
    for scope in ("window", "epoch"):
        norms = meter.figures(scope).total.grad_norm
        assert (norms.count, norms.mean) == (3, (1 + 1 + 2) / 3)


def test_a_tensor_may_change_after_the_update():
    meter = es.metrics.BatchMeter(new_sampler().plan)
    loss = torch.tensor([3.0], requires_grad=True)
    meter.update(0, loss=loss)
    with torch.no_grad():
        loss.fill_(9)
    assert meter.figures().total.loss.mean == 3


def test_memory_stays_bounded_over_a_long_epoch():
    plan = es.plan_epoch(np.full(3000, 4), token_budget=4)
    meter = es.metrics.BatchMeter(plan, window=5)
    for step in range(3000):
        meter.update(step, loss=1.0)
    assert (len(meter._window), len(meter._source._counts)) == (5, 3000 % 512)
    assert len(meter._pending) <= 256
    assert meter.figures("epoch").total.loss.count == 3000


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))])
def test_a_copy_knows_the_step_and_has_no_clock(copied, monkeypatch):
    now = 100.0
    monkeypatch.setattr("time.perf_counter", lambda: now)
    sampler = new_sampler()
    meter = es.metrics.BatchMeter(sampler)
    for _, _ in zip(range(3), sampler, strict=False):
        meter.update(seconds=1)
    meter.start()
    other = copied(meter)
    now = 7.0  # In another process, any.
    other.update()
    assert other.state_dict()["step"] == 3
    total = other.figures("epoch").total
    assert (total.steps, total.seconds.count) == (4, 3)
    assert meter.figures("epoch").total.steps == 3


def test_ten_ranks_have_more_tokens_than_int64_holds():
    lengths = [2**62] * 10
    plan = es.plan_epoch(lengths, token_budget=2**63 - 1, buckets=1, num_replicas=10)
    meter = es.metrics.BatchMeter(plan)
    meter.update(0)
    total = meter.figures().total
    assert (total.tokens, total.global_tokens) == (2**62, sum(lengths))
    assert total.global_tokens == plan.step_info(0).global_tokens
