"""A Trainer with buckets goes on from a checkpoint, or says why it cannot."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import torch

import evenstride as es
from framework_job import Model, new_dataset, new_lengths

pytest.importorskip("datasets")
pytest.importorskip("transformers")

import transformers

from evenstride.transformers.position import BucketPosition
from trainer_support import Rows, arguments, sampler_of, trained, trainer_of


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EVENSTRIDE_RECORD", str(tmp_path))


@pytest.fixture(autouse=True)
def one_thread():
    """Compute with one thread: batches are too small for more."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def indices(steps):
    return [step.indices for step in steps]


def test_no_sample_is_read_to_get_to_the_first_new_batch():
    lengths = {"lengths": new_lengths()}
    whole, rest = Rows(), Rows()
    steps = trained(trainer_of(buckets=lengths, dataset=whole, save_steps=7))
    again = trained(trainer_of(buckets=lengths, dataset=rest), "checkpoints/checkpoint-7")
    assert again == steps[7:]
    assert rest.asked == whole.asked[sum(len(step.indices) for step in steps[:7]) :]


def test_goes_on_with_workers_and_after_an_evaluation():
    plain = trained(trainer_of())
    workers = {"dataloader_num_workers": 2, "dataloader_persistent_workers": True}
    trainer = trainer_of(
        **workers,
        save_steps=9,
        eval_strategy="steps",
        eval_steps=4,
        inputs={"eval_dataset": new_dataset().select(range(10))},
    )
    assert trained(trainer) == plain
    assert trained(trainer_of(**workers), "checkpoints/checkpoint-9") == plain[9:]


def test_the_end_of_an_epoch_is_the_start_of_the_next():
    steps = trained(trainer_of(save_strategy="epoch", gradient_accumulation_steps=4))
    middle = len(steps) // 2
    assert middle % 4 > 0
    rest = trainer_of(gradient_accumulation_steps=4)
    assert trained(rest, f"checkpoints/checkpoint-{-(-middle // 4)}") == steps[middle:]
    assert rest.state.global_step == rest.state.max_steps == 2 * -(-middle // 4)


def test_epochs_in_part_and_a_number_of_steps():
    plain = trained(trainer_of())
    in_epoch = len(plain) // 2
    # The learning rate falls in fewer steps, so that losses differ.
    half = trained(trainer_of(num_train_epochs=1.5))
    assert indices(half) == indices(plain[: -(-in_epoch * 3 // 2)])
    longer = trainer_of(max_steps=in_epoch + 3)
    assert indices(trained(longer)) == indices(plain[: in_epoch + 3])
    assert longer.state.num_train_epochs == 2


def test_counting_tokens_first_changes_nothing():
    name = "include_tokens_per_second"
    if name not in transformers.TrainingArguments.__dataclass_fields__:
        pytest.skip("This version counts none.")
    assert trained(trainer_of(**{name: True})) == trained(trainer_of())


class Small(Model):
    """Out of memory with more than 100 padded tokens."""

    def forward(self, input_ids, attention_mask=None, labels=None):
        if input_ids.numel() > 100:
            msg = "DefaultCPUAllocator: can't allocate memory"
            raise RuntimeError(msg)
        return super().forward(input_ids, attention_mask, labels)


def test_the_budget_shrinks_with_the_batch_size_that_is_found():
    options = {"auto_find_batch_size": True, "save_steps": 6}
    trainer = trainer_of(model=Small(), **options)
    steps = trained(trainer)
    sampler = trainer.get_train_dataloader().batch_sampler
    assert sampler.options.token_budget == 4 * 32 * 3 // 4
    assert trainer.state.global_step == trainer.state.max_steps == 2 * len(sampler)
    whole = steps[-trainer.state.max_steps :]
    rest = trained(trainer_of(model=Small(), **options), "checkpoints/checkpoint-6")
    assert rest == whole[6:]


def saved(**options):
    """Save a checkpoint after 5 steps."""
    trained(trainer_of(max_steps=5, save_steps=5, **options))
    return "checkpoints/checkpoint-5"


def test_whatever_a_plan_depends_on_must_be_the_same():
    checkpoint = saved(buckets={"token_budget": 96})
    other = new_dataset().select([1, 0, *range(2, 150)])
    for name, value, options in (
        ("token_budget", (96, 92), {"buckets": {"token_budget": 92}}),
        (
            "order",
            ("'stride'", "'balanced'"),
            {"buckets": {"token_budget": 96, "order": "balanced"}},
        ),
        ("accumulation_steps", (1, 2), {"gradient_accumulation_steps": 2}),
        ("seed", (42, 43), {"seed": 43}),
        ("drop_last", (False, True), {"dataloader_drop_last": True}),
    ):
        message = (
            f"`{name}` must be the same as when the state was saved, but was {value[0]} there and "
            f"is {value[1]} here."
        )
        trainer = trainer_of(**{"buckets": {"token_budget": 96}, **options})
        with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
            trainer.train(resume_from_checkpoint=checkpoint)
    trainer = trainer_of(buckets={"token_budget": 96}, dataset=other)
    with pytest.raises(
        ValueError, match=r"^`lengths` must be the same as when the state was saved"
    ):
        trainer.train(resume_from_checkpoint=checkpoint)


def test_a_token_budget_that_is_given_does_not_change_with_the_batch_size():
    steps = trained(trainer_of(buckets={"token_budget": 96}, save_steps=5))
    for size in (2, 8):
        trainer = trainer_of(buckets={"token_budget": 96}, per_device_train_batch_size=size)
        assert trained(trainer, "checkpoints/checkpoint-5") == steps[5:]


def test_a_checkpoint_without_buckets_goes_on_at_the_start_of_an_epoch():
    plain = transformers.Trainer(
        Model(),
        arguments(max_steps=40, save_steps=40),
        train_dataset=new_dataset(),
        data_collator=trainer_of().data_collator,
    )
    plain.train()
    checkpoint = "checkpoints/checkpoint-40"
    message = (
        "The checkpoint must be of a Trainer with buckets, but was saved without: pass "
        "`ignore_data_skip=True` to go on at the start of an epoch."
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        trainer_of().train(resume_from_checkpoint=checkpoint)
    in_epoch = len(sampler_of())
    whole = trained(trainer_of(num_train_epochs=3))
    warning = (
        f"Epoch 1 begins anew, although {40 - in_epoch} of its steps were trained on before, "
        "because of `ignore_data_skip=True`: without it no data is read to skip them."
    )
    trainer = trainer_of(num_train_epochs=3, ignore_data_skip=True, save_steps=41)
    with pytest.warns(UserWarning, match=f"^{re.escape(warning)}$"):
        rest = trained(trainer, checkpoint)
    assert indices(rest[:in_epoch]) == indices(whole[in_epoch : 2 * in_epoch])


class Halt(transformers.TrainerCallback):
    """Ends the first epoch after 3 steps."""

    def on_step_end(self, _, state, control, **__):
        control.should_epoch_stop = state.global_step == 3


def test_a_checkpoint_after_an_epoch_that_was_cut_short_is_refused():
    trained(trainer_of(save_steps=5, inputs={"callbacks": [Halt()]}))
    message = (
        "Each epoch before the checkpoint must be whole, since the Trainer counts that it goes on "
        "at step 5 of epoch 0, but the checkpoint was saved at step 2 of epoch 1."
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        trainer_of().train(resume_from_checkpoint="checkpoints/checkpoint-5")


def test_the_epoch_is_set_though_the_trainer_does_not():
    loader = trainer_of().get_train_dataloader()
    in_epoch = len(loader)
    state = transformers.TrainerState(global_step=2 * in_epoch, stateful_callbacks={})
    position = BucketPosition()
    saved = loader.batch_sampler.state_dict() | {"epoch": 1, "step": in_epoch}
    state.stateful_callbacks["BucketPosition"] = {"attributes": {"saved": saved}}
    events = {"state": state, "args": arguments(), "control": None}
    position.on_train_begin(train_dataloader=loader, **events)
    for epoch in (2, 3):
        position.on_epoch_begin(**events)
        assert loader.batch_sampler.epoch == epoch


def test_callbacks_may_be_restored():
    steps = trained(trainer_of(save_steps=5))
    for step in (5, 10):  # The second is a checkpoint of the first that was resumed.
        trainer = trainer_of(restore_callback_states_from_checkpoint=True, save_steps=5)
        assert trained(trainer, f"checkpoints/checkpoint-{step}") == steps[step:]


def test_the_state_is_plain_in_the_checkpoint():
    path = Path(saved()) / "trainer_state.json"
    state = json.loads(path.read_text(encoding="utf-8"))
    kept = state["stateful_callbacks"]["BucketPosition"]["attributes"]["saved"]
    assert (kept["epoch"], kept["step"], kept["num_replicas"]) == (0, 5, 1)


def test_a_loader_of_another_kind_is_refused():
    class Own(es.transformers.with_buckets(transformers.Trainer)):
        def get_train_dataloader(self):
            return torch.utils.data.DataLoader(self.train_dataset, collate_fn=self.data_collator)

    trainer = Own(
        Model(),
        arguments(),
        train_dataset=new_dataset(),
        data_collator=trainer_of().data_collator,
    )
    message = (
        "`get_train_dataloader()` must return the loader of BucketBatchMixin, with its sampler, "
        "but `batch_sampler` is of type BatchSampler."
    )
    with pytest.raises(TypeError, match=f"^{re.escape(message)}$"):
        trainer.train()


def test_predictions_come_in_the_order_of_the_data():
    predicted = trainer_of(remove_unused_columns=False).predict(new_dataset())
    assert predicted.label_ids[:, 0].tolist() == list(range(len(new_dataset())))
