"""The whole path to a device: what it costs the host, the bus, and a model that computes beside."""

from __future__ import annotations

import statistics
import sys
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

import evenstride as es
from evenstride import _core
from evenstride.cuda import DeviceCollator
from evenstride.device_target import Device
from gpu.contenders import Contender, Data, contenders, core_seconds
from gpu.section import Section, run_section, synchronize
from gpu.trace import watch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

HOST_US = 15.0
STEP_S = 2e-3
"""What a step of the load takes, about."""
HEAD = ["way", "batches/s", "host us", "core-s/1000", "PCIe kB", "p50 us", "p99 us", "load"]
"""Of batches flat out; then, beside a load, what ``next`` waits and how the load's time changes."""


def run(section: Section) -> None:
    data = Data(2_000 if section.quick or not section.is_cuda else 60_000)
    with section.attempt("the cost of a call"):
        cost_of_a_call(section, data)
    with section.attempt("allocations and waits"):
        allocations(section, data)
    found = contenders(data, section.device, quick=section.quick)
    with section.attempt("all ways make the same batches"):
        check(found, 3)
    load = Load(section.device)
    alone_s = load.seconds(lambda: None, steps(section))
    rows = []
    for contender in found:
        is_ours = contender.name.startswith("Loader(device)")
        if section.is_cuda and section.seconds_left < 8:
            section.note(f"No time for {contender.name}.")
            continue
        with section.attempt(contender.name, must=is_ours):
            contender.open()
            try:
                numbers = flat_out(section, contender)
                numbers += beside_load(section, contender, load, alone_s)
                rows.append([contender.name, *numbers])
            finally:
                contender.close()
    step_ms = 1e3 * alone_s / steps(section)
    title = f"Whole path, batches of data/, flat out and beside a load of {step_ms:.2f} ms a step"
    section.table(title, HEAD, rows)


def steps(section: Section) -> int:
    """Return how many steps of load are timed."""
    return 400 if section.is_cuda and not section.quick else 20


def check(found: Sequence[Contender], number: int) -> None:
    """Assert that all make the same batches."""
    expected: list[Any] = []
    for contender in found:
        contender.open()
        for step, batch in enumerate(contender.take(number)):
            copied = {key: value.clone() for key, value in batch.items()}  # A lease may end.
            if len(expected) <= step:
                expected.append(copied)
            assert list(copied) == list(expected[step]), contender.name
            assert all(torch.equal(copied[key], expected[step][key]) for key in copied)
        contender.close()


# ---------------------------------------------------------------------------- one call


def cost_of_a_call(section: Section, data: Data) -> None:
    """Time the host in a call of DeviceCollator, and how much of that is staging."""
    plan = es.plan_epoch(data.lengths, token_budget=49_152, max_batch_size=64, buckets=6)
    planned = [plan[i].astype(np.int64) for i in range(min(len(plan), 400))]
    samples = max(map(len, planned))
    shortest = np.ones(len(data.lengths), np.int64)
    offsets = np.concatenate([[0], shortest.cumsum()])
    tiny = es.RaggedDataset({"input_ids": (data.values[: len(shortest)], offsets)})
    calls: dict[str, list[float]] = {}
    for name, dataset in (("data/ batches", data.ragged), ("rows of one token", tiny)):
        collator = DeviceCollator(
            dataset,
            data.collate,
            device=section.device,
            max_padded_tokens=49_152,
            max_batch_size=samples,
            depth=16,
        )
        for rows in planned[:50]:
            collator(rows)
        before = slabs_of(collator)
        calls[name] = [host_us(partial(collator, rows), section) for rows in planned]
        grown = {key: number - before[key] for key, number in slabs_of(collator).items()}
        section.keep(f"slabs after warm-up, {name}", grown)
        if section.is_cuda:
            for what in ("allocations", "waits"):
                text = f"{what} of pinned slabs in {len(planned)} calls, {name}"
                section.require(text, grown[what], 0, "")
        calls[f"{name}, staging"] = staging_us(section, dataset, data, planned, samples)
    median = {name: statistics.median(each) for name, each in calls.items() if each}
    section.keep("host microseconds of a call", median)
    whole, bare = median["data/ batches"], median["rows of one token"]
    section.note(
        f"A call of DeviceCollator takes the host {whole:.1f} us for a batch of data/, {bare:.1f} "
        f"us for as many rows of one token ({samples} at most): the difference is reading rows."
    )
    if "data/ batches, staging" in median:
        staging = median["data/ batches, staging"]
        section.require("host us a batch, staging left out", whole - staging, HOST_US, "us")
    section.require("host us a batch, with hardly a byte to gather", bare, HOST_US, "us")


def slabs_of(collator: DeviceCollator) -> dict[str, int]:
    """Return the counts of a collator's pinned memory; none in a dry run."""
    stager = getattr(collator, "_stager", None)
    return {} if stager is None else stager.slabs


def host_us(call: Callable[[], Any], section: Section) -> float:
    """Return the host's time in a call that finds the device idle."""
    synchronize(section.device)
    begin = time.perf_counter_ns()
    batch = call()
    microseconds = 1e-3 * (time.perf_counter_ns() - begin)
    del batch
    return microseconds


def staging_us(
    section: Section, dataset: Any, data: Data, planned: Sequence[Any], samples: int
) -> list[float]:
    """Return the host's time of staging alone, batch by batch."""
    if not section.is_cuda:
        return []
    native = data.collate.bound_to(dataset).native
    stager = _core.Stager(
        native,
        Device(section.device, 1).native,
        num_slabs=2,
        most_samples=samples,
        most_tokens=49_152,
    )
    return [
        host_us(partial(stager.stage, 0, native, rows), section)
        for rows in (*planned[:50], *planned)
    ][50:]


def allocations(section: Section, data: Data) -> None:
    """See that neither side allocates, nor the host waits, once batches have come for a while."""
    for memory in ("torch", "ring"):
        with es.Loader(
            data.ragged,
            data.sampler(),
            data.collate,
            device=section.device,
            device_memory=memory,
        ) as loader:
            batches = iter(loader)
            most = len(loader) // 2
            for _ in range(min(most, 100)):
                next(batches)
            before = counts(section, loader)
            for _ in range(min(most, 400)):
                next(batches)
            grown = {name: now - before[name] for name, now in counts(section, loader).items()}
            section.keep(f"allocations after warm-up, {memory}", grown)
            section.require(
                f"allocations by the driver after warm-up, memory={memory!r}",
                float(sum(map(abs, grown.values()))),
                0,
                "",
            )


def counts(section: Section, loader: es.Loader) -> dict[str, int]:
    """Return what only an allocation changes: of pinned memory, or by the driver."""
    # Where batches are tensors of the host, it is those.
    found = {"pinned": loader.stats().memory_allocations}
    if section.is_cuda:
        stats = torch.cuda.memory_stats(section.device)
        names = ("num_device_alloc", "num_device_free", "num_alloc_retries", "num_sync_all_streams")
        found |= {name: int(stats[name]) for name in names if name in stats}
        found["segments"] = int(stats.get("segment.all.current", 0))
        found["free bytes"] = torch.cuda.mem_get_info(section.device)[0]
    return found


# ---------------------------------------------------------------------------- whole passes


def flat_out(section: Section, contender: Contender) -> list[str]:
    """Take batches as fast as they come."""
    number = 400 if section.is_cuda and not section.quick else 10
    contender.skip(16)
    synchronize(section.device)
    cores, begin = core_seconds(), time.perf_counter()
    inside = 0.0
    taken = 0
    while taken < number and (time.perf_counter() - begin < 4 or taken < 10):
        start = time.perf_counter()
        batch = contender.next()
        inside += time.perf_counter() - start
        del batch
        taken += 1
    synchronize(section.device)
    seconds, cores = time.perf_counter() - begin, core_seconds() - cores
    with watch(section.device) as trace:
        contender.skip(20)
    sent = sum(event.num_bytes for event in trace.named("HtoD")) / 20
    section.keep(
        f"flat out: {contender.name}",
        {"batches": taken, "seconds": seconds, "core_seconds": cores, "bytes": sent},
    )
    return [
        f"{taken / seconds:.0f}",
        f"{1e6 * inside / taken:.0f}",
        f"{1e3 * cores / taken:.3f}",
        f"{sent / 1e3:.0f}",
    ]


class Load:
    """A model-like load: products of matrices on the current stream, never far ahead."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        size = 2_048 if device.type == "cuda" else 64
        dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
        self._matrix = torch.randn(size, size, device=device, dtype=dtype)
        self._out = torch.empty_like(self._matrix)
        self._marks: list[Any] = []
        self._products = 1
        if device.type == "cuda":
            self._products = 20
            step_s = self.seconds(lambda: None, 20) / 20
            self._products = max(1, round(20 * STEP_S / step_s))

    def step(self) -> None:
        """Put a step on the current stream; wait for the one before the last."""
        for _ in range(self._products):
            torch.mm(self._matrix, self._matrix, out=self._out)
        if self._device.type == "cuda":
            mark = torch.cuda.Event()
            mark.record()
            self._marks.append(mark)
            if len(self._marks) > 2:
                self._marks.pop(0).synchronize()

    def seconds(self, before: Callable[[], Any], number: int) -> float:
        """Return the time of so many steps, each after a call."""
        for _ in range(5):
            before()
            self.step()
        synchronize(self._device)
        begin = time.perf_counter()
        for _ in range(number):
            before()
            self.step()
        synchronize(self._device)
        return time.perf_counter() - begin


def beside_load(section: Section, contender: Contender, load: Load, alone_s: float) -> list[str]:
    """Take a batch before each step of a load: how long that waits, and how long the load takes."""
    waits: list[float] = []

    def take() -> None:
        begin = time.perf_counter()
        batch = contender.next()
        waits.append(time.perf_counter() - begin)
        # The model looks at it.
        batch["input_ids"].sum()

    number = steps(section)
    seconds = load.seconds(take, number)
    slower = seconds / alone_s - 1
    p50, p99 = (1e6 * float(np.quantile(waits[5:], q)) for q in (0.5, 0.99))
    numbers = {"p50_us": p50, "p99_us": p99, "slower": slower}
    section.keep(f"beside a load: {contender.name}", numbers)
    return [f"{p50:.0f}", f"{p99:.0f}", f"{slower:+.1%}"]


if __name__ == "__main__":
    sys.exit(run_section(run, __doc__))
