"""Positions that are saved and loaded, against a plain model of what they promise."""

from __future__ import annotations

import io
import json
import re
from itertools import islice

import numpy as np
import pytest
import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import evenstride as es

LENGTHS = [3, 9, 4, 8, 3, 9, 1, 7, 7, 2, 5, 5, 9, 9, 6, 2]
OPTIONS = {"token_budget": 18, "buckets": [6], "num_replicas": 2, "rank": 1}
STEPS = 4


def new_sampler(**options):
    return es.BucketBatchSampler(LENGTHS, **{**OPTIONS, **options})


def epoch_of(epoch):
    sampler = new_sampler()
    sampler.set_epoch(epoch)
    return list(sampler)


def test_the_model_has_the_right_number_of_steps():
    assert len(new_sampler()) == STEPS


class Passes(RuleBasedStateMachine):
    """The contract of positions, in plain Python.

    `next_place` is where the next pass begins; the epoch and step that the state tells are those of
    the iterator that yielded last, until a place is loaded or an epoch is set.
    """

    @initialize()
    def begin(self):
        self.sampler = new_sampler()
        self.iterators = []
        self.states = []
        self.told = (0, 0)  # Epoch and step.
        self.began = 0
        self.pending = None  # A place that was loaded or set, and not begun yet.
        self.finished = set()  # Whether a pass of the epoch that is told has finished.

    def start(self):
        if self.pending is not None:
            return self.pending
        epoch = self.told[0]
        return (epoch + 1 if epoch in self.finished else epoch), 0

    @rule()
    def make_an_iterator(self):
        self.iterators.append({"real": iter(self.sampler), "epoch": None})

    @precondition(lambda self: self.iterators)
    @rule(data=st.data())
    def take_a_batch(self, data):
        it = data.draw(st.sampled_from(self.iterators))
        if it["epoch"] is None:
            it["epoch"], it["step"] = self.start()
            it["began"] = it["step"]
            self.pending = None
        if it["step"] == STEPS:
            with pytest.raises(StopIteration):
                next(it["real"])
            return
        assert next(it["real"]) == epoch_of(it["epoch"])[it["step"]]
        it["step"] += 1
        self.told = (it["epoch"], it["step"])
        self.began = it["began"]
        if it["step"] == STEPS:
            self.finished = {it["epoch"]}

    @rule()
    def finish_a_new_pass(self):
        epoch, step = self.start()
        assert list(self.sampler) == epoch_of(epoch)[step:]
        self.pending = None
        self.told, self.began = (epoch, STEPS), step
        self.finished = {epoch}

    @rule(epoch=st.integers(0, 3))
    def set_epoch(self, epoch):
        self.sampler.set_epoch(epoch)
        if self.pending is None or self.pending[0] != epoch:
            self.pending = (epoch, 0)
            self.told, self.began = (epoch, 0), 0

    @rule()
    def save(self):
        self.states.append((self.sampler.state_dict(), *self.told))

    @rule(data=st.data())
    def save_what_was_consumed(self, data):
        consumed = data.draw(st.integers(0, STEPS - self.began))
        state = self.sampler.state_dict(consumed)
        self.states.append((state, self.told[0], self.began + consumed))

    @precondition(lambda self: self.states)
    @rule(data=st.data(), in_new_process=st.booleans())
    def load(self, data, in_new_process):
        state, epoch, step = data.draw(st.sampled_from(self.states))
        assert (state["epoch"], state["step"]) == (epoch, step)
        if in_new_process:
            self.sampler = new_sampler()
            self.iterators = []
        self.sampler.load_state_dict(json.loads(json.dumps(state)))
        if step == STEPS:  # The same point.
            epoch, step = epoch + 1, 0
        self.told, self.began = (epoch, step), step
        self.pending, self.finished = (epoch, step), set()

    @invariant()
    def the_state_tells_the_place(self):
        if hasattr(self, "sampler"):
            state = self.sampler.state_dict()
            assert (state["epoch"], state["step"]) == self.told
            assert self.sampler.epoch == self.told[0]
            assert len(self.sampler) == STEPS


TestPasses = Passes.TestCase
TestPasses.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


def through_json(state):
    return json.loads(json.dumps(state))


def through_torch(state):
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


@pytest.mark.parametrize("step", range(STEPS + 1))
def test_a_resumed_run_begins_at_the_epoch_of_the_sampler(step):
    sampler = new_sampler()
    sampler.set_epoch(2)
    list(sampler)
    resumed = new_sampler()
    resumed.load_state_dict(sampler.state_dict(consumed=step))
    found = []
    for epoch in range(resumed.epoch, 4):
        resumed.set_epoch(epoch)
        found += resumed
    assert found == epoch_of(2)[step:] + epoch_of(3)


@pytest.mark.parametrize("store", [through_json, through_torch, dict])
def test_a_state_round_trips(store):
    sampler = new_sampler()
    iterator = iter(sampler)
    next(iterator)
    resumed = new_sampler()
    resumed.load_state_dict(store(sampler.state_dict()))
    rest = list(iterator)
    assert list(resumed) == rest == epoch_of(0)[1:]
    assert list(resumed) == epoch_of(1)


def test_a_state_is_a_few_plain_ints_and_strings_however_long_the_epoch():
    sizes = []
    for count in (100, 100_000):
        sampler = es.BucketBatchSampler([7] * count, token_budget=64)
        list(islice(sampler, 10))
        state = sampler.state_dict()
        assert {type(value) for value in state.values()} <= {int, str}
        sizes.append(len(json.dumps(state)))
    assert sizes[1] - sizes[0] < 20
    assert sizes[1] < 1500


def test_a_state_names_what_it_must_agree_with():
    state = new_sampler().state_dict()
    assert {"version", "epoch", "step", "seed", "num_replicas", "steps_per_epoch"} <= set(state)


def test_a_loaded_state_is_told_before_it_is_begun():
    sampler = new_sampler()
    sampler.load_state_dict({**sampler.state_dict(), "epoch": 3, "step": 2})
    assert sampler.epoch == 3
    assert sampler.plan.epoch == 3
    assert sampler.state_dict()["step"] == 2
    assert sampler.state_dict(consumed=1)["step"] == 3
    assert list(sampler) == epoch_of(3)[2:]


def test_the_fingerprint_is_of_values_and_not_of_types():
    state = new_sampler().state_dict()
    for lengths in (np.array(LENGTHS, np.uint8), np.array(LENGTHS, ">i4"), torch.tensor(LENGTHS)):
        sampler = es.BucketBatchSampler(lengths, **OPTIONS)
        sampler.load_state_dict(state)
        assert sampler.state_dict() == state


def test_the_same_options_in_other_words_are_the_same_options():
    state = new_sampler(order="shuffle").state_dict()
    new_sampler(order="weighted", num_threads=1).load_state_dict(state)
    new_sampler(order="shuffle", token_budget=np.int64(18)).load_state_dict(state)
    new_sampler(order="shuffle", buckets=np.array([6])).load_state_dict(state)
    new_sampler(order="shuffle", rank=0).load_state_dict(state)


def test_every_length_is_in_the_fingerprint():
    state = new_sampler().state_dict()
    swapped = [LENGTHS[1], LENGTHS[0], *LENGTHS[2:]]
    for lengths in (
        [*LENGTHS[:-1], 3],
        [2, *LENGTHS[1:]],
        swapped,
        LENGTHS[::-1],
        [*LENGTHS, 2],
        LENGTHS[:-1],
    ):
        other = es.BucketBatchSampler(lengths, **OPTIONS)
        with pytest.raises(ValueError, match="`lengths` must be the same as when the state was"):
            other.load_state_dict(state)


@pytest.mark.parametrize("place", [0, 255, 256, 65_535, 65_536, 299_999])
def test_one_changed_length_among_many_is_seen(place):
    lengths = np.full(300_000, 9)
    state = es.BucketBatchSampler(lengths, token_budget=64).state_dict()
    other = lengths.copy()
    other[place] = 8
    with pytest.raises(ValueError, match="`lengths` must be the same"):
        es.BucketBatchSampler(other, token_budget=64).load_state_dict(state)


@pytest.mark.parametrize(
    ("name", "there", "here"),
    [
        ("token_budget", 18, 20),
        ("max_batch_size", None, 3),
        ("batch_size_multiple", 1, 2),
        ("pad_to_multiple_of", 1, 2),
        ("max_length", None, 100),
        ("buckets", [6], [5]),
        ("composition", "shuffle", "window"),
        ("window", 1024, 512),
        ("merge_buckets", 1, 2),
        ("order", "stride", "balanced"),
        ("jitter", 0.25, 0.0),
        ("accumulation_steps", 1, 2),
        ("shuffle", True, False),
        ("seed", 0, 1),
        ("drop_last", False, True),
        ("too_long", "error", "drop"),
        ("empty", "keep", "drop"),
        ("num_replicas", 2, 4),
    ],
)
def test_another_option_is_refused_with_its_name_and_both_values(name, there, here):
    state = new_sampler(**{name: there}).state_dict()
    message = (
        f"`{name}` must be the same as when the state was saved, but was {there!r} there and is "
        f"{here!r} here."
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        new_sampler(**{name: here}).load_state_dict(state)


def test_another_number_of_steps_is_refused_with_both_numbers():
    state = new_sampler().state_dict()
    message = "`steps_per_epoch` must be the same as when the state was saved, but was "
    with pytest.raises(ValueError, match=f"^{re.escape(message)}.* there and is .* here\\.$"):
        new_sampler(steps_per_epoch=6).load_state_dict(state)


@pytest.mark.parametrize("name", ["version", "epoch", "step", "seed", "num_replicas", "options"])
def test_a_state_that_lacks_a_field_is_refused_by_name(name):
    state = new_sampler().state_dict()
    del state[name]
    with pytest.raises(ValueError, match=rf"^`state` must have the field '{name}', but has only"):
        new_sampler().load_state_dict(state)


@pytest.mark.parametrize(
    ("field", "value", "error"),
    [
        ("version", 0, ValueError),
        ("version", 99, ValueError),
        ("step", -1, ValueError),
        ("step", STEPS + 1, ValueError),
        ("step", 1.5, TypeError),
        ("step", "1", TypeError),
        ("epoch", -1, ValueError),
        ("epoch", 2**64, ValueError),
        ("epoch", None, TypeError),
        ("options", "{", ValueError),
        ("options", "[]", ValueError),
        ("options", 3, TypeError),
    ],
)
def test_a_state_that_is_not_whole_is_refused_by_field_and_changes_nothing(field, value, error):
    sampler = new_sampler()
    next(iter(sampler))
    before = sampler.state_dict()
    with pytest.raises(error, match=rf"^`{field}` must .*\.$"):
        sampler.load_state_dict({**before, field: value})
    assert sampler.state_dict() == before
    assert list(sampler) == epoch_of(0)


@pytest.mark.parametrize("state", [None, 3, [], "state"])
def test_what_is_no_state_is_a_type_error(state):
    with pytest.raises(TypeError, match=r"^`state` must be a dict.*\.$"):
        new_sampler().load_state_dict(state)


@pytest.mark.parametrize("consumed", [-1, STEPS + 1, 10**9])
def test_more_than_the_pass_has_cannot_be_consumed(consumed):
    sampler = new_sampler()
    next(iter(sampler))
    message = f"`consumed` must be in [0, {STEPS}], the batches of the pass, but is {consumed}."
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        sampler.state_dict(consumed=consumed)


@pytest.mark.parametrize("consumed", [1.0, "1", [1]])
def test_consumed_is_an_integer(consumed):
    with pytest.raises(
        TypeError,
        match=rf"^`consumed` must be an integer, but is {consumed!r}\.$".replace(
            "[", "\\["
        ).replace("]", "\\]"),
    ):
        new_sampler().state_dict(consumed=consumed)


def test_loading_plans_nothing_and_reads_no_data():
    lengths = np.full(2_000_000, 7)
    sampler = es.BucketBatchSampler(lengths, token_budget=7000)
    state = {**sampler.state_dict(), "epoch": 5, "step": len(sampler) - 2}
    sampler.load_state_dict(state)
    kept = sampler._plans._kept
    assert kept is None or kept.epoch != 5
    assert len(list(sampler)) == 2
