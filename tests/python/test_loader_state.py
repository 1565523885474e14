"""The position of a loader: what a resumed run gets, and which states are refused."""

from __future__ import annotations

import json
import re

import pytest
import torch

import evenstride as es
from loader_support import (
    BUDGET,
    collator,
    consume_all,
    counted,
    in_threads,
    loader_of,
    plan_of,
    ragged,
    rows,
    sampler_of,
)


def through_json(state):
    return json.loads(json.dumps(state))


def take(loader, count):
    """Take so many batches, and leave."""
    batches = iter(loader)
    return [rows(next(batches)) for _ in range(count)]


@pytest.mark.parametrize("is_native", [True, False])
def test_goes_on_where_it_was_at_every_position(is_native):
    plan = plan_of(loader_of())
    loader = loader_of(is_native=is_native)
    batches = iter(loader)
    for step in range(len(plan) + 1):
        state = through_json(loader.state_dict())
        assert state["sampler"]["step"] == step
        assert state["taken"] == []
        resumed = loader_of(is_native=is_native)
        resumed.load_state_dict(state)
        if step < len(plan):
            assert resumed.state_dict() == state
            assert [rows(batch) for batch in resumed] == plan[step:]
            assert rows(next(batches)) == plan[step]
        assert [rows(batch) for batch in resumed] == plan_of(loader, 1)


def random_order(loader, seed):
    """Take some batches of a pass out of order, by consumers that come in a random order."""
    random = torch.Generator().manual_seed(seed)
    batches = [iter(target) for target in loader.targets]
    taken = []
    for _ in range(int(torch.randint(1, len(loader), (), generator=random))):
        target = int(torch.randint(len(batches), (), generator=random))
        taken.append(rows(next(batches[target])))
    return taken, batches


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("targets", [1, 2, 5])
def test_goes_on_exactly_with_what_was_not_taken_out_of_order(seed, targets):
    options = {"targets": targets, "in_order": False, "num_workers": 3, "depth": 2}
    loader = loader_of(**options)
    plan = counted(plan_of(loader))
    taken, _ = random_order(loader, seed)
    state = through_json(loader.state_dict())
    assert len(state["taken"]) <= targets * 2 + 3
    resumed = loader_of(**options)
    resumed.load_state_dict(state)
    assert resumed.state_dict() == state
    rest = [batch for part in consume_all(resumed) for batch in part]
    assert counted(taken) + counted(rest) == plan
    again = [batch for part in consume_all(resumed) for batch in part]
    assert counted(again) == counted(plan_of(loader, 1))


@pytest.mark.parametrize("ahead", [[3, 0], [0, 3], [2, 1], [4, 4]])
def test_goes_on_exactly_where_consumers_are_at_different_batches_in_order(ahead):
    loader = loader_of(targets=2, depth=8)
    plan = plan_of(loader)
    batches = [iter(target) for target in loader.targets]
    taken = [rows(next(batches[k])) for k in (0, 1) for _ in range(ahead[k])]
    state = through_json(loader.state_dict())
    places = sorted([2 * i for i in range(ahead[0])] + [2 * i + 1 for i in range(ahead[1])])
    first = next(i for i in range(len(plan)) if i not in places)
    assert state["sampler"]["step"] == first
    assert state["taken"] == [place for place in places if place > first]
    assert counted(taken) == counted(plan[place] for place in places)
    resumed = loader_of()  # Of another number of targets, too.
    resumed.load_state_dict(state)
    rest = [plan[i] for i in range(len(plan)) if i not in places]
    assert [rows(batch) for batch in resumed] == rest


def test_a_resumed_run_can_be_resumed_again():
    loader = loader_of(in_order=False, num_workers=4, depth=3)
    plan = counted(plan_of(loader))
    taken = []
    for _ in range(len(loader) // 3):
        taken += take(loader, 3)
        state = through_json(loader.state_dict())
        loader = loader_of(in_order=False, num_workers=4, depth=3)
        loader.load_state_dict(state)
    taken += [rows(batch) for batch in loader]
    assert counted(taken) == plan


def test_a_loop_that_was_left_begins_again_with_the_epoch():
    loader = loader_of()
    for _ in range(3):
        assert take(loader, 4) == plan_of(loader)[:4]
        assert loader.state_dict()["sampler"]["step"] == 4
    assert [rows(batch) for batch in loader] == plan_of(loader)


def test_an_epoch_is_over_with_its_last_batch_whether_or_not_the_loop_comes_back():
    loader = loader_of()
    for num_taken, epoch in [(len(loader) - 1, 0), (len(loader), 1), (len(loader), 2)]:
        take(loader, num_taken)
        assert take(loader, 1) == plan_of(loader, epoch)[:1]


def test_a_resumed_epoch_is_over_with_its_last_batch_too():
    loader = loader_of()
    loader.load_state_dict({**loader.state_dict(), "taken": [2, 3]})
    take(loader, len(loader) - 2)
    assert loader.state_dict()["sampler"]["step"] == len(loader)
    assert take(loader, 1) == plan_of(loader, 1)[:1]


def test_a_loop_that_was_left_out_of_order_forgets_what_it_took_when_it_begins_again():
    loader = loader_of(in_order=False, num_workers=4, depth=3)
    for _ in range(5):
        take(loader, 4)
    assert counted(map(rows, loader)) == counted(plan_of(loader))


def test_a_state_of_the_end_is_the_beginning_of_the_next_epoch():
    loader = loader_of()
    batches = iter(loader)
    for _ in range(len(loader)):
        next(batches)
    state = loader.state_dict()  # The end has not been met yet.
    assert (state["sampler"]["epoch"], state["sampler"]["step"]) == (0, len(loader))
    resumed = loader_of()
    resumed.load_state_dict(state)
    assert [rows(batch) for batch in resumed] == plan_of(loader, 1)
    assert [rows(batch) for batch in loader] == plan_of(loader, 1)


def test_set_epoch_keeps_a_loaded_position_of_that_epoch_only():
    state = loader_of().state_dict()
    state = {"sampler": {**state["sampler"], "epoch": 2, "step": 3}, "taken": [5]}
    loader = loader_of()
    plan = plan_of(loader, 2)
    loader.load_state_dict(state)
    loader._sampler.set_epoch(2)
    assert loader.state_dict() == state
    assert [rows(batch) for batch in loader] == [plan[3], plan[4], *plan[6:]]
    loader.load_state_dict(state)
    loader._sampler.set_epoch(1)
    assert loader.state_dict()["taken"] == []
    assert [rows(batch) for batch in loader] == plan_of(loader, 1)


def test_set_epoch_amid_a_pass_speaks_of_the_next_one():
    loader = loader_of()
    batches = iter(loader)
    next(batches)
    loader._sampler.set_epoch(7)
    assert rows(next(batches)) == plan_of(loader)[1]
    assert loader.state_dict()["sampler"]["epoch"] == 0
    batches.close()
    assert [rows(batch) for batch in loader] == plan_of(loader, 7)


def test_loading_amid_a_pass_ends_it():
    loader = loader_of()
    batches = iter(loader)
    for _ in range(3):
        next(batches)
    state = loader.state_dict()
    next(batches)
    loader.load_state_dict(state)
    message = "This iterator has ended, because its loader was closed."
    for _ in range(2):
        with pytest.raises(RuntimeError, match=f"^{re.escape(message)}$"):
            next(batches)
    assert loader.state_dict() == state
    assert [rows(batch) for batch in loader] == plan_of(loader)[3:]


def test_the_sampler_speaks_of_the_pass_of_its_loader():
    loader = loader_of()
    sampler = loader._sampler
    batches = iter(loader)
    assert sampler.state_dict()["step"] == 0
    for step in range(1, 6):
        next(batches)
        assert sampler.epoch == 0
        assert sampler.state_dict()["step"] == step
        assert sampler.state_dict() == loader.state_dict()["sampler"]
        assert sampler.state_dict(consumed=step - 1)["step"] == step - 1
    assert sampler.step_info(4).samples == len(plan_of(loader)[4])
    batches.close()
    assert sampler.state_dict()["step"] == 5
    for _ in loader:
        pass
    for _ in loader:
        pass
    assert sampler.epoch == 1


def test_a_loaded_position_is_still_there_when_nothing_was_taken_yet():
    state = loader_of().state_dict()
    state = {"sampler": {**state["sampler"], "step": 2}, "taken": [4, 5]}
    loader = loader_of(is_native=False, collate=lambda _: 1 // 0)
    loader.load_state_dict(state)
    with pytest.raises(ZeroDivisionError):
        next(iter(loader))
    assert loader.state_dict() == state


def test_a_pass_that_cannot_begin_keeps_a_loaded_position(monkeypatch):
    loader = loader_of()
    state = loader.state_dict()
    state = {"sampler": {**state["sampler"], "step": 2}, "taken": [4]}
    loader.load_state_dict(state)
    with monkeypatch.context() as patched:
        patched.setattr("evenstride.passes._core.Delivery", lambda **_: 1 // 0)
        with pytest.raises(ZeroDivisionError):
            next(iter(loader))
    assert loader.state_dict() == state
    plan = plan_of(loader)
    assert [rows(batch) for batch in loader] == [plan[2], plan[3], *plan[5:]]


def test_states_that_are_read_while_others_take_are_all_right():
    loader = loader_of(2000, targets=3, in_order=False, depth=2)
    states, is_over = [], []

    def read():
        while not is_over:
            states.append(loader.state_dict())

    def run():
        consume_all(loader)
        is_over.append(True)

    assert in_threads(read, run) == []
    for state in states:
        step, taken = state["sampler"]["step"], state["taken"]
        assert taken == sorted(set(taken))
        assert not taken or step < taken[0]
    steps = [state["sampler"]["step"] for state in states]
    assert steps == sorted(steps)


GOOD = loader_of().state_dict()
STEPS = len(loader_of())


def changed(**fields):
    return {**GOOD, "sampler": {**GOOD["sampler"], **fields}}


@pytest.mark.parametrize(
    ("state", "kind", "message"),
    [
        (3, TypeError, "`state` must be a dict, but is 3."),
        (
            {"sampler": {}},
            ValueError,
            "`state` must have the fields 'sampler' and 'taken', but has ['sampler'].",
        ),
        ({"sampler": 5, "taken": []}, TypeError, "`state` must be a dict, but is 5."),
        (
            {"sampler": {}, "taken": []},
            ValueError,
            "`state` must have the field 'version', but has only [].",
        ),
        (
            {**GOOD, "taken": "12"},
            TypeError,
            "`state['taken']` must be a list of steps, but is '12'.",
        ),
        (
            {**GOOD, "taken": [1, 2.5]},
            TypeError,
            "`state['taken'][1]` must be an integer, but is 2.5.",
        ),
        (
            {**GOOD, "taken": [2, 2]},
            ValueError,
            f"`state['taken']` must hold rising steps in (0, {STEPS}), but is [2, 2].",
        ),
        (
            {**changed(step=4), "taken": [4]},
            ValueError,
            f"`state['taken']` must hold rising steps in (4, {STEPS}), but is [4].",
        ),
        (
            {**GOOD, "taken": [STEPS]},
            ValueError,
            f"`state['taken']` must hold rising steps in (0, {STEPS}), but is [{STEPS}].",
        ),
        (
            changed(step=STEPS + 1),
            ValueError,
            f"`step` must be in [0, steps_per_epoch = {STEPS}], but is {STEPS + 1}.",
        ),
        (
            changed(seed=5),
            ValueError,
            "`seed` must be the same as when the state was saved, but was 5 there and is 0 here.",
        ),
    ],
)
def test_a_state_that_does_not_fit_is_refused_and_changes_nothing(state, kind, message):
    loader = loader_of()
    batches = iter(loader)
    next(batches)
    with pytest.raises(kind, match=f"^{re.escape(message)}$"):
        loader.load_state_dict(state)
    assert [rows(batch) for batch in batches] == plan_of(loader)[1:]


def test_a_state_of_other_data_is_refused():
    dataset = ragged(200, seed=1)
    sampler = sampler_of(dataset)
    message = "`lengths` must be the same as when the state was saved, but was "
    with pytest.raises(ValueError, match=f"^{message}"):
        es.Loader(dataset, sampler, collator()).load_state_dict(GOOD)


def test_a_state_is_safe_to_load_with_torch(tmp_path):
    loader = loader_of(in_order=False)
    take(loader, 5)
    torch.save(loader.state_dict(), tmp_path / "state.pt")
    assert torch.load(tmp_path / "state.pt", weights_only=True) == loader.state_dict()
    assert GOOD["sampler"]["options"].count(str(BUDGET)) == 1
