"""Interrupts that come together with a batch, and whose handler ends what the batch is for."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="needs signals")

# One thread makes the batches, and has the GIL from the signal on until the batch is delivered, so
# that the main thread meets both at once.
SCRIPT = """
import os, signal, sys, threading, time
sys.path.insert(0, {folder!r})
from loader_support import loader_of

class Batch:
    def __del__(self):
        print("queues", loader.queue_depths())

def collate(samples):
    made.append(samples)
    if len(made) == 3:
        is_waiting.wait()
        time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGINT)
    return Batch()

def end(*_):
    {end}
    raise KeyboardInterrupt

made, is_waiting = [], threading.Event()
signal.signal(signal.SIGINT, end)
loader = loader_of(is_native=False, collate=collate, num_workers=1, depth=1, targets={targets})
batches, others = iter(loader.targets[0]), iter(loader.targets[-1])
kept = [{first}, next(batches)]
is_waiting.set()
try:
    next(batches)
except KeyboardInterrupt:
    print("interrupted")
state = loader.state_dict()
print("state", state["sampler"]["step"], state["taken"], flush=True)
os._exit(0)
"""


@pytest.mark.parametrize(
    ("end", "targets", "first"),
    [
        ("loader.close()", 1, "next(batches)"),
        ("batches.close()", 2, "next(others)"),
    ],
)
def test_a_batch_that_nobody_gets_dies_where_it_may_ask_for_the_loader(end, targets, first):
    folder = str(Path(__file__).parent)
    script = SCRIPT.format(folder=folder, end=end, targets=targets, first=first)
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=30, check=False
    )
    assert done.stderr == ""
    dropped, *_, interrupted, state = done.stdout.splitlines()
    assert dropped.startswith("queues [0")
    assert (interrupted, state) == ("interrupted", "state 2 []")
