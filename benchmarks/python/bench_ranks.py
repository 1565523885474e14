"""Memory of the ranks of a host that plan the same epoch, with and without a cache of plans.

Each rank is a process with a `BucketBatchSampler` over the same memory-mapped lengths. All begin at
once. What they hold is the kernel's account, beyond what they held before: a page that several map
counts once (PSS). Peaks are seen by looking again and again, and so may be a little higher.
"""

from __future__ import annotations

import argparse
import json
import select
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

import evenstride as es
from harness import (
    EDGES,
    MAX_BATCH_SIZE,
    RESULTS,
    TOKEN_BUDGET,
    Table,
    argument_parser,
    finish_tables,
    load_lengths,
    three_digits,
)

NAME = "ranks"
SAMPLES = (10_000_000, 30_000_000)
QUICK = (200_000,)
RANKS = 4
LOOK_AGAIN_S = 0.01
MEMORY_FOLDER = Path("/dev/shm")  # noqa: S108 - Memory is what is asked for.
HEAD = [
    "samples",
    "cache",
    "peak, MiB",
    "after the first batch",
    "of it each rank's own",
    "once all was read",
    "files",
    "a sample, bytes",
    "first batch, s",
]


@dataclass(frozen=True)
class Memory:
    """MiB of all ranks together: each page once, and what each has for itself alone."""

    shared_out: float
    own: float

    @classmethod
    def of(cls, processes: list[subprocess.Popen[str]]) -> Memory:
        """Return what processes hold now."""
        fields: dict[str, int] = {}
        for process in processes:
            text = Path(f"/proc/{process.pid}/smaps_rollup").read_text(encoding="utf-8")
            for line in text.splitlines()[1:]:
                name, size, *_ = line.split()
                fields[name] = fields.get(name, 0) + int(size)
        return cls(fields["Pss:"] / 1024, fields["Anonymous:"] / 1024)

    def beyond(self, before: Memory) -> Memory:
        """Return what there is more than before."""
        return Memory(self.shared_out - before.shared_out, self.own - before.own)


@dataclass(frozen=True)
class Found:
    """What the ranks of a host held, beyond what they began with."""

    samples: int
    ranks: int
    cache: str
    peak: Memory
    first: Memory
    read: Memory
    files_mib: float
    first_batch_s: list[float]

    def cells(self) -> list[str]:
        """Return the line of the table."""
        return [
            f"{self.samples:,}",
            self.cache,
            f"{self.peak.shared_out:,.0f}",
            f"{self.first.shared_out:,.0f}",
            f"{self.first.own / self.ranks:,.0f}",
            f"{self.read.shared_out:,.0f}",
            f"{self.files_mib:,.0f}" if self.files_mib else "-",
            f"{self.read.shared_out * 2**20 / self.samples:.1f}",
            three_digits(max(self.first_batch_s)),
        ]


def new_sampler(lengths: Path, num_ranks: int, rank: int, cache: str) -> es.BucketBatchSampler:
    return es.BucketBatchSampler(
        np.load(lengths, mmap_mode="r"),
        token_budget=TOKEN_BUDGET,
        max_batch_size=MAX_BATCH_SIZE,
        buckets=EDGES,
        num_replicas=num_ranks,
        rank=rank,
        plan_cache=cache or None,
    )


def be_rank(lengths: Path, num_ranks: int, rank: int, cache: str) -> None:
    """Be one rank: whenever a line comes in, take one step and answer."""
    new_sampler_of_few(rank)
    answer("ready")
    start = time.perf_counter()
    sampler = new_sampler(lengths, num_ranks, rank, cache)
    batch = next(iter(sampler))
    answer([time.perf_counter() - start, batch])
    answer(int(sampler.plan.indices.sum(dtype=np.int64)))


def new_sampler_of_few(rank: int) -> None:
    """Let the first use of everything lie behind."""
    with tempfile.TemporaryDirectory() as folder:
        lengths = Path(folder) / "lengths.npy"
        np.save(lengths, np.arange(1, 1000, dtype=np.uint16))
        list(new_sampler(lengths, RANKS, rank % RANKS, folder))


def answer(value: object) -> None:
    print(json.dumps(value), flush=True)
    sys.stdin.readline()


def run_ranks(lengths: Path, samples: int, ranks: int, cache: str, folder: str) -> Found:
    """Let ranks plan, and look at what they hold."""
    command = [sys.executable, __file__, "--lengths", str(lengths), "--ranks", str(ranks)]
    processes = [
        subprocess.Popen(  # noqa: S603 - This file's own.
            [*command, "--rank", str(rank), "--cache", folder],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(ranks)
    ]
    try:
        answers(processes)
        before = peak = Memory.of(processes)
        go_on(processes)
        while any(not has_answered(process) for process in processes):
            peak = larger(peak, Memory.of(processes))
            time.sleep(LOOK_AGAIN_S)
        taken = answers(processes)
        first = Memory.of(processes)
        go_on(processes)
        sums = answers(processes)
        read = Memory.of(processes)
    finally:
        for process in processes:
            process.kill()
            process.communicate()
    assert len(set(sums)) == 1
    batches = [batch for _, batch in taken]
    assert len({index for batch in batches for index in batch}) == sum(map(len, batches))
    files = [path.stat().st_size for path in Path(folder).iterdir()] if folder else []
    return Found(
        samples,
        ranks,
        cache,
        larger(peak, first).beyond(before),
        first.beyond(before),
        read.beyond(before),
        sum(files) / 2**20,
        [seconds for seconds, _ in taken],
    )


def answers(processes: list[subprocess.Popen[str]]) -> list:
    """Wait for what each process has to say."""
    return [json.loads(process.stdout.readline()) for process in processes]


def larger(one: Memory, other: Memory) -> Memory:
    return max(one, other, key=lambda memory: memory.shared_out)


def has_answered(process: subprocess.Popen[str]) -> bool:
    return bool(select.select([process.stdout], [], [], 0)[0])


def go_on(processes: list[subprocess.Popen[str]]) -> None:
    for process in processes:
        process.stdin.write("\n")
        process.stdin.flush()


def measure(samples: int, ranks: int) -> list[Found]:
    """Run the ranks without a cache, and with one on the disk and in memory."""
    found = []
    with tempfile.TemporaryDirectory() as folder:
        lengths = Path(folder) / "lengths.npy"
        copies = -(-samples // len(load_lengths()))
        np.save(lengths, load_lengths(copies)[:samples])
        found.append(run_ranks(lengths, samples, ranks, "none", ""))
        for name, place in (("on a disk", folder), ("in memory", MEMORY_FOLDER)):
            with tempfile.TemporaryDirectory(dir=place) as cache:
                found.append(run_ranks(lengths, samples, ranks, name, cache))
    return found


def main() -> int:
    parser = argument_parser(__doc__, NAME)
    parser.add_argument("--samples", type=int, nargs="+", help="how many there are")
    parser.add_argument("--ranks", type=int, default=RANKS, help="processes of the host")
    for name, kind in (("lengths", Path), ("rank", int), ("cache", str)):
        parser.add_argument(f"--{name}", type=kind, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.rank is not None:
        be_rank(arguments.lengths, arguments.ranks, arguments.rank, arguments.cache)
        return 0
    if arguments.json is None and not arguments.quick:
        arguments.json = RESULTS / f"{NAME}.json"
    sizes = arguments.samples or (QUICK if arguments.quick else SAMPLES)
    found = [row for samples in sizes for row in measure(samples, arguments.ranks)]
    table = Table(
        f"Memory of {arguments.ranks} ranks on one host, beyond what they began with",
        HEAD,
        [row.cells() for row in found],
    )
    return finish_tables(NAME, [table], arguments, measured=[asdict(row) for row in found])


if __name__ == "__main__":
    sys.exit(main())
