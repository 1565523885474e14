"""The end of an interpreter whose daemon threads are amid native work."""

from __future__ import annotations

import subprocess
import sys

import pytest

SCRIPT = """
import threading, time
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


threading.Thread(target=repeat, daemon=True).start()
begun.wait()
time.sleep(0.01)
"""


@pytest.mark.parametrize("work", ["collate()", "plan()", "dataset.lengths; collate()"])
def test_a_daemon_thread_amid_native_work_does_not_abort_the_process(work):
    script = SCRIPT.format(work=work)
    for _ in range(3):
        done = subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60
        )
        assert (done.returncode, done.stderr) == (0, "")
