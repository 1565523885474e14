"""Loaders of all kinds under random use for long: `make soak`.

Each round is a loader of random options, whose consumers pause, leave, fail, are closed or resumed
at random. Every batch is checked value by value, every pass against its plan, and the memory of the
process must not grow.
"""

from __future__ import annotations

import argparse
import ctypes
import random
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

import evenstride as es
from loader_support import Plain, collator, in_threads, names_of_threads, ragged, rows, sampler_of

SIZES = (40, 150, 400, 1200)
MEGABYTE = 2**20


class SoakError(Exception):
    """What a data set raises now and then."""


class Fragile(Plain):
    """Rows of which one cannot be read at times."""

    bad = -1

    def __getitem__(self, index):
        if index == self.bad:
            raise SoakError
        return super().__getitem__(index)


@dataclass
class Soak:
    """A long run: its random numbers, and what it has done."""

    seed: int
    batches: int = 0
    rounds: Counter = field(default_factory=Counter)
    resident: list = field(default_factory=list)

    def __post_init__(self):
        self.random = random.Random(self.seed)
        self.datasets = {size: ragged(size) for size in SIZES}

    def run(self, num_batches):
        while self.batches < num_batches:
            self.round()
            if self.rounds.total() % 20 == 0:
                self.resident.append(resident_bytes())

    def round(self):
        size = self.random.choice(SIZES)
        dataset = self.datasets[size]
        is_native = self.random.random() < 0.6
        if not is_native:
            dataset = Fragile(dataset)
        loader = es.Loader(
            dataset,
            sampler_of(self.datasets[size], seed=self.random.randrange(9)),
            collator(position_ids=self.random.random() < 0.5),
            num_workers=self.random.randint(1, 6),
            depth=self.random.choice((1, 2, 3, 8, 40)),
            targets=self.random.choice((1, 1, 2, 3, 6)),
            in_order=self.random.random() < 0.5,
        )
        uses = [self.whole, self.whole, self.left, self.closed, self.resumed]
        use = self.random.choice(uses if is_native else [*uses, self.failed])
        use(loader)
        self.rounds[use.__name__] += 1
        del loader
        wait_for_threads()

    def consumers(self, loader, taken, *, most=None):
        """Return what takes from each target, at most so many batches."""
        pauses = random.Random(self.random.random())
        pause_s = self.random.choice((0, 0, 0.0005, 0.002))

        def consume(target, into):
            for batch in target:
                into.append(tuple(rows(batch)))
                if most is not None and len(into) >= most:
                    break
                if pause_s and pauses.random() < 0.2:
                    time.sleep(pauses.random() * pause_s)

        return [
            lambda target=target, into=into: consume(target, into)
            for target, into in zip(loader.targets, taken, strict=True)
        ]

    def check(self, loader, taken, *, is_whole=True):
        """Compare what was taken with the plan."""
        plan = [tuple(batch.tolist()) for batch in loader._sampler.plan.batches(0)]
        counts = Counter(chain(*taken))
        self.batches += counts.total()
        assert counts == Counter(plan) if is_whole else counts <= Counter(plan)
        if loader._options.in_order:
            for target, part in enumerate(taken):
                share = plan[target :: len(taken)]
                assert part == (share if is_whole else share[: len(part)])

    def whole(self, loader):
        for _ in range(self.random.randint(1, 3)):
            taken = [[] for _ in loader.targets]
            assert in_threads(*self.consumers(loader, taken)) == []
            self.check(loader, taken)
            assert loader.stats().memory_bytes == 0

    def left(self, loader):
        for _ in range(3):
            taken = [[] for _ in loader.targets]
            most = self.random.randint(1, 10)
            assert in_threads(*self.consumers(loader, taken, most=most)) == []
            self.check(loader, taken, is_whole=False)

    def closed(self, loader):
        taken = [[] for _ in loader.targets]
        wait_s = self.random.random() * 0.02
        ended = []

        def close():
            # Again and again: one that comes late begins a pass, and waits for the others in it.
            while len(ended) < len(taken):
                time.sleep(wait_s)
                loader.close()

        def consume(target):
            try:
                self.consumers(loader, taken)[target]()
            finally:
                ended.append(target)

        consumers = [lambda target=target: consume(target) for target in range(len(taken))]
        errors = in_threads(close, *consumers)
        assert all("was closed" in str(error) for error in errors)

    def resumed(self, loader):
        taken = [[] for _ in loader.targets]
        most = self.random.randint(1, (len(loader) - 1) // len(taken))
        assert in_threads(*self.consumers(loader, taken, most=most)) == []
        state = loader.state_dict()
        loader.load_state_dict(state)
        rest = [[] for _ in loader.targets]
        assert in_threads(*self.consumers(loader, rest)) == []
        plan = Counter(tuple(batch.tolist()) for batch in loader._sampler.plan.batches(0))
        counts = Counter(chain(*taken, *rest))
        self.batches += counts.total()
        assert counts == plan

    def failed(self, loader):
        plan = [batch.tolist() for batch in loader._sampler.plan.batches(0)]
        bad = self.random.randrange(len(plan))
        loader._dataset.bad = plan[bad][0]
        taken = [[] for _ in loader.targets]
        errors = in_threads(*self.consumers(loader, taken))
        assert errors
        assert all(isinstance(error, SoakError) for error in errors)
        counts = Counter(chain(*taken))
        self.batches += counts.total()
        assert counts <= Counter(map(tuple, plan))
        assert loader.state_dict()["sampler"]["step"] <= bad
        if loader._options.in_order:  # Others may be ahead of the one that meets it.
            assert set(taken[bad % len(taken)]) <= set(map(tuple, plan[:bad]))


def wait_for_threads():
    end_s = time.monotonic() + 10
    while names_of_threads():
        assert time.monotonic() < end_s, f"Threads are left: {names_of_threads()}."
        time.sleep(0.001)


def resident_bytes():
    """Return what the process needs, without what the allocator keeps; 0 where nobody tells."""
    status = Path("/proc/self/status")
    if not status.exists():
        return 0
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
    line = next(line for line in status.read_text().splitlines() if line.startswith("VmRSS"))
    return 1024 * int(line.split()[1])


def main():
    """Run for long, and say what was done."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batches", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    soak = Soak(arguments.seed)
    began_s = time.monotonic()
    for part in range(1, 11):
        soak.run(arguments.batches * part // 10)
        print(  # noqa: T201
            f"{soak.batches} batches in {soak.rounds.total()} rounds, "
            f"{time.monotonic() - began_s:.0f} s, {resident_bytes() / MEGABYTE:.1f} MiB resident, "
            f"{threading.active_count()} threads",
            flush=True,
        )
    print(dict(soak.rounds))  # noqa: T201
    half = len(soak.resident) // 2
    growth = max(soak.resident[half:]) - max(soak.resident[:half])
    print(f"The second half needed {growth / MEGABYTE:.1f} MiB more than the first.")  # noqa: T201
    assert growth < 16 * MEGABYTE


if __name__ == "__main__":
    main()
