"""A loader and other processes: forks, interrupts, and the end of the interpreter."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path

import pytest
from torch.utils.data import DataLoader

import evenstride as es
from evenstride import _core
from loader_support import (
    loader_of,
    no_threads,
    plan_of,
    ragged,
    rows,
    sampler_of,
)
from test_forks import run_in_child

KINDS = [True, False]
FORKED = (
    "A loader must be used in the process in which its pass began, but this process was forked "
    "from it; make a new loader here."
)
needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
needs_signals = pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX signals")


def epoch_in_child(loader, results):
    before = loader.state_dict()
    results.put((before, [rows(batch) for batch in loader]))


def uses_in_child(loader, batches, results):
    said = []
    for use in (lambda: next(batches), lambda: next(iter(loader)), loader.stats):
        with pytest.raises(RuntimeError) as raised:
            use()
        said.append(str(raised.value))
    loader.close()
    state = loader_of().state_dict()
    fresh = es.Loader(loader._dataset, loader._sampler, loader._collate)
    fresh.load_state_dict(state)
    results.put((said, [rows(batch) for batch in fresh]))


@needs_fork
@pytest.mark.parametrize("is_native", KINDS)
def test_a_child_of_a_process_amid_a_pass_needs_a_loader_of_its_own(is_native):
    loader = loader_of(is_native=is_native)
    plan = plan_of(loader)
    batches = iter(loader)
    assert rows(next(batches)) == plan[0]
    said, epoch = run_in_child(uses_in_child, loader, batches)
    assert said[:2] == [FORKED] * 2
    assert len(said) == 3
    assert epoch == plan
    assert [rows(batch) for batch in batches] == plan[1:]


@needs_fork
@pytest.mark.parametrize("is_native", KINDS)
def test_a_child_can_use_a_loader_before_its_first_pass(is_native):
    loader = loader_of(is_native=is_native)
    assert run_in_child(epoch_in_child, loader) == (loader.state_dict(), plan_of(loader))
    assert [rows(batch) for batch in loader] == plan_of(loader)


@needs_fork
@pytest.mark.parametrize("is_native", KINDS)
def test_a_child_can_use_a_loader_between_passes(is_native):
    loader = loader_of(is_native=is_native)
    assert [rows(batch) for batch in loader] == plan_of(loader)
    assert run_in_child(epoch_in_child, loader) == (loader.state_dict(), plan_of(loader, 1))
    assert [rows(batch) for batch in loader] == plan_of(loader, 1)
    loader.close()
    assert run_in_child(epoch_in_child, loader) == (loader.state_dict(), plan_of(loader, 2))


@needs_fork
def test_a_child_can_be_forked_while_another_thread_begins_passes():
    loader, is_over = loader_of(), threading.Event()

    def begin():
        while not is_over.is_set():
            next(iter(loader))

    def use_in_child(loader, results):
        with contextlib.suppress(RuntimeError):  # It is forked amid a pass, or between two.
            next(iter(loader))
        fresh = es.Loader(loader._dataset, loader._sampler, loader._collate)
        fresh.load_state_dict(loader_of().state_dict())
        results.put([rows(batch) for batch in fresh])

    thread = threading.Thread(target=begin, daemon=True)
    thread.start()
    try:
        for _ in range(10):
            assert run_in_child(use_in_child, loader) == plan_of(loader)
    finally:
        is_over.set()
        thread.join()
    assert no_threads()


@needs_fork
def test_a_child_does_not_wait_for_a_thread_that_it_does_not_have():
    loader, has_lock, is_over = loader_of(), threading.Event(), threading.Event()

    def hold():
        with loader._lock:
            has_lock.set()
            is_over.wait(60)

    thread = threading.Thread(target=hold, daemon=True)
    thread.start()
    has_lock.wait()
    try:
        assert run_in_child(epoch_in_child, loader)[1] == plan_of(loader)
    finally:
        is_over.set()
        thread.join()


@needs_fork
def test_a_batch_outlives_a_fork_on_both_sides():
    loader = loader_of()
    batches = iter(loader)
    batch = next(batches)
    assert run_in_child(lambda kept, results: results.put(rows(kept)), batch) == rows(batch)
    del batch
    assert [rows(one) for one in batches] == plan_of(loader)[1:]


@needs_fork
@pytest.mark.parametrize("is_native", KINDS)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_processes_may_be_started_while_threads_run(is_native):
    loader = loader_of(1000, is_native=is_native)
    dataset = ragged(30)
    taken = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        for step, batch in enumerate(loader):
            taken.append(rows(batch))
            if step % 40 == 0:
                subprocess.run([sys.executable, "-c", ""], check=True)
                other = DataLoader(
                    dataset,
                    batch_sampler=sampler_of(dataset),
                    collate_fn=loader._collate,
                    num_workers=2,
                    multiprocessing_context="fork",
                )
                inner = [row for one in other for row in rows(one)]
                assert sorted(inner) == list(range(30))
    assert taken == plan_of(loader)


SCRIPT = """
import sys, threading, time
sys.path.insert(0, {folder!r})
import evenstride as es
from loader_support import Plain, collator, loader_of, ragged, sampler_of

class Stuck(Plain):
    def __getitem__(self, index):
        print("stuck ", end="", flush=True)
        time.sleep(60)

def consume(target):
    while True:
        for batch in target:
            time.sleep(0.001)

def stuck():
    dataset = ragged()
    return es.Loader(Stuck(dataset), sampler_of(dataset), collator(), num_workers=3)

{code}
"""


def run_script(code, **options):
    script = SCRIPT.format(folder=str(Path(__file__).parent), code=code)
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", script],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        **options,
    )


ENDINGS = {
    "amid passes": """
kept = []
for is_native in (True, False):
    for loader in (loader_of(is_native=is_native) for _ in range(4)):
        kept.append(iter(loader))
        next(kept[-1])
    cycle = [iter(loader_of(is_native=is_native))]
    next(cycle[0])
    cycle.append(cycle)
    batch = next(iter(loader_of(is_native=is_native)))
    for batch in loader_of(is_native=is_native):
        pass
sys.exit()
""",
    "in a forked child": """
import os, warnings
warnings.simplefilter("ignore")
kept = [iter(loader_of(is_native=is_native)) for is_native in (True, False)]
for one in kept:
    next(one)
child = os.fork()
if child:
    _, status = os.waitpid(child, 0)
    sys.exit(status)
""",
    "with consumers": """
for is_native in (True, False):
    loader = loader_of(is_native=is_native, targets=2, in_order=False)
    for target in loader.targets:
        threading.Thread(target=consume, args=(target,), daemon=True).start()
    alone = loader_of(is_native=is_native, targets=2, depth=1)
    threading.Thread(target=lambda: list(alone.targets[0]), daemon=True).start()
time.sleep(0.3)
""",
    "before a consumer": """
def run(loader):
    for batch in loader:
        time.sleep(0.0005)
for is_native in (True, False):
    threading.Thread(target=run, args=(loader_of(1000, is_native=is_native),)).start()
""",
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_the_interpreter_ends_quietly(ending):
    done = run_script(ENDINGS[ending])
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_stuck_worker_does_not_hold_up_the_end():
    code = """
l = stuck()
threading.Thread(target=lambda: next(iter(l)), daemon=True).start()
time.sleep(0.3)
import atexit
atexit.register(lambda: print(time.monotonic(), flush=True))
"""
    done = run_script(code)
    assert done.returncode == 0
    assert done.stderr == ""
    assert done.stdout.startswith("stuck stuck stuck ")
    assert float(done.stdout.split()[-1]) > time.monotonic() - 4


def test_a_pass_cannot_begin_as_the_interpreter_ends():
    code = """
import atexit
def begin():
    try:
        next(iter(loader_of()))
    except RuntimeError as error:
        print(error)
import evenstride.passes
atexit.unregister(evenstride.passes._exit.begin)
atexit.register(begin)
atexit.register(evenstride.passes._exit.begin)
"""
    done = run_script(code)
    assert done.stderr == ""
    assert done.stdout == "A pass must begin before the interpreter ends, but it is ending.\n"


def interrupted(code, pause_s=0.5):
    """Interrupt a script once it says "ready"; return what it said, and when that was."""
    script = SCRIPT.format(folder=str(Path(__file__).parent), code=code)
    with subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            while (line := process.stdout.readline().strip()) not in ("ready", ""):
                pass
            assert line == "ready"
            time.sleep(pause_s)
            sent_s = time.monotonic()
            process.send_signal(signal.SIGINT)
            output, errors = process.communicate(timeout=30)
        finally:
            process.kill()
    assert time.monotonic() - sent_s < 5
    return process.returncode, output, errors, sent_s


@needs_signals
def test_an_interrupt_while_waiting_comes_within_a_second():
    code = """
loader = stuck()
print("ready", flush=True)
try:
    next(iter(loader))
except KeyboardInterrupt:
    print(time.monotonic(), flush=True)
"""
    returned, output, errors, sent_s = interrupted(code)
    assert returned == 0
    assert errors == ""
    assert float(output.split()[-1]) - sent_s < 1


@needs_signals
def test_an_interrupt_that_nobody_catches_ends_the_process():
    returned, _, errors, _ = interrupted("print('ready', flush=True)\nlist(stuck())")
    assert returned == -signal.SIGINT
    assert errors.rstrip().endswith("KeyboardInterrupt")
    assert "Error" not in errors


@needs_signals
def test_an_interrupt_while_native_threads_wait_for_room_comes_too():
    code = """
loader = loader_of(targets=2, depth=1)
print("ready", flush=True)
list(loader.targets[0])
"""
    returned, _, errors, _ = interrupted(code)
    assert returned == -signal.SIGINT
    assert errors.rstrip().endswith("KeyboardInterrupt")


@needs_signals
@pytest.mark.parametrize("in_order", [True, False])
def test_a_batch_that_comes_with_an_interrupt_is_not_lost(in_order):
    options = {"num_batches": 9, "taken": [], "num_targets": 1, "depth": 9, "num_producers": 1}
    delivery = _core.Delivery(**options, in_order=in_order)
    for number in range(3):
        assert delivery.claim() == number
    is_waiting = threading.Event()

    def deliver():
        is_waiting.wait()
        time.sleep(0.01)
        delivery.put(0, "batch")  # This thread has the GIL until the signal is there too.
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=deliver)
    thread.start()
    is_waiting.set()
    with pytest.raises(KeyboardInterrupt):
        delivery.take(0)
    thread.join()
    assert delivery.progress() == (0, [], 0)
    delivery.put(2, "third")
    delivery.put(1, "second")
    assert [delivery.take(0) for _ in range(3)] == [(0, "batch"), (1, "second"), (2, "third")]
    assert delivery.progress() == (3, [], 3)
