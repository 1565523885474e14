"""What Lightning's loops do to a loader on one rank, and how it goes on after each of them."""

from __future__ import annotations

import random
import re
from functools import partial

import pytest
import torch
from torch.utils.data import DataLoader

import evenstride as es
from lightning_support import (
    COLLATE,
    DATASET,
    EPOCHS,
    L,
    Module,
    fit,
    named,
    new_trainer,
    sampler_of,
    with_dataloader,
    with_loader,
    with_module,
)

pytestmark = [
    pytest.mark.filterwarnings("ignore"),  # Lightning gives advice as warnings.
    pytest.mark.usefixtures("one_thread", "records"),
]

PAGE = "frameworks/lightning.md"


class Scheduled(Module):
    configure_optimizers = named(PAGE, "schedule", torch=torch)["configure_optimizers"]


def bare_loader(_):
    return es.Loader(DATASET, sampler_of(), COLLATE)


def saving(folder, **options):
    return L.pytorch.callbacks.ModelCheckpoint(folder, "{step}", save_top_k=-1, **options)


def checkpoints_of(folder):
    """Return the files of checkpoints by the number of optimizer steps."""
    return {int(re.search(r"step=(\d+)", path.name)[1]): path for path in folder.glob("*.ckpt")}


def check_going_on(folder, whole, data_of, module=Module, **options):
    """Check that a run from a random checkpoint ends as the whole run does."""
    step, checkpoint = random.choice(list(checkpoints_of(folder).items()))
    rest = fit(data_of, module, checkpoint=checkpoint, **options)
    assert rest == [one for one in whole if one[2] >= step], f"from optimizer step {step}"


@pytest.mark.parametrize(
    ("data_of", "options"),
    [
        (with_dataloader, {}),
        (partial(with_dataloader, num_workers=2), {}),
        (with_loader, {"limit_train_batches": 4}),
        (bare_loader, {}),
        (with_module, {"accumulate_grad_batches": 3, "val_check_interval": 4}),
        (with_module, {"reload_dataloaders_every_n_epochs": 1}),
        (with_module, {"max_steps": 15, "max_epochs": None}),
        (with_module, {"check_val_every_n_epoch": None, "val_check_interval": 5}),
    ],
)
def test_goes_on_at_any_step(tmp_path, data_of, options):
    callback = saving(tmp_path, every_n_train_steps=1)
    whole = fit(data_of, callbacks=[callback], **options)
    epochs = {one[0] for one in whole}
    assert epochs == set(range(EPOCHS))
    check_going_on(tmp_path, whole, data_of, **options)


@pytest.mark.parametrize(
    ("data_of", "options"),
    [
        (with_dataloader, {}),
        (with_loader, {"limit_train_batches": 4}),
        (bare_loader, {}),
        (with_module, {"max_steps": 15, "max_epochs": None}),
        (with_dataloader, {"max_steps": 15, "max_epochs": None}),
    ],
)
@pytest.mark.parametrize("when", [{"every_n_epochs": 1}, {"every_n_train_steps": 2}])
def test_goes_on_with_the_next_epoch(tmp_path, data_of, options, when):
    callback = saving(tmp_path, save_on_train_epoch_end=True, **when)
    whole = fit(data_of, callbacks=[callback], **options)
    end = options.get("limit_train_batches", 6)
    rest = fit(data_of, checkpoint=checkpoints_of(tmp_path)[end], **options)
    assert rest == whole[end:]


@pytest.mark.parametrize("data_of", [with_dataloader, with_loader, with_module])
def test_goes_on_where_the_schedule_asks_for_the_number_of_steps(tmp_path, data_of):
    whole = fit(data_of, Scheduled, callbacks=[saving(tmp_path, every_n_train_steps=1)])
    check_going_on(tmp_path, whole, data_of, Scheduled)


def test_goes_on_from_validation_amid_an_epoch(tmp_path):
    callback = saving(tmp_path, every_n_epochs=1, save_on_train_epoch_end=False)
    whole = fit(with_module, callbacks=[callback], val_check_interval=3)
    assert len(checkpoints_of(tmp_path)) == 2 * EPOCHS
    check_going_on(tmp_path, whole, with_module, val_check_interval=3)


@pytest.mark.parametrize("trained", [0, 4, 6, 9])
def test_goes_on_with_the_batch_that_an_exception_interrupted(tmp_path, trained):
    class Interrupted(Module):
        def on_train_batch_start(self, batch, batch_idx):  # noqa: ARG002
            if len(self.trained) == trained:
                raise OSError  # Without a message.

    callback = L.pytorch.callbacks.OnExceptionCheckpoint(tmp_path)
    with pytest.raises(OSError, match=r"^$"):
        fit(with_dataloader, Interrupted, callbacks=[callback])
    rest = fit(with_dataloader, checkpoint=next(tmp_path.glob("*.ckpt")))
    assert rest == fit(with_dataloader)[trained:]


def test_goes_on_with_the_rest_of_an_epoch_that_max_steps_cut_short(tmp_path):
    trainer = new_trainer(max_steps=4)
    model = Module()
    trainer.fit(model, with_dataloader(trainer))
    trainer.save_checkpoint(tmp_path / "end.ckpt")
    rest = fit(with_dataloader, checkpoint=tmp_path / "end.ckpt", max_steps=9)
    whole = fit(with_dataloader)
    assert [one[2:] for one in model.trained + rest[:2]] == [one[2:] for one in whole[:6]]


def test_epochs_that_are_cut_short_are_not_the_same():
    first, second, _ = epochs_of(fit(with_dataloader, limit_train_batches=4))
    assert len(first) == len(second) == 4
    assert first == list(sampler_of())[:4]
    later = sampler_of()
    later.set_epoch(1)
    assert second == list(later)[:4]


@pytest.mark.parametrize("data_of", [with_dataloader, with_loader, with_module])
def test_epochs_that_overfit_are_the_same(data_of):
    first, second, _ = epochs_of(fit(data_of, overfit_batches=2))
    assert first == second == list(sampler_of())[:2]


def epochs_of(trained):
    return [[one[4] for one in trained if one[0] == epoch] for epoch in range(EPOCHS)]


def test_the_number_of_steps_is_known_and_the_schedule_ends_with_it():
    data = with_module(None)
    trainer, model = new_trainer(), Scheduled()
    trainer.fit(model, datamodule=data)
    assert trainer.global_step == trainer.estimated_stepping_batches
    assert trainer.global_step == data.sampler.total_steps(EPOCHS) == len(model.trained)
    assert trainer.optimizers[0].param_groups[0]["lr"] == pytest.approx(0.1 * 0.1)


def test_workers_are_seeded_as_lightning_does(monkeypatch):
    monkeypatch.setenv("PL_SEED_WORKERS", "1")
    made = []

    def data_of(trainer):
        made.append(with_dataloader(trainer))
        return made[0]

    fit(data_of, max_epochs=1)
    assert made[0].loader.worker_init_fn is not None
    assert not hasattr(with_loader(new_trainer()), "worker_init_fn")


@pytest.mark.parametrize("step", [4, 9])
def test_a_checkpoint_holds_the_state_of_the_sampler(tmp_path, step):
    trained = fit(with_dataloader, callbacks=[saving(tmp_path, every_n_train_steps=1)])
    loops = torch.load(checkpoints_of(tmp_path)[step])["loops"]
    (state,) = loops["fit_loop"]["state_dict"]["combined_loader"]
    sampler = sampler_of()
    sampler.load_state_dict(state)
    assert [one[4] for one in trained[step : 6 * (step // 6 + 1)]] == list(sampler)


@pytest.mark.parametrize("module", [Module, Scheduled])
@pytest.mark.parametrize("when", [{"every_n_train_steps": 4}, {"every_n_epochs": 1}])
def test_another_sampler_than_that_of_the_checkpoint_is_refused(tmp_path, module, when):
    callback = saving(tmp_path, save_on_train_epoch_end=True, **when)
    fit(with_dataloader, module, callbacks=[callback])
    message = "`seed` must be the same as when the state was saved, but was 0 there and is 3 here."
    first = min(checkpoints_of(tmp_path).items())[1]
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        fit(partial(with_dataloader, seed=3), module, checkpoint=first)


def plain_loader(_):
    return DataLoader(DATASET, batch_size=4, shuffle=True, collate_fn=COLLATE)


def test_a_checkpoint_of_other_batches_goes_on_at_the_start_of_an_epoch(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    fit(plain_loader, max_epochs=2, callbacks=[saving(tmp_path, every_n_train_steps=1)])
    saved = checkpoints_of(tmp_path)
    whole = epochs_of(fit(with_dataloader))
    assert epochs_of(fit(with_dataloader, checkpoint=saved[6])) == [[], *whole[1:]]
    for step, epoch in ((4, 0), (8, 1)):
        message = (
            "A checkpoint from amid an epoch must be of a TrainerLoader, but this one, after "
            f"{step - 6 * epoch} batches, is of other batches: take one from the end of an epoch, "
            "or set its count of batches to 0."
        )
        for module in (Module, Scheduled):
            with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
                fit(with_dataloader, module, checkpoint=saved[step])
        begin = named(PAGE, "begin", checkpoint=saved[step])["checkpoint"]
        rest = fit(with_dataloader, checkpoint=begin)
        assert rest[0][2] == step
        assert epochs_of(rest)[epoch:] == whole[epoch:]
        assert not any(epochs_of(rest)[:epoch])


def test_a_loader_of_another_trainer_is_refused(tmp_path):
    first, second = new_trainer(max_epochs=1), new_trainer()
    loader = with_dataloader(first)
    message = (
        "`trainer` must be the Trainer that takes the batches, but is one that is {}: make a "
        "TrainerLoader for each Trainer."
    )

    def check_refused(status, take):
        with pytest.raises(ValueError, match=f"^{re.escape(message.format(status))}$"):
            take()

    check_refused("initializing", lambda: second.fit(Module(), loader))
    first.fit(Module(), loader)
    first.save_checkpoint(tmp_path / "end.ckpt")
    checkpoint = tmp_path / "end.ckpt"
    check_refused("finished", lambda: new_trainer().fit(Module(), loader, ckpt_path=checkpoint))
    check_refused("finished", lambda: new_trainer().validate(Module(), loader))
    check_refused("finished", lambda: next(iter(loader)))
    assert len(list(loader.loader)) == len(loader)
