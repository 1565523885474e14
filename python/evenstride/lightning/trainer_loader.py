"""What a Trainer takes batches from: a loader that begins where the Trainer's counters are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from torch.utils.data import DataLoader

from evenstride.lightning.framework import framework
from evenstride.loader import Loader
from evenstride.sampler import BucketBatchSampler

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lightning.pytorch import Trainer

_OF_OPTIMIZER_STEPS = ("stratified", "mixed")


class TrainerLoader:
    """A loader with a :class:`BucketBatchSampler`, as a Lightning ``Trainer`` takes it.

    Lightning leaves it alone: it makes no sampler of its own around it, also with several ranks and
    to predict. Each pass of training begins in the epoch and at the batch where the Trainer's own
    counters are, also after ``trainer.fit(ckpt_path=...)`` amid an epoch; what a ``DataLoader``
    with workers has asked for ahead does not count. With ``overfit_batches`` every epoch is
    epoch 0. Each pass of validation, testing and predicting is all of epoch 0.

    A checkpoint holds what :meth:`BucketBatchSampler.state_dict` does: going on with other lengths,
    options or ranks is an error, and so is going on amid an epoch from a checkpoint without it.

    Parameters
    ----------
    loader : DataLoader or Loader
        A ``DataLoader`` whose ``batch_sampler`` is a :class:`BucketBatchSampler`, or a
        :class:`Loader`; either `in_order`.
    trainer : Trainer
        Which takes the batches: in ``train_dataloader`` of a module, ``self.trainer``. Another
        Trainer needs a TrainerLoader of its own, and what takes batches without one, `loader`.

    Attributes
    ----------
    loader : DataLoader or Loader
        As given.
    batch_sampler : BucketBatchSampler
        That of `loader`.

    Raises
    ------
    TypeError
        If `loader` or `trainer` is not of its kind.
    ValueError
        If `loader` is not in order.

    Examples
    --------
    >>> import lightning as L
    >>> from torch.utils.data import DataLoader
    >>> import evenstride as es
    >>> ds = es.RaggedDataset.from_lists([[7, 8, 9], [4], [5, 6], [1, 2, 3]])
    >>> sampler = es.BucketBatchSampler(ds.lengths, token_budget=6, buckets=1)
    >>> collate = es.PadCollator({"input_ids": es.Field()})
    >>> trainer = L.Trainer(max_epochs=2, logger=False, enable_checkpointing=False)
    >>> loader = DataLoader(ds, batch_sampler=sampler, collate_fn=collate)
    >>> len(es.lightning.TrainerLoader(loader, trainer))  # For trainer.fit(model, ...).
    2

    """

    def __init__(self, loader: DataLoader[Any] | Loader, trainer: Trainer) -> None:
        if not hasattr(trainer, "fit_loop"):
            msg = f"`trainer` must be a Trainer, but is a {type(trainer).__name__}."
            raise TypeError(msg)
        self.loader = loader
        self.batch_sampler = batch_sampler_of(loader)
        self._trainer: Any = trainer
        self._epoch = 0
        self._saved: Mapping[str, Any] = {}

    def __len__(self) -> int:
        """Return the number of batches of this rank in an epoch: the same in all of them."""
        return len(self.loader)

    def __iter__(self) -> Iterator[Any]:
        """Iterate over the batches of a pass, which begins at its first ``next``.

        Raises
        ------
        ValueError
            If the Trainer is not the one that runs. If the sampler is for another number of ranks
            than it has, or makes optimizer steps of another number of batches than it accumulates.
            If the checkpoint is of other lengths, options or ranks, or is from amid an epoch of
            other batches.
        TypeError
            If the Trainer trains from several loaders.
        RuntimeError
            If this version of Lightning does not keep the states of checkpoints where it is known.

        """
        # Made by Lightning before it knows where training goes on, and more often than there are
        # passes: nothing here runs until a batch is asked for.
        sampler, state = self.batch_sampler, self.batch_sampler.state_dict()
        self._check_running()
        self._check_ranks(state["num_replicas"])
        epoch, step = 0, 0
        if self._trainer.training:
            self._check_alone()
            self._check_accumulation()
            step, saved = self._num_trained(), self._saved_state()
            self._check_saved(step, saved)
            if step >= self._trainer.num_training_batches:
                return  # With `max_steps`, Lightning asks again after the end of an epoch.
            if not self._trainer.overfit_batches:
                epoch = self._trainer.current_epoch
                if step > 0:  # Lightning counts an epoch that `max_steps` has cut short as over.
                    epoch = saved.get("epoch", epoch)
            self._epoch = epoch
            state |= saved
        sampler.load_state_dict({**state, "epoch": epoch, "step": step})
        yield from self.loader

    @property
    def worker_init_fn(self) -> Callable[[int], Any] | None:
        """That of the ``DataLoader``, which Lightning sets to seed workers, if it is one."""
        if isinstance(self.loader, DataLoader):
            return self.loader.worker_init_fn
        msg = "A `Loader` has threads, and no processes to call a function in."
        raise AttributeError(msg)

    @worker_init_fn.setter
    def worker_init_fn(self, function: Callable[[int], Any] | None) -> None:
        self.loader.worker_init_fn = function  # type: ignore[union-attr]

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the sampler at the batches that have been trained on."""
        state = self.batch_sampler.state_dict()
        return {**state, "epoch": self._epoch, "step": self._num_trained()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Keep the state of a checkpoint, which training goes on from only if it agrees."""
        self._saved = state

    def _num_trained(self) -> int:
        """Return how many batches of the epoch have been trained on, as Lightning has it.

        That is where it goes on: before a batch that an exception has interrupted, say.
        """
        processed: int = self._trainer.fit_loop.epoch_loop.batch_progress.current.processed
        return processed

    def _saved_state(self) -> dict[str, Any]:
        # Lightning hands over no state between epochs, nor where `configure_optimizers` has asked
        # for the number of steps, but keeps it.
        name = "_combined_loader_states_to_load"
        if not hasattr(self._trainer.fit_loop, name):
            msg = (
                f"`trainer.fit_loop.{name}` must be there, since it is all that says which batches "
                f"a checkpoint goes on with, but Lightning {framework().__version__} has none."
            )
            raise RuntimeError(msg)
        kept = getattr(self._trainer.fit_loop, name)
        return dict(kept[0] if kept else self._saved)

    def _check_running(self) -> None:
        status = self._trainer.state.status
        if status != "running":
            msg = (
                "`trainer` must be the Trainer that takes the batches, but is one that is "
                f"{status.value}: make a TrainerLoader for each Trainer."
            )
            raise ValueError(msg)

    def _check_saved(self, step: int, saved: Mapping[str, Any]) -> None:
        # Without a checkpoint, a pass can begin after batches of an epoch only if that has ended.
        if step > 0 and not saved and self._trainer.fit_loop.epoch_loop.restarting:
            msg = (
                "A checkpoint from amid an epoch must be of a TrainerLoader, but this one, after "
                f"{step} batches, is of other batches: take one from the end of an epoch, or set "
                "its count of batches to 0."
            )
            raise ValueError(msg)

    def _check_ranks(self, num_replicas: int) -> None:
        ranks = self._trainer.distributed_sampler_kwargs or {"num_replicas": 1, "rank": 0}
        if num_replicas != ranks["num_replicas"]:
            msg = (
                f"`num_replicas` of the sampler must be that of the Trainer, "
                f"{ranks['num_replicas']}, but is {num_replicas}: use the sampler only once `fit` "
                "has begun, or give it `num_replicas` and `rank`."
            )
            raise ValueError(msg)

    def _check_accumulation(self) -> None:
        options, accumulated = self.batch_sampler.options, accumulated_by(self._trainer)
        if not self._trainer.lightning_module.automatic_optimization:
            return  # The module itself decides what an optimizer step is.
        if options.order in _OF_OPTIMIZER_STEPS and accumulated != [options.accumulation_steps]:
            msg = (
                f"`accumulation_steps` of the sampler must be the batches that the Trainer "
                f"accumulates, {' and '.join(map(str, accumulated))}, where `order` is "
                f"{options.order!r}, but is {options.accumulation_steps}."
            )
            raise ValueError(msg)

    def _check_alone(self) -> None:
        taken_from = self._trainer.train_dataloader
        if isinstance(taken_from, (Mapping, Sequence)):
            msg = (
                "A TrainerLoader must be all that a Trainer trains from, but it is in a "
                f"{type(taken_from).__name__}."
            )
            raise TypeError(msg)


def accumulated_by(trainer: Any) -> list[int]:
    """Return how many batches an optimizer step of a Trainer has: several if that changes."""
    scheduler = framework().callbacks.GradientAccumulationScheduler
    numbers = {
        number
        for callback in trainer.callbacks
        if isinstance(callback, scheduler)
        for number in callback.scheduling.values()
    }
    return sorted(numbers or {trainer.accumulate_grad_batches})


def batch_sampler_of(loader: Any) -> BucketBatchSampler:
    """Return the sampler of a loader whose position can be told from a count; else say why not."""
    sampler = getattr(loader, "batch_sampler", None)
    is_loader = isinstance(loader, (DataLoader, Loader))
    if not is_loader or not isinstance(sampler, BucketBatchSampler):
        msg = (
            "`loader` must be a Loader, or a DataLoader whose `batch_sampler` is a "
            f"BucketBatchSampler, but is a {type(loader).__name__}"
            f"{f' with a {type(sampler).__name__}' if is_loader else ''}."
        )
        raise TypeError(msg)
    if not getattr(loader, "in_order", True):  # Older versions of torch have no choice.
        msg = "`in_order` of `loader` must be True, but is False."
        raise ValueError(msg)
    return sampler
