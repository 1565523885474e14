"""Batches that a device makes, against the host's collator, bit for bit."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

import evenstride as es
from evenstride.cuda import DeviceCollator
from gpu.cases import cases, difference
from gpu.section import Section, run_section, synchronize

if TYPE_CHECKING:
    from gpu.cases import Case

MEMORIES = ("torch", "ring")


def run(section: Section) -> None:
    for memory in MEMORIES:
        with section.attempt(f"vectors in memory={memory!r}"):
            check_collator(section, memory)
    with section.attempt("a batch that outgrows all before"):
        check_growth(section)
    for memory in MEMORIES:
        for targets in (1, 2):
            with section.attempt(f"Loader with {targets} targets, device_memory={memory!r}"):
                check_loader(section, memory, targets)
    if not section.quick or not section.is_cuda:
        for dtype in (torch.uint8, torch.int64):
            with section.attempt(f"more than 2^31 values of {dtype}"):
                check_large(section, dtype)


def check_collator(section: Section, memory: str) -> None:
    """Make every case's batches, with the largest batch given or left open in turns."""
    wrong: list[str] = []
    batches = outputs = number = 0
    for number, case in enumerate(cases(quick=section.quick), 1):
        collator = collator_of(section, case, memory, is_bounded=number % 2 == 0)
        for rows in case.batches:
            expected = case.collate(case.dataset.__getitems__(rows))
            found = difference(expected, collator(rows))
            if found is not None:
                wrong.append(f"{case.name}, {len(rows)} rows: {found}")
            batches += 1
            outputs += len(expected)
    section.check(
        f"DeviceCollator(memory={memory!r}) makes the host's batches, bit for bit",
        not wrong,
        wrong[0] if wrong else f"{batches} batches, {outputs} outputs, {number} collators",
    )


def collator_of(section: Section, case: Case, memory: str, *, is_bounded: bool) -> DeviceCollator:
    samples, tokens = case.largest()
    bounds: dict[str, Any] = {}
    if is_bounded or memory == "ring":  # A ring has one size.
        bounds = {"max_batch_size": samples, "max_padded_tokens": tokens}
    return DeviceCollator(
        case.dataset, case.collate, device=section.device, memory=memory, **bounds
    )


def check_growth(section: Section) -> None:
    """Make batches each of which is larger than all before, and smaller ones again."""
    lengths = np.array([1, 10, 100, 1_000, 10_000, 100_000])
    offsets = np.concatenate([[0], lengths.cumsum()])
    values = np.random.default_rng(1).integers(0, 2**16, offsets[-1], dtype=np.uint16)
    dataset = es.RaggedDataset({"input_ids": (values, offsets)})
    collate = es.PadCollator({"input_ids": es.Field()})
    collator = DeviceCollator(dataset, collate, device=section.device)
    wrong = []
    for row in (*range(6), *range(5, -1, -1)):
        found = difference(collate(dataset.__getitems__([row, 0])), collator([row, 0]))
        if found is not None:
            wrong.append(f"a row of {lengths[row]}: {found}")
    section.check(
        "Batches that outgrow all before are the host's too", not wrong, "; ".join(wrong[:1])
    )


def check_loader(section: Section, memory: str, targets: int) -> None:
    """Take two passes of a loader, and compare each batch with the host's."""
    rng = np.random.default_rng(2)
    lengths = rng.integers(0, 150, 300 if section.quick else 3_000)
    offsets = np.concatenate([[0], lengths.cumsum()])
    values = rng.integers(0, 2**15, offsets[-1], dtype=np.int32)
    dataset = es.RaggedDataset({"input_ids": (values, offsets), "label": rng.random(len(lengths))})
    collate = es.PadCollator(
        {"input_ids": es.Field(), "labels": es.Field(-100, source="input_ids", start=1)},
        position_ids=True,
        pad_to_multiple_of=8,
    )
    sampler = es.BucketBatchSampler(lengths, token_budget=2_000, buckets=3, pad_to_multiple_of=8)
    wrong, taken = [], 0
    with es.Loader(
        dataset,
        sampler,
        collate,
        targets=[section.device] * targets,
        device_memory=memory,
    ) as loader:
        for epoch in range(2):
            consumers = [iter(target) for target in loader.targets]
            for step in range(len(loader)):
                batch = next(consumers[step % targets])
                rows = sampler.plan[step].tolist()
                found = difference(collate(dataset.__getitems__(rows)), batch)
                if found is not None:
                    wrong.append(f"epoch {epoch}, batch {step}: {found}")
                taken += 1
            more = [consumer for consumer in consumers if next(consumer, None) is not None]
            wrong += [f"epoch {epoch}: more batches than planned" for _ in more]
    section.check(
        f"Loader(targets={targets}, device_memory={memory!r}) gives the host's batches in order",
        not wrong,
        wrong[0] if wrong else f"{taken} batches",
    )


def check_large(section: Section, dtype: torch.dtype) -> None:
    """Make a batch of more than 2^31 values, the last row the longest one."""
    width = 2**26 if section.is_cuda else 2**12
    lengths = np.full(33, 1_000, np.int64)
    lengths[[3, 17]], lengths[32] = 0, width
    needed = len(lengths) * width * (dtype.itemsize + 1) + 2**30
    if section.is_cuda and (free := torch.cuda.mem_get_info(section.device)[0]) < 2 * needed:
        section.note(f"No batch of 2^31 {dtype}: {free >> 20} MiB are free, not {needed >> 19}.")
        return
    offsets = np.concatenate([[0], lengths.cumsum()])
    values = np.random.default_rng(3).integers(0, 255, offsets[-1], dtype=np.uint8)
    dataset = es.RaggedDataset({"input_ids": (values, offsets)})
    collate = es.PadCollator({"input_ids": es.Field(7, dtype)}, mask_dtype=torch.bool)
    batch = DeviceCollator(dataset, collate, device=section.device)(range(len(lengths)))
    ids, mask = batch["input_ids"], batch["attention_mask"]
    rows = torch.from_numpy(values).to(section.device).to(dtype).split(lengths.tolist())
    # Row by row, so that little is needed beside the batch.
    wrong = [
        row
        for row, wanted in enumerate(rows)
        if not torch.equal(ids[row, : len(wanted)], wanted)
        or not (ids[row, len(wanted) :] == 7).all()
        or not mask[row, : len(wanted)].all()
        or mask[row, len(wanted) :].any()
    ]
    synchronize(section.device)
    section.check(
        f"A batch of {ids.numel()} {str(dtype).removeprefix('torch.')} is right in every row",
        not wrong and ids.numel() == len(lengths) * width,
        f"rows {wrong}" if wrong else f"{ids.numel() / 2**31:.2f} times 2^31 values",
    )


if __name__ == "__main__":
    sys.exit(run_section(run, __doc__))
