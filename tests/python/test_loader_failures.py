"""What happens when a batch cannot be made, a loop is left, or a signal comes."""

from __future__ import annotations

import _thread
import contextlib
import gc
import re
import signal
import threading
import time
import traceback
import weakref

import numpy as np
import pytest

import evenstride as es
from loader_support import (
    Plain,
    collator,
    counted,
    in_threads,
    loader_of,
    no_threads,
    plan_of,
    ragged,
    rows,
    sampler_of,
)

KINDS = [True, False]


class BrokenError(Exception):
    pass


class Broken(Plain):
    """Rows of which some cannot be read."""

    def __init__(self, dataset, bad, error=BrokenError):
        super().__init__(dataset)
        self.bad = set(bad)
        self.error = error

    def __getitem__(self, index):
        if index in self.bad:
            msg = f"row {index}"
            raise self.error(msg)
        return super().__getitem__(index)


def broken_loader(at, *, error=BrokenError, **options):
    """Return a loader whose batches at some places of the plan cannot be made, and the plan."""
    plan = plan_of(loader_of())
    dataset = ragged()
    bad = Broken(dataset, [plan[place][0] for place in at], error)
    return es.Loader(bad, sampler_of(dataset), collator(), **options), plan


def native_broken_loader(at, **options):
    """Likewise, without Python: values that do not fit into the type that is asked for."""
    plan = plan_of(loader_of())
    whole = ragged()
    values = [whole[i]["input_ids"].numpy().copy() for i in range(len(whole))]
    for place in at:
        values[plan[place][0]][0] = 2**40
    offsets = np.cumsum([0, *map(len, values)])
    dataset = es.RaggedDataset(
        {
            "input_ids": (np.concatenate(values).astype(np.int64), offsets),
            "row": np.arange(len(whole)),
        }
    )
    import torch  # noqa: PLC0415

    collate = es.PadCollator({"input_ids": es.Field(dtype=torch.int32)})
    return es.Loader(dataset, sampler_of(dataset), collate, **options), plan


@pytest.mark.parametrize("num_workers", [1, 4])
@pytest.mark.parametrize("make", [broken_loader, native_broken_loader])
def test_an_error_comes_after_the_batches_before_it_and_leaves_no_threads(make, num_workers):
    loader, plan = make([5, 7], num_workers=num_workers)
    taken = []
    began = time.monotonic()
    kind = BrokenError if make is broken_loader else ValueError
    batches = iter(loader)
    with pytest.raises(kind):
        taken.extend(map(rows, batches))
    assert time.monotonic() - began < 1
    assert taken == plan[:5]
    assert no_threads(1)
    assert next(batches, "over") == "over"
    assert loader.state_dict()["sampler"]["step"] == 5


def test_an_error_tells_where_it_was_raised():
    loader, _ = broken_loader([0])
    with pytest.raises(BrokenError, match=r"^row ") as raised:
        next(iter(loader))
    names = [frame.name for frame in traceback.extract_tb(raised.value.__traceback__)]
    assert names[-1] == "__getitem__"
    assert "__next__" in names
    assert names.index("__next__") < names.index("__getitem__")


@pytest.mark.parametrize("make", [broken_loader, native_broken_loader])
def test_an_error_out_of_order_comes_at_once_to_all(make):
    loader, plan = make([9], targets=3, in_order=False)
    taken = [[], [], []]

    def run(target):
        for batch in loader.targets[target]:
            taken[target].append(rows(batch))

    errors = in_threads(*(lambda k=k: run(k) for k in range(3)))
    assert len(errors) == 3
    assert len({str(error) for error in errors}) == 1
    assert counted(batch for part in taken for batch in part) <= counted(plan)
    assert no_threads()


@pytest.mark.parametrize("make", [broken_loader, native_broken_loader])
def test_an_error_in_order_comes_to_all_and_after_the_batches_before_it(make):
    loader, plan = make([7], targets=3, depth=2)
    taken = [[], [], []]

    def run(target):
        for batch in loader.targets[target]:
            taken[target].append(rows(batch))

    errors = in_threads(*(lambda k=k: run(k) for k in range(3)))
    assert len(errors) == 3
    for k in range(3):  # Some learn of it when the first has met it.
        assert taken[k] == plan[:7][k::3][: len(taken[k])]
    assert any(taken[k] == plan[:7][k::3] for k in range(3))
    assert no_threads()


def test_each_consumer_gets_the_traceback_of_the_worker_and_its_own():
    loader, _ = broken_loader([0], targets=2, in_order=False)
    lengths = []

    def run(target):
        try:
            next(iter(loader.targets[target]))
        except BrokenError as error:
            lengths.append(len(traceback.extract_tb(error.__traceback__)))

    run(0)
    run(1)
    assert lengths[0] == lengths[1]


def test_stop_iteration_in_a_worker_is_not_the_end():
    loader, plan = broken_loader([2], error=StopIteration)
    batches = iter(loader)
    assert [rows(next(batches)) for _ in range(2)] == plan[:2]
    message = "The data set or `collate` raised StopIteration for a batch."
    with pytest.raises(RuntimeError, match=f"^{re.escape(message)}$") as raised:
        next(batches)
    assert isinstance(raised.value.__cause__, StopIteration)


def test_an_error_does_not_wait_for_a_worker_that_takes_long():
    plan = plan_of(loader_of())
    dataset = ragged()
    goes_on = threading.Event()

    class Slow(Broken):
        def __getitem__(self, index):
            if index == plan[1][0]:
                goes_on.wait(20)
            return super().__getitem__(index)

    loader = es.Loader(
        Slow(dataset, [plan[0][0]]), sampler_of(dataset), collator(), in_order=False, num_workers=2
    )
    began = time.monotonic()
    with pytest.raises(BrokenError):
        next(iter(loader))
    assert time.monotonic() - began < 1
    goes_on.set()
    assert no_threads()


def test_an_error_keeps_nothing_alive():
    loader, _ = broken_loader([0])
    dataset = weakref.ref(loader._dataset)
    batches = iter(loader)
    with pytest.raises(BrokenError):
        next(batches)
    del loader, batches
    gc.collect()
    assert dataset() is None


def test_an_error_that_another_replaces_waits_for_no_lock():
    """Each is let go of by a worker, which needs the GIL for it, while consumers hold that."""
    dataset = ragged()
    everything = Broken(dataset, range(200))
    for _ in range(100):
        loader = es.Loader(everything, sampler_of(dataset), collator(), num_workers=8)
        with pytest.raises(BrokenError):
            next(iter(loader))
        loader.stats()
    assert no_threads()


@pytest.mark.parametrize("is_native", KINDS)
@pytest.mark.parametrize("in_order", [True, False])
def test_leaving_a_loop_ends_the_threads(is_native, in_order):
    loader = loader_of(is_native=is_native, in_order=in_order)
    for step, _ in enumerate(loader):
        if step == 3:
            break
    assert no_threads(1)
    assert loader.state_dict()["sampler"]["step"] + len(loader.state_dict()["taken"]) == 4


@pytest.mark.parametrize("is_native", KINDS)
def test_the_end_of_a_pass_is_the_end_of_its_threads(is_native):
    loader = loader_of(is_native=is_native)
    for _ in loader:
        pass
    assert no_threads(0.2)


@pytest.mark.parametrize("is_native", KINDS)
def test_an_iterator_in_a_cycle_ends_with_the_cycle(is_native):
    loader = loader_of(is_native=is_native, depth=2)
    holder = [iter(loader)]
    next(holder[0])
    holder.append(holder)
    assert not no_threads(0.05)
    del holder
    gc.collect()
    assert no_threads(1)


@pytest.mark.parametrize("is_native", KINDS)
def test_a_loader_that_nobody_holds_ends_its_threads(is_native):
    loader = loader_of(is_native=is_native, targets=2, depth=2)
    next(iter(loader.targets[0]))  # The other one never begins.
    assert not no_threads(0.05)
    kept = weakref.ref(loader)
    del loader
    assert kept() is None  # Without the collector.
    assert no_threads(1)


def test_the_collector_may_end_an_iterator_in_a_thread_of_another_pass():
    dataset = ragged()
    garbage = loader_of(is_native=False, depth=2)

    class Collecting(Plain):
        def __getitem__(self, index):
            cycle = [iter(garbage)]
            next(cycle[0])
            cycle.append(cycle)
            del cycle
            gc.collect()
            return super().__getitem__(index)

    loader = es.Loader(Collecting(dataset), sampler_of(dataset), collator())
    batches = iter(loader)
    assert [rows(next(batches)) for _ in range(3)] == plan_of(loader)[:3]
    batches.close()
    assert no_threads()


def test_a_dataset_may_hold_a_lock_while_an_iterator_ends_in_its_thread():
    """No worker is waited for for good, because it may wait for the one that waits."""
    dataset, lock = ragged(), threading.Lock()
    own, has_closed = [], []

    class Locking(Plain):
        def __getitem__(self, index):
            with lock:
                if own and threading.current_thread().name.startswith("evenstride"):
                    own.pop().close()
                    has_closed.append(True)
                return super().__getitem__(index)

    loader = es.Loader(Locking(dataset), sampler_of(dataset), collator(), num_workers=4, depth=50)
    batches = iter(loader)
    own.append(batches)
    with contextlib.suppress(RuntimeError):
        list(batches)
    assert no_threads()
    assert has_closed


def slow_loader(pause_s, **options):
    dataset = ragged()

    class Slow(Plain):
        def __getitem__(self, index):
            time.sleep(pause_s)
            return super().__getitem__(index)

    return es.Loader(Slow(dataset), sampler_of(dataset), collator(), **options)


def test_a_wait_that_was_interrupted_goes_on():
    loader = slow_loader(0.05, num_workers=1)
    plan = plan_of(loader)
    batches, taken, interrupts = iter(loader), [], 0
    while len(taken) < 4:
        timer = threading.Timer(0.02, _thread.interrupt_main)
        timer.start()
        try:
            taken.append(rows(next(batches)))
            timer.join()
            time.sleep(0.01)  # Where a late one is caught, without a batch in hand.
        except KeyboardInterrupt:
            interrupts += 1
        timer.join()
    assert taken == plan[:4]
    assert interrupts > 2
    assert loader.state_dict()["sampler"]["step"] == 4
    batches.close()


def test_an_interrupt_right_after_the_last_batch_does_not_repeat_the_epoch(monkeypatch):
    loader = loader_of()
    batches = iter(loader)
    for _ in range(len(loader) - 1):
        next(batches)

    def interrupt(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(batches.running, "_follow", interrupt)
        with pytest.raises(KeyboardInterrupt):
            next(batches)
    assert next(batches, "over") == "over"
    assert [rows(batch) for batch in loader] == plan_of(loader, 1)


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs timers")
def test_whatever_a_handler_raises_ends_the_wait_but_not_the_pass():
    class TooSlowError(Exception):
        pass

    def interrupt(*_):
        raise TooSlowError

    loader = slow_loader(0.05, num_workers=1)
    batches = iter(loader)
    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.02)
        with pytest.raises(TooSlowError):
            next(batches)
        signal.setitimer(signal.ITIMER_REAL, 0)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert rows(next(batches)) == plan_of(loader)[0]
    batches.close()


def test_an_error_while_a_batch_is_moved_is_raised_and_the_loop_can_go_on():
    class Stubborn:
        def to(self, *_, **__):
            msg = "no room"
            raise MemoryError(msg)

    loader = loader_of(is_native=False, collate=lambda _: Stubborn(), device="meta")
    batches = iter(loader)
    for _ in range(2):
        with pytest.raises(MemoryError, match=r"^no room$"):
            next(batches)
    assert loader.state_dict()["sampler"]["step"] == 0


def test_fewer_threads_than_asked_for_will_do(monkeypatch):
    start, started = threading.Thread.start, []

    def limited(thread):
        if len(started) == 2:
            msg = "can't start new thread"
            raise RuntimeError(msg)
        started.append(thread)
        start(thread)

    loader = loader_of(is_native=False, num_workers=5)
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", limited)
        assert [rows(batch) for batch in loader] == plan_of(loader)
        with pytest.raises(RuntimeError, match=r"^can't start new thread$"):
            next(iter(loader))
    assert [rows(batch) for batch in loader] == plan_of(loader, 1)
