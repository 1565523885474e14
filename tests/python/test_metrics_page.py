"""What docs/metrics.md shows, run."""

from __future__ import annotations

import pytest
import torch
from torch.utils.data import DataLoader
from torch.utils.tensorboard import SummaryWriter

import evenstride as es
from framework_job import TOKEN_BUDGET, Model, new_collator, new_dataset
from framework_support import added_lines, documented, steps_of
from meter_support import events_of


@pytest.mark.usefixtures("records")
@pytest.mark.parametrize("block", ["meter-before", "meter-after"])
def test_its_loop_trains_and_meters(block, tmp_path):
    dataset, model = new_dataset(), Model()
    sampler = es.BucketBatchSampler(dataset.lengths, token_budget=TOKEN_BUDGET)
    names = {
        "es": es,
        "torch": torch,
        "epochs": 2,
        "sampler": sampler,
        "loader": DataLoader(dataset, batch_sampler=sampler, collate_fn=new_collator()),
        "model": model,
        "optimizer": torch.optim.SGD(model.parameters(), lr=0.5),
    }
    with SummaryWriter(tmp_path) as writer:
        exec(documented("metrics.md", block), {**names, "writer": writer})  # noqa: S102
    losses = [step.loss for step in steps_of(tmp_path, 0)]
    scalars = {name: dict(values) for name, values in events_of(tmp_path).items()}
    assert scalars["loss"][19] == pytest.approx(losses[19])
    if block == "meter-after":
        mean = sum(losses[:20]) / 20
        assert scalars["evenstride/window/loss"][19] == pytest.approx(mean)
        assert scalars["evenstride/window/grad_norm"][19] > 0
        curves = [name for name in scalars if name.startswith("evenstride/")]
        assert len(curves) == 9 + 7 * len(sampler.plan.stats().buckets) == 51


def test_its_meter_takes_three_statements():
    before, after = (documented("metrics.md", f"meter-{name}") for name in ("before", "after"))
    assert "".join(line.strip() for line in added_lines(before, after)) == (
        "meter = es.metrics.BatchMeter(sampler)"
        "meter.update(loss=loss, grad_norm=grad_norm)"
        'es.metrics.log_to_tensorboard(meter, writer, epoch * len(sampler) + step, scope="window")'
    )
