"""What a Trainer with buckets takes from its arguments, and what it refuses."""

from __future__ import annotations

import copy
import importlib
import re
import subprocess
import sys
from itertools import islice

import numpy as np
import pytest
import torch
from torch.nn import functional
from torch.utils.data import DataLoader, Subset

import evenstride as es
from framework_job import NUM_SAMPLES, Model, new_collator, new_dataset, new_lengths
from framework_support import documented

pytest.importorskip("datasets")
pytest.importorskip("transformers")

import transformers

from trainer_support import arguments, hugging_face, sampler_of, trainer_of


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_options_come_from_the_arguments():
    sampler = sampler_of(
        buckets={"order": "stratified", "buckets": [9, 20]},
        gradient_accumulation_steps=3,
        dataloader_drop_last=True,
        seed=11,
        per_device_train_batch_size=6,
    )
    expected = es.BucketBatchSampler(
        new_lengths(),
        token_budget=6 * 32,
        order="stratified",
        buckets=[9, 20],
        accumulation_steps=3,
        drop_last=True,
        seed=11,
    )
    assert sampler.options == expected.options
    assert sampler_of(seed=11, data_seed=12).options.seed == 12


def test_the_budget_is_that_of_the_largest_batch_of_before():
    fields = {"input_ids": es.Field(0), "labels": es.Field(-100)}
    collate = es.PadCollator(fields, pad_to_multiple_of=7)
    assert sampler_of().options.token_budget == 4 * 32
    options = sampler_of(collate=collate).options
    assert (options.pad_to_multiple_of, options.token_budget) == (7, 4 * 35)
    sampler = sampler_of(buckets={"lengths": [3] * NUM_SAMPLES}, collate=dict)
    assert sampler.options.token_budget == 4 * 3


def test_the_loader_has_what_the_arguments_say():
    loader = trainer_of(
        dataloader_num_workers=2, dataloader_prefetch_factor=3, dataloader_persistent_workers=True
    ).get_train_dataloader()
    assert (loader.num_workers, loader.prefetch_factor, loader.persistent_workers) == (2, 3, True)
    assert len(loader) == len(loader.batch_sampler)


def test_columns_that_the_model_does_not_take_are_left_out():
    extra = np.arange(NUM_SAMPLES)
    for dataset in (
        hugging_face(extra=extra.tolist()),
        es.RaggedDataset.from_arrow(hugging_face(extra=extra.tolist())),
    ):
        batch = next(iter(trainer_of(dataset=dataset).get_train_dataloader()))
        assert sorted(batch) == ["attention_mask", "input_ids", "labels"]
        trainer = trainer_of(dataset=dataset, remove_unused_columns=False)
        assert "extra" in next(iter(trainer.get_train_dataloader()))


def test_no_row_of_a_ragged_data_set_is_made(monkeypatch):
    for dataset in (new_dataset(), Subset(new_dataset(), range(20))):
        with monkeypatch.context() as patch:
            patch.setattr(es.RaggedDataset, "__getitem__", None)
            loader = trainer_of(dataset=dataset).get_train_dataloader()
            assert next(iter(loader))["input_ids"].shape[1] > 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"accelerator_config": {"split_batches": True}},
            (
                "`accelerator_config.split_batches` must be off, since each rank reads batches "
                "of its own, but is True."
            ),
        ),
        (
            {"accelerator_config": {"dispatch_batches": True}},
            (
                "`accelerator_config.dispatch_batches` must be off, since each rank reads batches "
                "of its own, but is True."
            ),
        ),
        (
            {"dataloader_in_order": False},
            (
                "`dataloader_in_order` must be True, since steps come in the order of the plan, "
                "but is False."
            ),
        ),
        (
            {"train_sampling_strategy": "sequential"},
            (
                "`train_sampling_strategy` must be left out, since the sampler sets the order, "
                "but is 'sequential'."
            ),
        ),
    ],
)
def test_refuses_arguments_that_would_change_the_batches(options, message):
    if not options.keys() <= transformers.TrainingArguments.__dataclass_fields__.keys():
        pytest.skip("This version has no such argument.")
    trainer = trainer_of(**options)
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        trainer.get_train_dataloader()


class Ordered(transformers.Trainer):
    def _get_train_sampler(self, *_):
        return range(3)


class OrderedAfterwards(es.transformers.with_buckets(transformers.Trainer)):
    _get_train_sampler = Ordered._get_train_sampler


@pytest.mark.parametrize("parent", [Ordered, OrderedAfterwards])
def test_refuses_a_class_with_an_order_of_its_own(parent):
    message = (
        f"`{parent.__name__}` must leave the order to the sampler, but has a `_get_train_sampler` "
        "of its own."
    )
    trainer = trainer_of(parent=parent)
    with pytest.raises(TypeError, match=f"^{re.escape(message)}$"):
        trainer.get_train_dataloader()


class Loading(transformers.Trainer):
    def get_train_dataloader(self):
        collate = es.PadCollator({"input_ids": es.Field(0)}, max_length=7)
        return DataLoader(self.train_dataset, shuffle=True, collate_fn=collate, num_workers=1)


def test_takes_all_but_the_order_from_a_loader_of_the_class():
    loader = trainer_of(parent=Loading).get_train_dataloader()
    assert loader.batch_sampler.lengths.max() == loader.collate_fn.max_length == 7
    assert loader.num_workers == 1
    assert isinstance(loader.batch_sampler, es.BucketBatchSampler)


class OtherRows(transformers.Trainer):
    def get_train_dataloader(self):
        rows = self.train_dataset.select(range(40, 0, -1))
        sampler = self._get_train_sampler(train_dataset=rows)
        assert len(sampler) == len(rows)
        return DataLoader(rows, sampler=sampler, collate_fn=self.data_collator)


class OtherColumns(transformers.Trainer):
    def get_train_dataloader(self):
        self.train_dataset = self.train_dataset.map(
            lambda row: {name: values[:5] for name, values in row.items()}
        )
        return super().get_train_dataloader()


def test_lengths_are_those_of_the_rows_that_the_class_has_in_its_loader():
    expected = new_lengths()[40:0:-1].tolist()
    for dataset in (new_dataset(), hugging_face()):
        assert sampler_of(dataset=dataset, parent=OtherRows).lengths.tolist() == expected
    sampler = sampler_of(dataset=hugging_face(), parent=OtherColumns)
    assert sampler.lengths.tolist() == new_lengths().clip(max=5).tolist()


def test_every_label_of_an_optimizer_step_counts_the_same():
    config = transformers.LlamaConfig(
        vocab_size=256,
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
    )
    model = transformers.LlamaForCausalLM(config)
    reference = copy.deepcopy(model)
    trainer = trainer_of(
        model=model,
        max_steps=1,
        gradient_accumulation_steps=3,
        optim="sgd",
        learning_rate=1.0,
        lr_scheduler_type="constant",
        max_grad_norm=0.0,
    )
    loss = 0.0
    for batch in islice(trainer.get_train_dataloader(), 3):
        logits = reference(batch["input_ids"], batch["attention_mask"]).logits[:, :-1]
        labels = batch["labels"][:, 1:].flatten()
        loss += functional.cross_entropy(logits.flatten(0, 1), labels, reduction="sum")
    loss.backward()
    trainer.train()
    wanted = torch.cat([before.grad.flatten() for before in reference.parameters()])
    pairs = zip(reference.parameters(), model.parameters(), strict=True)
    step = torch.cat([(before - after).detach().flatten() for before, after in pairs])
    # What the sum is divided by differs: version 4 counts the first label of a sample too.
    torch.testing.assert_close(step / step.norm(), wanted / wanted.norm(), atol=1e-5, rtol=1e-3)


class Sharing(transformers.Trainer):
    def get_tp_size(self):
        return 2


def test_refuses_ranks_that_share_batches():
    message = (
        "Each of the 1 ranks must train on batches of its own, but the Trainer shares 0 among "
        "them: tensor, context and sequence parallelism are not supported."
    )
    trainer = trainer_of(parent=Sharing)
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        trainer.get_train_dataloader()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"seed": 1},
            "`seed` must be left to TrainingArguments, which has `data_seed`, but is given.",
        ),
        ({"rank": 0}, "`rank` must be left to the Trainer, but is given."),
        ({"budget": 1}, "`budget` must be an option of BucketBatchSampler, but is not."),
    ],
)
def test_says_which_option_is_not_one(options, message):
    with pytest.raises(TypeError, match=f"^{re.escape(message)}$"):
        es.transformers.with_buckets(transformers.Trainer, **options)

    class Own(es.transformers.BucketBatchMixin, transformers.Trainer):
        bucket_options = options

    with pytest.raises(TypeError, match=f"^{re.escape(message)}$"):
        Own(Model(), arguments())


def test_buckets_can_be_given_again():
    once = es.transformers.with_buckets(transformers.Trainer, token_budget=96)
    again = es.transformers.with_buckets(once, token_budget=64)
    assert again.__name__ == "Trainer"
    trainer = again(Model(), arguments(), train_dataset=new_dataset(), data_collator=new_collator())
    assert trainer.get_train_dataloader().batch_sampler.options.token_budget == 64


def test_a_batch_split_over_devices_is_a_warning():
    own = arguments()
    own._n_gpu = 2
    trainer = es.transformers.with_buckets(transformers.Trainer)(
        Model(), own, train_dataset=new_dataset(), data_collator=new_collator()
    )
    message = (
        "Each batch is split over 2 devices, because the Trainer runs in one process: start a "
        "process for each device with torchrun."
    )
    with pytest.warns(UserWarning, match=f"^{re.escape(message)}$"):
        sampler = trainer.get_train_dataloader().batch_sampler
    assert sampler.options.token_budget == 4 * 32


def test_a_collator_of_another_multiple_is_refused():
    theirs = transformers.DataCollatorWithPadding(None, pad_to_multiple_of=16)
    for collate, multiple in ((new_collator(), 1), (theirs, 16)):
        message = (
            "`pad_to_multiple_of` must be the same in `sampler` and `collate`, but is 8 and "
            f"{multiple}."
        )
        trainer = trainer_of(buckets={"pad_to_multiple_of": 8}, collate=collate)
        with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
            trainer.get_train_dataloader()


def test_a_collator_of_one_width_is_refused():
    collate = transformers.DataCollatorWithPadding(None, padding="max_length", max_length=32)
    message = (
        "`padding` of the collator must be True or 'longest', since a batch is planned as wide as "
        "its longest sample, but is 'max_length'."
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        trainer_of(collate=collate).get_train_dataloader()


def test_the_page_shows_the_class_and_the_plan(capsys):
    names = {"es": es, "Trainer": transformers.Trainer}
    exec(documented("frameworks/transformers.md", "class"), names)  # noqa: S102
    names["trainer"] = names["OwnTrainer"](
        Model(), arguments(), train_dataset=new_dataset(), data_collator=new_collator()
    )
    exec(documented("frameworks/transformers.md", "preview"), names)  # noqa: S102
    sampler = names["trainer"].get_train_dataloader().batch_sampler
    assert sampler.options.token_budget == 16_384
    assert capsys.readouterr().out == sampler.plan.stats().table() + "\n"


def test_says_what_to_install(monkeypatch):
    for name in [name for name in sys.modules if name.startswith("evenstride.transformers")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "transformers", None)
    message = (
        "`evenstride.transformers` needs transformers: install it with "
        "`pip install 'evenstride[transformers]'`."
    )
    with pytest.raises(ImportError, match=f"^{re.escape(message)}$"):
        importlib.import_module("evenstride.transformers")


def test_is_imported_only_on_use():
    code = "import sys, evenstride; sys.exit('transformers' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
