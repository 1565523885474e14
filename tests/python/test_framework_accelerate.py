"""Accelerate, with the documentation's own code, on two real processes."""

from __future__ import annotations

import json
import shutil

import pytest

import evenstride as es
from framework_job import TOKEN_BUDGET, new_lengths
from framework_support import added_lines, check_epochs, documented, parts, run_ranks, steps_of

pytest.importorskip("accelerate")
PAGE = "frameworks/accelerate.md"
KEPT_AT = 23  # A step of epoch 1, after whose beginning the checkpoint of an earlier one is kept.

PRELUDE = f"""
import os
import shutil
from pathlib import Path

os.environ["ACCELERATE_USE_CPU"] = "true"
RANK = int(os.environ["RANK"])


def keep(step):
    if step == {KEPT_AT} and RANK == 0 and Path("checkpoint").exists():
        shutil.copytree("checkpoint", "kept")
"""

MODES = [
    {},
    {"even_batches": False},
    {"dispatch_batches": False, "use_seedable_sampler": True},
    {"num_workers": 2},
    {"use_stateful_dataloader": True},
    {"use_stateful_dataloader": True, "num_workers": 2},
    {"use_stateful_dataloader": True, "num_workers": 2, "registered": False},
    {"loader": "evenstride"},
]
STOP_AT = 5

TRIALS = f"""
import json
from itertools import islice

from accelerate import Accelerator
from accelerate.utils import DataLoaderConfiguration
from torch.utils.data import DataLoader

import evenstride as es
from framework_job import TOKEN_BUDGET, new_collator, new_dataset

DATASET, COLLATE = new_dataset(), new_collator()


def indices(batch):
    return batch["input_ids"][:, 0].tolist()


def message(function):
    try:
        function()
    except (RuntimeError, TypeError, ValueError) as error:
        return f"{{type(error).__name__}}: {{error}}"


def new(*, loader="torch", num_workers=0, registered=True, prepare=es.accelerate.prepare, **mode):
    configuration = DataLoaderConfiguration(**mode)
    accelerator = Accelerator(gradient_accumulation_steps=4, dataloader_config=configuration)
    sampler = es.BucketBatchSampler(DATASET.lengths, token_budget=TOKEN_BUDGET)
    if loader == "evenstride":
        loader = es.Loader(DATASET, sampler, COLLATE)
    else:
        loader = DataLoader(
            DATASET, batch_sampler=sampler, collate_fn=COLLATE, num_workers=num_workers
        )
    loader = prepare(accelerator, loader)
    if registered:
        accelerator.register_for_checkpointing(sampler)
    return accelerator, sampler, loader


def trial(number, mode):
    accelerator, sampler, loader = new(**mode)
    found = {{"length": len(loader), "syncs": [], "first": []}}
    for batch in loader:
        with accelerator.accumulate():
            found["syncs"].append(accelerator.sync_gradients)
        found["first"].append(indices(batch))
    for step, batch in enumerate(loader, 1):
        if step == {STOP_AT}:
            found["state"] = sampler.state_dict()
            accelerator.save_state(f"state-{{number}}")
            break
    accelerator.wait_for_everyone()
    accelerator, sampler, loader = new(**mode)
    accelerator.load_state(f"state-{{number}}")
    found["rest"] = [indices(batch) for batch in loader]
    found["next"] = [indices(batch) for batch in loader]
    return found


def plainly(mode):
    def use():
        loader = new(prepare=lambda accelerator, one: accelerator.prepare(one), **mode)[2]
        next(iter(loader))

    return message(use)


def refused(mode, **options):
    accelerator = new()[0]
    sampler = es.BucketBatchSampler(DATASET.lengths, token_budget=TOKEN_BUDGET, **options)
    accelerator = Accelerator(dataloader_config=DataLoaderConfiguration(**mode))
    loader = DataLoader(DATASET, batch_sampler=sampler, collate_fn=COLLATE)
    return message(lambda: es.accelerate.prepare(accelerator, loader))


workers, stateful = {{"num_workers": 2}}, {{"use_stateful_dataloader": True}}
uneven, dispatching = {{"even_batches": False}}, {{"dispatch_batches": True}}
scheduler = schedule["scheduler"].scheduler
print(json.dumps({{
    "schedule": [scheduler.get_last_lr(), scheduler.last_epoch, scheduler.total_iters],
    "trials": [trial(number, mode) for number, mode in enumerate({MODES!r})],
    "plain": [
        plainly(mode)
        for mode in (
            uneven,
            {{**uneven, **workers}},
            {{**uneven, **stateful, **workers}},
            dispatching,
            {{**dispatching, **stateful, **workers}},
        )
    ],
    "refused": [
        refused(dispatching),
        refused({{"split_batches": True}}),
        refused({{}}, num_replicas=1, rank=0),
    ],
}}))
"""


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    """Run the page's code and all trials; return the folder, and what each rank found."""
    folder = tmp_path_factory.mktemp("accelerate")
    script = PRELUDE + parts(PAGE, "before", "after", "resume", "schedule", at_step="keep") + TRIALS
    printed = run_ranks(script, folder)
    return folder, [json.loads(text.splitlines()[-1]) for text in printed]


@pytest.fixture(scope="module")
def wanted():
    """Return the batches of each rank in each epoch."""
    plans = [
        es.plan_epoch(new_lengths(), epoch=epoch, token_budget=TOKEN_BUDGET, num_replicas=2)
        for epoch in range(3)
    ]
    return [
        [[batch.tolist() for batch in plan.batches(rank)] for plan in plans] for rank in range(2)
    ]


def test_four_lines_are_new():
    added = added_lines(documented(PAGE, "before"), documented(PAGE, "after"))
    assert len(added) == 4
    assert "es.accelerate.prepare(accelerator, " in added[-1]


def test_two_processes_train_on_every_sample_once_in_equally_many_steps(job, wanted):
    folder, _ = job
    for part in ("after", "resume"):
        for rank, steps in enumerate(check_epochs(folder / part)):
            assert [step.indices for step in steps] == wanted[rank][0] + wanted[rank][1]


def test_a_schedule_ends_with_the_run(job, wanted):
    for rank, found in enumerate(job[1]):
        optimizer_steps = sum(-(-len(epoch) // 4) for epoch in wanted[rank][:2])
        rates, made, planned = found["schedule"]
        assert rates == [pytest.approx(0.001)]
        assert made == planned == 2 * optimizer_steps


def test_a_run_resumes_in_new_processes_as_if_it_had_never_stopped(job, tmp_path):
    folder, _ = job
    (tmp_path / "resume").mkdir()
    shutil.copytree(folder / "resume" / "kept", tmp_path / "resume" / "checkpoint")
    run_ranks(PRELUDE + parts(PAGE, "resume"), tmp_path)
    for rank in range(2):
        whole = steps_of(folder / "resume", rank)
        rest = steps_of(tmp_path / "resume", rank)
        assert len(whole) // 2 < len(whole) - len(rest) < KEPT_AT
        assert rest == whole[-len(rest) :]


@pytest.mark.parametrize("number", range(len(MODES)), ids=map(str, MODES))
def test_every_mode_has_the_plans_batches_syncs_at_the_end_and_resumes(job, wanted, number):
    for rank, found in enumerate(job[1]):
        trial, (first, second, third) = found["trials"][number], wanted[rank]
        assert trial["length"] == len(first)
        assert trial["first"] == first
        ends = [step % 4 == 0 or step == len(first) for step in range(1, len(first) + 1)]
        assert trial["syncs"] == ends
        assert (trial["state"]["epoch"], trial["state"]["step"]) == (1, STOP_AT)
        assert trial["rest"] == second[STOP_AT:]
        assert trial["next"] == third


def test_a_loader_prepared_in_the_plain_way_is_refused_on_every_rank(job):
    message = (
        "RuntimeError: A loader whose BucketBatchSampler has the batches of one rank of 2 must be "
        "prepared by `evenstride.accelerate.prepare(accelerator, ...)`, because "
        "`accelerator.prepare(...)` would share them out a second time."
    )
    for found in job[1]:
        assert found["plain"] == [message] * 5


def test_options_that_do_not_fit_are_refused(job):
    for found in job[1]:
        dispatched, split, alone = found["refused"]
        assert dispatched == (
            "ValueError: `dispatch_batches` of the Accelerator must be None or False, but is True: "
            "processes read their own batches, which differ in size and so cannot be one that is "
            "split."
        )
        assert split == (
            "ValueError: `split_batches` of the Accelerator must be False, but is True: the "
            "sampler's `token_budget` is that of each process, whose batches are whole."
        )
        assert alone == (
            "ValueError: `num_replicas` of the sampler must be the number of processes that share "
            "out the data, 2, but is 1."
        )
