"""The stream torture test: whether every use of streams that torch supports sees right batches."""

from __future__ import annotations

import sys
import threading
import time
from typing import Any

import evenstride as es
from gpu.faults import FAULTS
from gpu.queues import Queues
from gpu.section import Section, run_section
from gpu.torture import Corpus, Torture

NUM_STREAMS = 5


def run(section: Section) -> None:
    corpus = Corpus(section.device)
    queues = Queues(section.device, NUM_STREAMS, seed=0)
    # Six uses and four faults share eight tenths of it.
    seconds = min(section.seconds_left, 3) if section.quick else section.seconds_left
    for memory in ("torch", "ring"):
        uses_ring = memory == "ring"
        with section.attempt(f"DeviceCollator(memory={memory!r}) under random streams"):
            torture = Torture(queues, corpus, uses_ring=uses_ring)
            torture.use_collator(0.08 * seconds)
            state(section, f"DeviceCollator(memory={memory!r})", [torture])
        with section.attempt(f"Loader(device_memory={memory!r}) under random streams"):
            state(
                section,
                f"Loader(device_memory={memory!r})",
                torture_loader(section, corpus, memory, 0.08 * seconds, num_targets=1),
            )
        with section.attempt(f"Loader(device_memory={memory!r}), two targets in threads"):
            state(
                section,
                f"Loader(targets=2, device_memory={memory!r})",
                torture_loader(section, corpus, memory, 0.08 * seconds, num_targets=2),
            )
    for seed, fault in enumerate(FAULTS):
        with section.attempt(f"the fault: {fault}"):
            plant(section, corpus, fault, seed, seconds=0.06 * seconds)


def torture_loader(
    section: Section, corpus: Corpus, memory: str, seconds: float, *, num_targets: int
) -> list[Torture]:
    """Use the targets of a loader, each in a thread of its own with streams of its own."""
    # Batches are compared with those of the plan's places, so each pass is the same.
    tortures: list[Torture] = []
    failures: list[BaseException] = []
    end_s = time.monotonic() + seconds
    verdicts: list[bool] = []
    # All consumers take part in as many passes, at least one: of those that one leaves out, none
    # gets to the end.
    barrier = threading.Barrier(
        num_targets,
        lambda: verdicts.append(not verdicts or time.monotonic() < end_s),
        timeout=seconds + 20,
    )

    def goes_on() -> bool:
        barrier.wait()
        return verdicts[-1]

    with es.Loader(
        corpus.dataset,
        corpus.sampler,
        corpus.collate,
        targets=[section.device] * num_targets,
        device_memory=memory,
        depth=4,
    ) as loader:

        def consume(target: Any, number: int) -> None:
            try:
                queues = Queues(section.device, NUM_STREAMS, seed=number)
                torture = Torture(queues, corpus, uses_ring=memory == "ring")
                tortures.append(torture)
                torture.use_loader(target, goes_on, first=number, stride=num_targets)
            except BaseException as error:  # noqa: BLE001 - Raised by the thread that waits.
                failures.append(error)
                barrier.abort()

        threads = [
            threading.Thread(target=consume, args=(target, number), daemon=True)
            for number, target in enumerate(loader.targets)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(seconds + 20)
            if thread.is_alive():
                failures.append(TimeoutError("A consumer waits for a batch that does not come."))
        if failures:
            raise failures[0]
    return tortures


def state(section: Section, what: str, tortures: list[Torture]) -> None:
    """State what was found."""
    wrong = sum(torture.wrong_values for torture in tortures)
    batches = sum(torture.batches for torture in tortures)
    uses = sum(torture.uses for torture in tortures)
    section.check(
        f"{what} is right on random, delayed streams",
        wrong == 0 and batches > 0,
        f"{batches} batches, {uses} uses, {wrong} wrong values",
    )


def plant(section: Section, corpus: Corpus, fault: str, seed: int, *, seconds: float) -> None:
    """Plant a fault, and see the same test find it."""
    make, uses_ring = FAULTS[fault]
    queues = Queues(section.device, NUM_STREAMS, seed=seed)
    torture = Torture(queues, corpus, uses_ring=uses_ring)
    with make(queues):
        torture.use_collator(seconds)
    wrong = torture.wrong_values
    detail = f"{torture.batches} batches, {wrong} wrong values"
    if section.is_cuda:
        section.check(f"The test finds a planted fault: {fault}", wrong > 0, detail)
    else:
        section.note(f"The fault cannot be planted on a CPU: {fault} ({detail})")


if __name__ == "__main__":
    sys.exit(run_section(run, __doc__))
