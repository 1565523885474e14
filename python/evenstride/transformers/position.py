"""The callback that keeps the position in the epoch in checkpoints, and checks it on resuming."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

from transformers import TrainerCallback
from transformers.trainer_callback import ExportableState

from evenstride.sampler import BucketBatchSampler
from evenstride.state import check_state

if TYPE_CHECKING:
    from typing import TypeAlias

    State: TypeAlias = dict[str, Any]


class BucketPosition(TrainerCallback, ExportableState):  # type: ignore[misc]
    """Saves what batches depend on in ``trainer_state.json``, and sets the sampler's epochs.

    The ``Trainer`` itself knows where to go on: it counts optimizer steps, and skips as many
    batches of the epoch as they took. That is right as long as these are the batches that were
    there when the checkpoint was saved, which this checks.
    """

    saved: State | None = None

    def __init__(self) -> None:
        self._sampler: BucketBatchSampler | None = None
        self._epoch = 0  # Of the pass that begins next.
        self._position = 0, 0

    def state(self) -> State:
        """Return what a checkpoint keeps."""
        if self._sampler is not None:
            epoch, step = self._position
            state = self._sampler.state_dict(consumed=0)
            self.saved = {**state, "epoch": epoch, "step": step}
        return {"args": {}, "attributes": {"saved": self.saved}}

    def on_train_begin(
        self, args: Any, state: Any, control: Any, train_dataloader: Any = None, **_: Any
    ) -> None:
        """Find out where training goes on, and whether the batches are still the same.

        Raises
        ------
        TypeError
            If the loader is not of the mix-in.
        ValueError
            If the checkpoint is of other lengths, options or ranks, or of none.

        """
        del control
        sampler = getattr(train_dataloader, "batch_sampler", None)
        if not isinstance(sampler, BucketBatchSampler):
            msg = (
                "`get_train_dataloader()` must return the loader of BucketBatchMixin, with its "
                f"sampler, but `batch_sampler` is of type {type(sampler).__name__}."
            )
            raise TypeError(msg)
        self._sampler = sampler
        accumulated = sampler.options.accumulation_steps
        optimizer_steps = -(-len(sampler) // accumulated)
        self._epoch, done = divmod(state.global_step, optimizer_steps)
        self._position = self._epoch, done * accumulated
        name = type(self).__name__
        saved = state.stateful_callbacks.get(name, {}).get("attributes", {}).get("saved")
        if state.global_step > 0:
            if args.ignore_data_skip:
                self._warn()
            else:
                self._check(saved, sampler)
        # The Trainer counts on an entry, which a checkpoint from before this callback lacks.
        state.stateful_callbacks[name] = self.state()

    def _warn(self) -> None:
        epoch, step = self._position
        if step > 0:
            warnings.warn(
                f"Epoch {epoch} begins anew, although {step} of its steps were trained on before, "
                "because of `ignore_data_skip=True`: without it no data is read to skip them.",
                stacklevel=3,
            )

    def _check(self, saved: State | None, sampler: BucketBatchSampler) -> None:
        if saved is None:
            msg = (
                "The checkpoint must be of a Trainer with buckets, but was saved without: pass "
                "`ignore_data_skip=True` to go on at the start of an epoch."
            )
            raise ValueError(msg)
        found = check_state(saved, sampler.state_dict(consumed=0))
        if found != self._position:
            epoch, step = self._position
            msg = (
                f"Each epoch before the checkpoint must be whole, since the Trainer counts that "
                f"it goes on at step {step} of epoch {epoch}, but the checkpoint was saved at step "
                f"{found[1]} of epoch {found[0]}."
            )
            raise ValueError(msg)

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Set the epoch, which the Trainer does not in each version and for each loader."""
        del args, state, control
        if self._sampler is not None:
            self._sampler.set_epoch(self._epoch)
        self._epoch += 1

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Take down how many steps of the epoch are done."""
        del args, control
        if self._sampler is not None:
            epoch = self._epoch - 1
            self._position = epoch, round((state.epoch - epoch) * len(self._sampler))
