"""Plans of up to 100 million samples, checked for what small ones do not show: `make soak`.

Times are those of all processors together, compared with others of the same run, and generously.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from itertools import islice

import numpy as np

import evenstride as es
from evenstride.peak_memory import PeakMemory
from evenstride.scaling import scale
from support import lognormal, real_lengths

MILLION = 1_000_000


class LimitError(Exception):
    """What was measured is not what it should be."""


def check(claim, figure, limit):
    print(f"{claim:76} {figure:8.4g}, at most {limit:g}", flush=True)  # noqa: T201
    if not figure <= limit:
        raise LimitError(claim)


def seconds_to_plan(lengths, options):
    """Return the shortest of three times, in seconds."""
    times = []
    for _ in range(3):
        begin = time.process_time()
        es.plan_epoch(lengths, **options)
        times.append(time.process_time() - begin)
    return min(times)


def distributions(count):
    return {
        "random": lognormal(count),
        "constant": np.full(count, 500),
        "ascending": np.arange(count) * 4096 // count,
        "descending": np.sort(lognormal(count))[::-1].copy(),
        "of two values": np.where(np.arange(count) % 3 == 0, 10, 4000),
    }


def check_distributions(small):
    """Time grows with the samples alone, and not with how their lengths are."""
    for composition in ("shuffle", "window", "frozen"):
        options = {"token_budget": 16_384, "composition": composition}
        seconds = {
            count: {
                name: seconds_to_plan(lengths, options)
                for name, lengths in distributions(count).items()
            }
            for count in (small, 10 * small)
        }
        for name, few in seconds[small].items():
            many = seconds[10 * small]
            check(f"{composition}, {name}: time of 10 times the samples", many[name] / few, 40)
            check(f"{composition}, {name}: time over random", many[name] / many["random"], 3)


def check_memory_and_next(count):
    """Memory is bytes a sample; how many ranks there are does not change how long `next` takes."""
    lengths = np.resize(real_lengths().astype(np.uint16), count)
    es.BucketBatchSampler([1], token_budget=1)  # It imports torch, which is not to be counted.
    medians = []
    for ranks in (1, 1024):
        with PeakMemory() as peak:
            sampler = es.BucketBatchSampler(
                lengths, token_budget=49_152, max_batch_size=64, num_replicas=ranks, rank=0
            )
            plan = sampler.plan
        if peak.extra is not None:
            extra = (peak.extra - 16 * len(plan)) / count
            check(f"{ranks} ranks: bytes a sample at the peak", extra, 18)
        batches = iter(sampler)
        times = []
        # A rank has a few thousand batches. Medians, since lists are made some at a time.
        for _ in islice(range(4000), plan.num_steps):
            begin = time.perf_counter()
            next(batches)
            times.append(time.perf_counter() - begin)
        medians.append(statistics.median(times))
    check("time of next with 1,024 ranks over that with 1", medians[1] / medians[0], 3)


def check_tails(count):
    """On 512 ranks, a percent more batches is the most that whole steps of 100 million cost."""
    ranks = 512 * count // (100 * MILLION)
    options = {"token_budget": 49_152, "max_batch_size": 64}
    *_, (_, result) = scale(real_lengths(), samples=count, num_replicas=[ranks], **options)
    check(f"{ranks} ranks: batches more than on 1, in percent", 100 * result.more_batches, 1)
    check(f"{ranks} ranks: time spent waiting, in percent", 100 * result.waiting, 1)


def main():
    """Run all checks, and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--millions", type=int, default=100, help="of samples, at most")
    count = parser.parse_args().millions * MILLION
    try:
        check_distributions(min(MILLION, count // 10))
        check_memory_and_next(count)
        check_tails(count)
    except LimitError as error:
        print(f"Not so: {error}.")  # noqa: T201
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
