"""The end of an interpreter whose daemon threads are amid native work."""

from __future__ import annotations

import subprocess
import sys

import pytest

SCRIPT = """
import os, threading, time
import numpy as np
import evenstride as es

dataset = es.RaggedDataset({{"input_ids": (np.ones(100_000, np.int32), np.arange(20_001) * 5)}})
collator = es.PadCollator({{"input_ids": es.Field()}}).bound_to(dataset).native
sampler = es.BucketBatchSampler(np.tile(dataset.lengths, 20), token_budget=64)
indices = list(range(5000))
begun = threading.Event()


def collate():
    collator.collate(indices)  # No tensors: the end of one lets go of the GIL as torch does it.


def plan():
    sampler.set_epoch(sampler.epoch + 1)
    next(iter(sampler))


def repeat():
    while True:
        {work}
        begun.set()


# Each child comes to the end of an interpreter, and imports nothing anew.
for _ in range({children}):
    child = os.fork()
    if child == 0:
        threading.Thread(target=repeat, daemon=True).start()
        begun.wait()
        time.sleep(0.01)
        break
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""
CHILDREN = 3


@pytest.mark.parametrize("work", ["collate()", "plan()", "dataset.lengths; collate()"])
def test_a_daemon_thread_amid_native_work_does_not_abort_the_process(work):
    script = SCRIPT.format(work=work, children=CHILDREN)
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "0\n" * CHILDREN, "")
