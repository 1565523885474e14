"""A Lightning Trainer with a loader as it is: a pass that is not where the Trainer is, is told."""

from __future__ import annotations

import re
import warnings
from types import SimpleNamespace

import pytest
import torch
from torch.utils.data import DataLoader

import evenstride as es
from evenstride import framework_loops
from framework_job import Model, new_collator, new_dataset

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # It touches names that are deprecated elsewhere.
    import lightning as L  # noqa: N812 - As its own documentation does.
    from lightning.pytorch.callbacks import ModelCheckpoint

pytestmark = [
    pytest.mark.filterwarnings("ignore"),  # Lightning gives advice as warnings.
    pytest.mark.usefixtures("one_thread", "records"),
]

DATASET = new_dataset().select(range(24))
STEPS = 6
COLLATE = new_collator()


class Module(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.model = Model()

    def training_step(self, batch, batch_idx):  # noqa: ARG002
        return self.model(**batch)["loss"]

    def validation_step(self, batch, batch_idx):
        """Validate without a word."""

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


class Scheduled(Module):
    def configure_optimizers(self):
        assert self.trainer.estimated_stepping_batches > 0
        return super().configure_optimizers()


class Fetching(Module):
    def training_step(self, dataloader_iter):
        return super().training_step(next(dataloader_iter)[0], 0)


class Reloading(Module):
    """Makes a loader for each epoch, over the same sampler."""

    def train_dataloader(self):
        return plain(self.sampler)


class Remaking(Reloading):
    """Makes a sampler for each epoch too."""

    def train_dataloader(self):
        return plain(sampler_of())


class Reading(Module):
    """Looks at other batches before each epoch."""

    def on_train_epoch_start(self):
        next(iter(plain(sampler_of())))


def sampler_of(**options):
    return es.BucketBatchSampler(DATASET.lengths, token_budget=96, **options)


def plain(sampler, num_workers=0):
    return DataLoader(DATASET, batch_sampler=sampler, collate_fn=COLLATE, num_workers=num_workers)


def native(sampler):
    return es.Loader(DATASET, sampler, COLLATE)


def told(module=Module, *, train=None, sampler=None, num_workers=0, checkpoint=None, **options):
    """Train for three epochs, and return what is said of the sampler's place."""
    off = ("logger", "enable_checkpointing", "enable_model_summary", "enable_progress_bar")
    options = {"accelerator": "cpu", "max_epochs": 3, **dict.fromkeys(off, False), **options}
    model, trainer = module(), L.Trainer(**options)
    model.sampler = sampler_of() if sampler is None else sampler
    if train is None and not isinstance(model, Reloading):
        train = plain(model.sampler, num_workers)
    evaluated = plain(sampler_of(shuffle=False))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        trainer.fit(model, train, evaluated, ckpt_path=checkpoint)
    sentences = [str(one.message) for one in caught]
    return [one for one in sentences if "BucketBatchSampler" in one]


def place(epoch, step, trainer_epoch, trainer_step):
    sentence = (
        f"The batches of a BucketBatchSampler begin at step {step} of epoch {epoch}, but the "
        f"Trainer goes on at step {trainer_step} of epoch {trainer_epoch}: wrap the loader in "
        "`evenstride.lightning.TrainerLoader`, which begins where the Trainer is."
    )
    return [sentence]


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory):
    """Return files by the number of steps before, saved after steps and at the ends of epochs."""
    folder = tmp_path_factory.mktemp("checkpoints")
    found = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EVENSTRIDE_RECORD", str(folder))
        for when in ({"every_n_train_steps": 1}, {"every_n_epochs": 1}):
            (name,) = when
            callback = ModelCheckpoint(
                folder / name, "{step}", save_top_k=-1, save_on_train_epoch_end=True, **when
            )
            assert not told(callbacks=[callback], enable_checkpointing=True)
            for path in (folder / name).glob("*.ckpt"):
                found[name, int(re.search(r"step=(\d+)", path.name)[1])] = path
    return found


@pytest.mark.parametrize(
    ("module", "options"),
    [
        (Module, {"val_check_interval": 3}),
        (Module, {"num_workers": 2, "val_check_interval": 3}),
        (Module, {"max_steps": 15, "max_epochs": None}),
        (Module, {"num_workers": 2, "max_steps": 15, "max_epochs": None}),
        (Module, {"fast_dev_run": True}),
        (Module, {"overfit_batches": 2}),
        (Module, {"overfit_batches": 2, "num_workers": 1}),
        (Module, {"overfit_batches": STEPS}),
        (Scheduled, {"accumulate_grad_batches": 3, "num_workers": 2}),
        (Fetching, {"limit_val_batches": 0}),
        (Reading, {}),
        (Reloading, {"reload_dataloaders_every_n_epochs": 1}),
    ],
)
def test_ordinary_runs_hear_nothing(module, options):
    assert told(module, **options) == []


def test_a_native_loader_hears_nothing():
    assert told(train=native(sampler_of()), limit_train_batches=STEPS) == []
    assert told(train=native(sampler_of()), max_steps=15, max_epochs=None) == []


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("module", [Module, Scheduled])
@pytest.mark.parametrize(
    ("when", "step"),
    [
        ("every_n_train_steps", 4),
        ("every_n_train_steps", 6),
        ("every_n_train_steps", 13),
        ("every_n_epochs", 6),
    ],
)
def test_a_resumed_run_that_begins_anew_is_told(checkpoints, module, num_workers, when, step):
    options = {"checkpoint": checkpoints[when, step], "num_workers": num_workers}
    there = divmod(step, STEPS)
    assert told(module, **options) == place(0, 0, *there)
    agreeing = sampler_of()
    agreeing.load_state_dict({**agreeing.state_dict(), "epoch": there[0], "step": there[1]})
    assert told(module, sampler=agreeing, **options) == []
    if there[1] > 0:
        agreeing.load_state_dict({**agreeing.state_dict(), "epoch": there[0], "step": 5})
        assert told(module, sampler=agreeing, **options) == place(there[0], 5, *there)


def test_a_resumed_run_that_fetches_by_itself_is_told(checkpoints):
    there = checkpoints["every_n_train_steps", 4]
    assert told(Fetching, limit_val_batches=0, checkpoint=there) == place(0, 0, 0, 4)


def test_the_same_epoch_every_time_is_told_once():
    assert told(limit_train_batches=4) == place(0, 0, 1, 0)
    assert told(Remaking, reload_dataloaders_every_n_epochs=1) == place(0, 0, 1, 0)


def test_a_native_loader_whose_place_is_lost_is_told(checkpoints, tmp_path):
    callback = ModelCheckpoint(tmp_path, "{step}", save_top_k=-1, every_n_train_steps=4)
    saving = {"callbacks": [callback], "enable_checkpointing": True}
    assert told(train=native(sampler_of()), **saving) == []
    (path,) = tmp_path.glob("*step=4.ckpt")
    assert told(train=native(sampler_of()), checkpoint=path) == []
    assert told(Scheduled, train=native(sampler_of()), checkpoint=path) == place(0, 0, 0, 4)


def test_a_sampler_that_another_trainer_has_used_hears_nothing():
    sampler = sampler_of()
    assert told(sampler=sampler) == []
    assert sampler.epoch == 2
    assert told(sampler=sampler) == []
    assert sampler.epoch == 5


def test_a_sampler_that_a_new_trainer_begins_with_may_be_anywhere():
    sampler = sampler_of()
    sampler.load_state_dict({**sampler.state_dict(), "epoch": 1, "step": 3})
    assert told(sampler=sampler) == []


@pytest.mark.parametrize("step", [6, 12])
def test_a_batch_that_is_asked_for_after_the_end_of_an_epoch_is_of_none(checkpoints, step):
    options = {"max_steps": 3 * STEPS, "max_epochs": None, "limit_val_batches": 0}
    agreeing = sampler_of()
    agreeing.load_state_dict({**agreeing.state_dict(), "epoch": step // STEPS, "step": 0})
    there = checkpoints["every_n_epochs", step]
    assert told(sampler=agreeing, checkpoint=there, **options) == []


@pytest.mark.parametrize("method", ["advance", "setup_data"])
def test_a_version_of_lightning_with_other_counters_is_left_alone(method):
    assert framework_loops._place_of_trainer(L.Trainer(logger=False).fit_loop, method) == (0, 0)
    for loop in (None, SimpleNamespace(trainer=SimpleNamespace(overfit_batches=0))):
        assert framework_loops._place_of_trainer(loop, method) is None
