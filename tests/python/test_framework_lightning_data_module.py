"""What a data module makes of its data sets, and what it and a TrainerLoader refuse."""

from __future__ import annotations

import re
import sys
import warnings
from functools import partial

import pytest
from torch.utils.data import DataLoader

import evenstride as es
from lightning_support import (
    COLLATE,
    DATASET,
    OPTIONS,
    OTHERS,
    BucketDataModule,
    L,
    Module,
    TrainerLoader,
    fit,
    named,
    new_trainer,
    sampler_of,
    with_dataloader,
    with_module,
)

pytestmark = [
    pytest.mark.filterwarnings("ignore"),  # Lightning gives advice as warnings.
    pytest.mark.usefixtures("records"),
]


def test_evaluation_has_every_sample_once_the_longest_first_and_the_same_each_time():
    data = BucketDataModule(DATASET, COLLATE, val_dataset=OTHERS, test_dataset=OTHERS, **OPTIONS)
    model = Module()
    batches = list(sampler_of(OTHERS, shuffle=False))
    expected = [[24 + index for index in batch] for batch in batches]
    for evaluate in (new_trainer().validate, new_trainer().validate, new_trainer().test):
        model.evaluated.clear()
        evaluate(model, datamodule=data, verbose=False)
        assert model.evaluated == expected
    model.evaluated.clear()
    trainer = new_trainer(max_epochs=2, val_check_interval=3, num_sanity_val_steps=1)
    trainer.fit(model, datamodule=data)
    assert model.evaluated == expected[:1] + 4 * expected


def on_two_ranks(monkeypatch, rank):
    """Return a Trainer that says it is one of two ranks."""
    ranks = property(lambda _: {"num_replicas": 2, "rank": rank})
    monkeypatch.setattr(L.Trainer, "distributed_sampler_kwargs", ranks)
    return new_trainer()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"lengths": lambda dataset: [9] * len(dataset), "token_budget": 9},
            (
                "1 of the 7 samples of `val_dataset` are in several batches, because there are too "
                "few for 2 ranks."
            ),
        ),
        (
            {
                "lengths": lambda dataset: [0, 99, 99, 1, 1, 1, 1][: len(dataset)],
                "token_budget": 9,
                "too_long": "drop",
                "empty": "drop",
            },
            (
                "3 of the 7 samples of `val_dataset` are in no batch, because of too_long='drop' "
                "and empty='drop'."
            ),
        ),
    ],
)
def test_says_where_evaluation_has_not_every_sample_once(monkeypatch, options, message):
    rows = [{"input_ids": [1]}] * 7
    data = BucketDataModule(rows, dict, val_dataset=rows, **options)
    data.trainer = on_two_ranks(monkeypatch, 0)
    with pytest.warns(UserWarning, match=f"^{re.escape(message)}$"):
        data.setup("validate")
    data.trainer = on_two_ranks(monkeypatch, 1)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        data.setup("validate")
    assert message not in [str(one.message) for one in caught]


def test_says_nothing_where_evaluation_has_every_sample_once():
    data = BucketDataModule(DATASET, COLLATE, val_dataset=OTHERS, **OPTIONS)
    data.trainer = new_trainer()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        data.setup("fit")


def test_predicts_of_the_data_set_for_it():
    data = BucketDataModule(None, COLLATE, predict_dataset=OTHERS, **OPTIONS)
    model = Module()
    new_trainer().predict(model, datamodule=data)
    expected = sampler_of(OTHERS, shuffle=False)
    assert model.evaluated == [[24 + index for index in batch] for batch in expected]


def test_predicts_where_a_dataloader_would_not():
    trainer, model = new_trainer(), Module()
    loader = with_dataloader(trainer)
    trainer.predict(model, loader)
    trainer.predict(model, loader)
    assert model.evaluated == 2 * list(sampler_of())
    message = (
        "`lengths` must be the tokens of each sample, but is a SequentialSampler: if Lightning put "
        "it there, wrap the DataLoader in `evenstride.lightning.TrainerLoader`, or pass "
        "`use_distributed_sampler=False` (which does not help to predict)."
    )
    with pytest.raises(TypeError, match=f"^{re.escape(message)}$"):
        trainer.predict(model, loader.loader)


def test_a_module_makes_the_loader_that_it_is_told_to():
    names = {"DataLoader": DataLoader, "es": es, "dataset": DATASET, "collate": COLLATE}
    data = named("frameworks/lightning.md", "workers", **names)["data"]
    trained = fit(lambda _: data, max_epochs=1)
    assert [one[4] for one in trained] == list(sampler_of())
    assert data.train_dataloader().loader.num_workers == 2


def test_lengths_may_be_those_of_the_data_set_to_train_on():
    lengths = DATASET.lengths.tolist()
    trained = fit(lambda _: BucketDataModule(DATASET, COLLATE, lengths=lengths, **OPTIONS))
    assert trained == fit(with_module)


def scheduler(schedule):
    return L.pytorch.callbacks.GradientAccumulationScheduler(schedule)


@pytest.mark.parametrize("order", ["stratified", "mixed"])
@pytest.mark.parametrize(
    ("options", "callbacks"), [({"accumulate_grad_batches": 3}, []), ({}, [scheduler({0: 3})])]
)
def test_optimizer_steps_are_those_of_the_trainer(order, options, callbacks):
    data = BucketDataModule(DATASET, COLLATE, order=order, **OPTIONS)
    trainer = new_trainer(max_epochs=1, callbacks=callbacks, **options)
    model = Module()
    trainer.fit(model, datamodule=data)
    assert data.sampler.options.accumulation_steps == 3
    expected = list(sampler_of(order=order, accumulation_steps=3))
    assert [one[4] for one in model.trained] == expected != list(sampler_of(order=order))


def test_optimizer_steps_that_are_given_win():
    data = BucketDataModule(DATASET, COLLATE, accumulation_steps=2, **OPTIONS)
    data.trainer = new_trainer(accumulate_grad_batches=3)
    data.setup("fit")
    assert data.sampler.options.accumulation_steps == 2


@pytest.mark.parametrize("order", ["stratified", "mixed"])
@pytest.mark.parametrize(
    ("options", "callbacks", "accumulated"),
    [
        ({"accumulate_grad_batches": 2}, [], "2"),
        ({}, [scheduler({1: 4})], "1 and 4"),
    ],
)
def test_optimizer_steps_of_other_sizes_are_refused_where_they_span_buckets(
    order, options, callbacks, accumulated
):
    message = (
        "`accumulation_steps` of the sampler must be the batches that the Trainer accumulates, "
        f"{accumulated}, where `order` is '{order}', but is 1."
    )
    trainer = new_trainer(max_epochs=1, callbacks=callbacks, **options)
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        trainer.fit(Module(), with_dataloader(trainer, order=order))
    trainer.validate(Module(), with_dataloader(trainer, order=order), verbose=False)


class Manual(Module):
    def __init__(self):
        super().__init__()
        self.automatic_optimization = False


def test_a_module_that_takes_its_own_optimizer_steps_has_its_own_sizes():
    trainer, model = new_trainer(max_epochs=1), Manual()
    trainer.fit(model, with_dataloader(trainer, order="stratified", accumulation_steps=3))
    expected = list(sampler_of(order="stratified", accumulation_steps=3))
    assert [one[4] for one in model.trained] == expected


def test_a_version_that_keeps_the_states_of_checkpoints_elsewhere_is_refused():
    trainer = new_trainer()
    del trainer.fit_loop._combined_loader_states_to_load
    message = (
        "`trainer.fit_loop._combined_loader_states_to_load` must be there, since it is all that "
        "says which batches a checkpoint goes on with, but Lightning "
        f"{L.pytorch.__version__} has none."
    )
    with pytest.raises(RuntimeError, match=f"^{re.escape(message)}$"):
        trainer.fit(Module(), with_dataloader(trainer))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"budget": 1}, "`budget` must be an option of BucketBatchSampler, but is not."),
        ({"rank": 0}, "`rank` must be left to the Trainer, but is given."),
        ({"lengths": [1.5]}, "`lengths` must hold integers, but has dtype float64."),
        (
            {"lengths": [1, 2], "val_dataset": OTHERS},
            (
                "`lengths` must be a function from a data set to its lengths where `val_dataset` "
                "is given, but is a list."
            ),
        ),
        ({"new_loader": 3}, "`new_loader` must be callable, but is a int."),
    ],
)
def test_says_at_once_which_argument_is_not_one(options, message):
    with pytest.raises(TypeError, match=f"^{re.escape(message)}$"):
        BucketDataModule(DATASET, COLLATE, **OPTIONS, **options)


@pytest.mark.parametrize("name", ["train", "val", "test", "predict"])
def test_says_that_the_loaders_come_with_setup(name):
    datasets = {f"{other}_dataset": OTHERS for other in ("val", "test", "predict")}
    data = BucketDataModule(DATASET, COLLATE, **datasets, **OPTIONS)
    stage = {"train": "fit", "val": "fit"}.get(name, name)
    message = (
        f"`{name}_dataloader` must be asked for once the Trainer has called `setup('{stage}')`."
    )
    with pytest.raises(RuntimeError, match=f"^{re.escape(message)}$"):
        getattr(data, f"{name}_dataloader")()


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (
            lambda trainer: TrainerLoader(DataLoader(DATASET), trainer),
            TypeError,
            (
                "`loader` must be a Loader, or a DataLoader whose `batch_sampler` is a "
                "BucketBatchSampler, but is a DataLoader with a BatchSampler."
            ),
        ),
        (
            lambda trainer: TrainerLoader([1, 2], trainer),
            TypeError,
            (
                "`loader` must be a Loader, or a DataLoader whose `batch_sampler` is a "
                "BucketBatchSampler, but is a list."
            ),
        ),
        (
            lambda trainer: TrainerLoader(
                es.Loader(DATASET, sampler_of(), COLLATE, in_order=False), trainer
            ),
            ValueError,
            "`in_order` of `loader` must be True, but is False.",
        ),
        (
            lambda trainer: TrainerLoader(
                DataLoader(DATASET, batch_sampler=sampler_of(), in_order=False), trainer
            ),
            ValueError,
            "`in_order` of `loader` must be True, but is False.",
        ),
        (
            lambda _: TrainerLoader(es.Loader(DATASET, sampler_of(), COLLATE), None),
            TypeError,
            "`trainer` must be a Trainer, but is a NoneType.",
        ),
        (
            lambda trainer: [with_dataloader(trainer)],
            TypeError,
            "A TrainerLoader must be all that a Trainer trains from, but it is in a list.",
        ),
        (
            partial(with_dataloader, num_replicas=2, rank=0),
            ValueError,
            (
                "`num_replicas` of the sampler must be that of the Trainer, 1, but is 2: use the "
                "sampler only once `fit` has begun, or give it `num_replicas` and `rank`."
            ),
        ),
        (
            lambda _: BucketDataModule(
                DATASET, COLLATE, lengths=[1, 2], new_loader=DataLoader, **OPTIONS
            ),
            ValueError,
            ("`sampler` must be made of as many lengths as `dataset` has samples, 24, but has 2."),
        ),
        (
            lambda _: BucketDataModule(None, COLLATE, **OPTIONS),
            TypeError,
            "`train_dataset` must be given for `train_dataloader`, but is None.",
        ),
        (
            lambda _: BucketDataModule(DATASET, None, **OPTIONS),
            TypeError,
            "`collate` must be callable, but is a NoneType.",
        ),
        (
            lambda _: BucketDataModule([{"input_ids": [1]}], COLLATE, **OPTIONS),
            TypeError,
            "`lengths` must be given, because a list has no `lengths` of its own.",
        ),
        (
            lambda _: BucketDataModule(
                DATASET,
                COLLATE,
                new_loader=lambda *_: es.Loader(DATASET, sampler_of(), COLLATE),
                **OPTIONS,
            ),
            ValueError,
            "`new_loader` must use the sampler that it is given, but has used another.",
        ),
        (
            lambda _: with_module(None).sampler,
            RuntimeError,
            "`sampler` must be asked for once the Trainer has called `setup('fit')`.",
        ),
    ],
)
def test_says_what_is_wrong(make, error, message):
    with pytest.raises(error, match=f"^{re.escape(message)}$"):
        fit(make)


def test_a_missing_package_is_named(monkeypatch):
    for name in [name for name in sys.modules if name.startswith("evenstride.lightning")]:
        monkeypatch.delitem(sys.modules, name)
    for name in ("lightning", "lightning.pytorch", "pytorch_lightning"):
        monkeypatch.setitem(sys.modules, name, None)
    message = "Lightning must be installed: `pip install 'evenstride[lightning]'`."
    with pytest.raises(ImportError, match=f"^{re.escape(message)}$"):
        __import__("evenstride.lightning")
