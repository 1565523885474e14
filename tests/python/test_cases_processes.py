"""Small inputs with known right answers, where other processes take part."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from torch.utils.data import DataLoader, Dataset

import evenstride as es
from support import lognormal

LINUX = pytest.mark.skipif(
    not Path("/proc/self/smaps_rollup").exists(), reason="needs the kernel's account of memory"
)


def private_bytes(pid):
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return 1024 * sum(int(size) for size in re.findall(r"Private_\w+:\s+(\d+) kB", text))


class Pids(Dataset):
    """Rows that tell which process read them, and how much memory it has for itself."""

    def __getitem__(self, index):
        return os.getpid()


@LINUX
@pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_workers_do_not_copy_the_lengths_or_the_plan():
    lengths = np.full(10_000_000, 600, np.uint16)
    sampler = es.BucketBatchSampler(lengths, token_budget=12_000, num_replicas=1)
    loader = DataLoader(
        Pids(), batch_sampler=sampler, num_workers=4, collate_fn=lambda rows: (rows[0], len(rows))
    )
    first, last = {}, {}
    for step, (pid, rows) in enumerate(loader):
        assert rows == 20
        if pid not in first:
            first[pid] = private_bytes(pid)
        if step >= 4990:
            last[pid] = private_bytes(pid)
        if step == 5000:
            break
    assert len(first) == 4
    for pid, size in last.items():
        assert size - first[pid] < 16 * 2**20


def test_no_python_object_is_kept_for_a_sample():
    lengths = np.full(1_000_000, 600, np.uint16)
    sampler = es.BucketBatchSampler(lengths, token_budget=12_000)
    sampler.plan  # noqa: B018 - Made before counting.
    tracemalloc.start()
    try:
        batches = iter(sampler)
        for _ in range(20_000):
            next(batches)
        kept, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 2**20
    assert peak < 8 * 2**20


PEAK = """
import resource, sys
import numpy as np
import evenstride as es
count = int(sys.argv[1])
lengths = np.tile(np.arange(100, 1100, dtype=np.uint16), count // 1000)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
plan = es.plan_epoch(lengths, token_budget=49_152, num_threads=2)
after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print((after - before) * 1024, len(plan))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="ru_maxrss is in other units elsewhere")
def test_the_peak_of_memory_is_a_dozen_bytes_a_sample():
    count = 20_000_000
    done = subprocess.run(
        [sys.executable, "-c", PEAK, str(count)], capture_output=True, text=True, check=True
    )
    extra, batches = map(int, done.stdout.split())
    assert extra < 12.5 * count + 16 * batches + 16 * 2**20


@pytest.mark.parametrize("ranks", [1, 1024])
def test_a_rank_makes_only_its_own_batches(ranks):
    lengths = np.full(200_000, 8, np.uint8)
    sampler = es.BucketBatchSampler(lengths, token_budget=8, num_replicas=ranks, rank=ranks - 1)
    batches = iter(sampler)
    next(batches)
    tracemalloc.start()
    try:
        for _ in range(100):
            next(batches)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2**18


RANK = """
import json, sys
import torch.distributed as dist
import evenstride as es
lengths = json.loads(sys.argv[1])
sampler = es.BucketBatchSampler(lengths, token_budget=8192)
if sys.argv[2] == "initialised":
    dist.init_process_group("gloo")
try:
    print(json.dumps([len(sampler), list(sampler)]))
except RuntimeError as error:
    print(json.dumps(str(error)))
if dist.is_initialized():
    dist.destroy_process_group()
"""


def run_ranks(lengths, mode, processes=2):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    running = [
        subprocess.Popen(
            [sys.executable, "-c", RANK, json.dumps(lengths), mode],
            env={
                **os.environ,
                "WORLD_SIZE": "2",
                "RANK": str(rank),
                "LOCAL_RANK": str(rank),
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port),
            },
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(processes)
    ]
    try:
        return [json.loads(process.communicate(timeout=90)[0]) for process in running]
    finally:
        for process in running:
            process.kill()
            process.communicate()


def test_a_sampler_built_before_the_process_group_has_the_right_rank_at_first_use():
    lengths = lognormal(300).tolist()
    results = run_ranks(lengths, "initialised")
    wanted = es.plan_epoch(lengths, token_budget=8192, num_replicas=2)
    for rank, (steps, batches) in enumerate(results):
        assert steps == wanted.num_steps
        assert batches == [batch.tolist() for batch in wanted.batches(rank)]


def test_a_sampler_used_before_the_process_group_says_what_to_do():
    for message in run_ranks(lognormal(300).tolist(), "too early", processes=1):
        assert "init_process_group" in message
        assert "WORLD_SIZE is 2" in message


def test_given_ranks_need_no_process_group(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    sampler = es.BucketBatchSampler([3, 4, 5], token_budget=8, num_replicas=1, rank=0)
    assert sorted(i for batch in sampler for i in batch) == [0, 1, 2]
    sampler = es.BucketBatchSampler([3, 4, 5], token_budget=8)
    for use in (len, list, lambda s: s.plan, lambda s: s.state_dict(), lambda s: s.step_info(0)):
        with pytest.raises(RuntimeError, match=r"WORLD_SIZE is 2.*init_process_group\(\) first\.$"):
            use(sampler)


def test_one_process_alone_is_rank_0_of_1(monkeypatch):
    for value in (None, "1"):
        monkeypatch.delenv("WORLD_SIZE", raising=False)
        if value:
            monkeypatch.setenv("WORLD_SIZE", value)
        sampler = es.BucketBatchSampler([3, 4, 5], token_budget=8)
        assert sampler.plan.num_replicas == 1
        assert sorted(i for batch in sampler for i in batch) == [0, 1, 2]
