"""Lightning's Trainer with the documentation's own code: ranks, epochs, and going on amid one."""

from __future__ import annotations

import random

import pytest

from framework_support import added_lines, check_epochs, documented, run_ranks, steps_of

PAGE = "frameworks/lightning.md"
WAYS = ["after", "module"]
STEPS = [4, 8, 12, 16, 20, 24, 28]  # Of which the documentation's code saves checkpoints.

PREAMBLE = """
import os
import sys
from functools import partial
from pathlib import Path

import lightning as L
import torch

from framework_job import Model, new_collator, new_dataset, new_lengths


class Module(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.model = Model()

    def training_step(self, batch, batch_idx):
        return self.model(**batch)["loss"]

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)


def begin(way):
    global model, checkpoint
    folder = Path.cwd() / way
    folder.mkdir(exist_ok=True)
    os.environ["EVENSTRIDE_RECORD"] = str(folder)
    L.Trainer = partial(
        Trainer,
        accelerator="cpu",
        devices=num_ranks,
        strategy="ddp",
        default_root_dir=folder,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    model = Module()
    saved = os.environ.get("CHECKPOINT")
    checkpoint = Path(saved.format(way=way)) if saved else None


Trainer = L.Trainer
num_ranks = int(os.environ["WORLD_SIZE"])  # Which a Trainer deletes when it is done.
dataset, lengths, collate = new_dataset(), new_lengths(), new_collator()
others = dataset.select(range(9))
"""

REFUSED = """
try:
    L.Trainer(max_epochs=1).fit(model, loader)
except TypeError as error:
    print(f"[{error}]")
"""

PLAIN = """
loader = DataLoader(dataset, batch_sampler=sampler, collate_fn=collate)
L.Trainer(max_epochs=1, use_distributed_sampler=False).fit(model, loader)
"""


def script_of(*parts):
    return "\n".join([PREAMBLE, *parts])


def documented_ways():
    return [line for way in WAYS for line in (f"begin({way!r})", documented(PAGE, way))]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    script = script_of(*documented_ways(), "begin('plain')", PLAIN, "begin('refused')", REFUSED)
    return folder, run_ranks(script, folder)


def test_a_script_changes_about_three_lines():
    before, after, module = (documented(PAGE, name) for name in ("before", "after", "module"))
    assert len(added_lines(before, after)) == 4
    assert len(added_lines(before, module)) == 3


@pytest.mark.parametrize("way", WAYS)
def test_ranks_have_every_sample_once_in_equal_steps_and_another_order_each_epoch(whole, way):
    check_epochs(whole[0] / way)


def test_a_plain_dataloader_works_where_lightning_is_told_to_leave_it_alone(whole):
    check_epochs(whole[0] / "plain", epochs=1)


def test_a_plain_dataloader_is_refused_in_a_sentence_where_lightning_would_shard_it(whole):
    message = (
        "[`lengths` must be the tokens of each sample, but is a DistributedSampler: if Lightning "
        "put it there, wrap the DataLoader in `evenstride.lightning.TrainerLoader`, or pass "
        "`use_distributed_sampler=False` (which does not help to predict).]"
    )
    for printed in whole[1]:
        assert message in printed
    assert not list((whole[0] / "refused").iterdir())


def test_a_run_goes_on_at_any_step_with_the_same_batches_and_losses(whole, tmp_path):
    folder, _ = whole
    step = random.choice(STEPS)
    epoch = step // (len(steps_of(folder / "after", 0)) // 2)
    saved = folder / "{way}" / "checkpoints" / f"epoch={epoch}-step={step}.ckpt"
    run_ranks(script_of(*documented_ways()), tmp_path, environment={"CHECKPOINT": str(saved)})
    for way in WAYS:
        for rank in range(2):
            rest = steps_of(folder / way, rank)[step:]
            assert steps_of(tmp_path / way, rank) == rest, f"from step {step}, rank {rank}"


def test_the_other_name_of_the_package_does(tmp_path):
    code = documented(PAGE, "module")
    script = script_of("begin('module')", code)
    script = script.replace("import lightning as L", "import pytorch_lightning as L")
    script = script.replace("from lightning.pytorch", "from pytorch_lightning")
    script += "assert 'lightning.pytorch' not in sys.modules\n"
    run_ranks(script, tmp_path, num_ranks=1)
    check_epochs(tmp_path / "module", num_ranks=1)
