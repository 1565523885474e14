"""A consumer amid a `next`, with a batch in hand, while others load a state or close the loader."""

from __future__ import annotations

import threading
import time

import pytest

from loader_support import consume_all, counted, loader_of, plan_of, rows

GOOD = loader_of().state_dict()
STEPS = len(loader_of())


def held_in_hand(loader, count=1):
    """Take so many batches as a consumer that does not have the last one yet."""
    batches = iter(loader.targets[0])
    for _ in range(count - 1):
        next(batches)
    running = batches.running or loader.admit(batches)
    return running, running.take(0)


def load(loader, state):
    loader.load_state_dict(state)


def close_and_load_the_sampler(loader, state):
    loader.close()
    loader._sampler.load_state_dict(state["sampler"])


def close_and_set_epoch(loader, state):
    loader.close()
    loader._sampler.set_epoch(state["sampler"]["epoch"])


@pytest.mark.parametrize("count", [1, STEPS])
@pytest.mark.parametrize(
    ("move", "epoch", "step", "taken"),
    [
        (load, 0, 3, [5, 7]),
        (load, 2, STEPS, []),
        (close_and_load_the_sampler, 0, 3, []),
        (close_and_load_the_sampler, 2, STEPS, []),
        (close_and_set_epoch, 2, 0, []),
    ],
)
def test_a_consumer_amid_a_batch_does_not_undo_a_move(count, move, epoch, step, taken):
    loader = loader_of(targets=2, in_order=False)
    state = {"sampler": {**GOOD["sampler"], "epoch": epoch, "step": step}, "taken": taken}
    running, batch = held_in_hand(loader, count)
    move(loader, state)
    running.count(0, batch)
    if step == STEPS:  # The same point.
        epoch, step = epoch + 1, 0
        state["sampler"] |= {"epoch": epoch, "step": step}
    assert loader.state_dict() == state
    plan = plan_of(loader, epoch)
    rest = [plan[i] for i in range(step, len(plan)) if i not in taken]
    assert counted(batch for part in consume_all(loader) for batch in part) == counted(rest)


def test_a_consumer_amid_a_batch_does_not_undo_the_next_pass():
    loader = loader_of()
    running, batch = held_in_hand(loader)
    loader.close()
    batches = iter(loader)
    for _ in range(3):
        next(batches)
    running.count(0, batch)
    assert loader.state_dict()["sampler"]["step"] == 3


def test_loading_waits_for_a_consumer_that_is_setting_the_position(monkeypatch):
    loader = loader_of()
    state = {"sampler": {**GOOD["sampler"], "step": 3}, "taken": [5, 7]}
    follow, is_setting = loader._sampler.follow, threading.Event()

    def follow_late(cursor, **options):
        if threading.current_thread() is not threading.main_thread():
            is_setting.set()
            time.sleep(0.1)
        follow(cursor, **options)

    monkeypatch.setattr(loader._sampler, "follow", follow_late)
    taker = threading.Thread(target=lambda: next(iter(loader)))
    taker.start()
    assert is_setting.wait(10)
    loader.load_state_dict(state)
    taker.join()
    assert loader.state_dict() == state


def test_a_batch_that_is_not_handed_over_after_closing_has_not_been_taken():
    loader = loader_of()
    running, batch = held_in_hand(loader, 3)
    loader.close()
    assert loader.state_dict()["sampler"]["step"] == 3
    running.put_back(0, batch)
    assert loader.state_dict()["sampler"]["step"] == 2


def test_the_last_batch_ends_the_epoch_if_it_is_handed_over_after_closing():
    loader = loader_of()
    running, batch = held_in_hand(loader, STEPS)
    loader.close()
    running.count(0, batch)
    assert [rows(batch) for batch in loader] == plan_of(loader, 1)
