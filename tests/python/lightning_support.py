"""Lightning's Trainer in one process, for the tests of `evenstride.lightning`."""

from __future__ import annotations

import warnings
from functools import partial

import torch
from torch.utils.data import DataLoader

import evenstride as es
from framework_job import Model, new_collator, new_dataset
from framework_support import documented

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # It touches names that are deprecated elsewhere.
    import lightning as L  # noqa: N812 - As its own documentation does.

    from evenstride.lightning import BucketDataModule, TrainerLoader

ROWS = new_dataset()
DATASET, OTHERS = ROWS.select(range(24)), ROWS.select(range(24, 32))
COLLATE = new_collator()
OPTIONS = {"token_budget": 96}
EPOCHS = 3


def named(page, block, **names):
    """Return the names that code of the documentation defines."""
    exec(documented(page, block), names)  # noqa: S102 - It is our own.
    return names


class Module(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.model = Model()
        self.trained = []
        self.evaluated = []

    def training_step(self, batch, batch_idx):
        loss = self.model(**batch)["loss"]
        place = self.trainer.current_epoch, batch_idx, self.trainer.global_step
        rate = self.trainer.optimizers[0].param_groups[0]["lr"]
        self.trained.append((*place, rate, batch["input_ids"][:, 0].tolist(), loss.item()))
        return loss

    def validation_step(self, batch, batch_idx):  # noqa: ARG002
        self.evaluated.append(batch["input_ids"][:, 0].tolist())

    test_step = predict_step = validation_step

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)


def sampler_of(dataset=DATASET, **options):
    return es.BucketBatchSampler(dataset.lengths, **OPTIONS, **options)


def with_dataloader(trainer, *, num_workers=0, **options):
    loader = partial(DataLoader, DATASET, collate_fn=COLLATE, num_workers=num_workers)
    return TrainerLoader(loader(batch_sampler=sampler_of(**options)), trainer)


def with_loader(trainer):
    return TrainerLoader(es.Loader(DATASET, sampler_of(), COLLATE), trainer)


def with_module(_):
    return BucketDataModule(DATASET, COLLATE, val_dataset=OTHERS, **OPTIONS)


def new_trainer(**options):
    off = ("logger", "enable_checkpointing", "enable_model_summary", "enable_progress_bar")
    quiet = dict.fromkeys(off, False)
    return L.Trainer(**{"accelerator": "cpu", "max_epochs": EPOCHS, **quiet, **options})


def fit(data_of, module=Module, *, checkpoint=None, callbacks=(), **options):
    """Train, and return what was trained on: where Lightning was, the rate, the batch, the loss."""
    trainer = new_trainer(
        callbacks=list(callbacks), enable_checkpointing=bool(callbacks), **options
    )
    model = module()
    trainer.fit(model, data_of(trainer), ckpt_path=checkpoint)
    return model.trained
