"""A callback that meters what Lightning trains on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch

from evenstride.lightning.framework import framework
from evenstride.metrics.callbacks import MeterCallback

if TYPE_CHECKING:
    from lightning.pytorch import Callback

    from evenstride.sampler import BucketBatchSampler
else:
    Callback = framework().Callback


class BatchMeterCallback(MeterCallback, Callback):
    """Feeds a :class:`evenstride.metrics.BatchMeter` with every step, and logs its scalars.

    Those of the window go to the Trainer's loggers every ``log_every_n_steps`` optimizer steps,
    those of the epoch at its end. Where the Trainer makes another loader for an epoch, or a
    ``GradientAccumulationScheduler`` changes the accumulation steps, the meter is another one that
    goes on with the figures, unless the buckets are others. Checkpoints keep the figures of rank 0;
    where training goes on from one, those of other ranks begin anew. Several of these callbacks
    need a window or a prefix each.

    Parameters
    ----------
    window : int, optional
        Steps of the rolling figures; by default that of the meter.
    grad_norm : bool, default True
        Whether to compute the norm of the gradients before each optimizer step: before any
        clipping. Sharded gradients need False.
    prefix : str, default "evenstride"
        What the names of all scalars begin with.

    Attributes
    ----------
    meter : BatchMeter or None
        From the start of training on.

    Raises
    ------
    TypeError
        At the start of training, if its loader has no BucketBatchSampler.

    Examples
    --------
    >>> import lightning as L
    >>> import evenstride as es
    >>> callback = es.lightning.BatchMeterCallback(window=100)
    >>> trainer = L.Trainer(callbacks=[callback], logger=False, enable_checkpointing=False)

    """

    _first_hook = "on_train_start"

    def __init__(
        self, *, window: int | None = None, grad_norm: bool = True, prefix: str = "evenstride"
    ) -> None:
        super().__init__(window, prefix)
        self._has_norm = grad_norm
        self._norm: torch.Tensor | None = None
        self._optimizer_step = 0
        self._saved: dict[str, Any] | None = None
        self._sampler: BucketBatchSampler | None = None
        self._accumulation_steps = 1

    @property
    def state_key(self) -> str:
        """The name of the state in checkpoints, so that there may be several meters."""
        return self._generate_state_key(**self._options, prefix=self._prefix)

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Meter the sampler that training takes its batches from."""
        del pl_module
        saved, self._saved = self._saved, None
        self._accumulation_steps, is_scheduled = _accumulation_steps_of(trainer)
        if saved is not None and is_scheduled:  # Which may have been others in the epoch before.
            saved = {**saved, "accumulation_steps": self._accumulation_steps}
        self._sampler = self._begin(trainer.train_dataloader, self._accumulation_steps, saved)
        self._optimizer_step = trainer.global_step

    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        """Follow a loader or accumulation steps that changed, and start the clock."""
        del pl_module
        before = self._running
        loader, (accumulation_steps, _) = trainer.train_dataloader, _accumulation_steps_of(trainer)
        sampler = getattr(loader, "batch_sampler", None)
        if sampler is not self._sampler or accumulation_steps != self._accumulation_steps:
            self._sampler = self._begin(loader, accumulation_steps, None)
            self._accumulation_steps = accumulation_steps
            saved = {**before.state_dict(), "accumulation_steps": accumulation_steps}
            if saved["edges"] == self._sampler.plan.edges.tolist():
                self._running.load_state_dict(saved)
        self._running.start()

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        """Leave out the time of validation."""
        del trainer, pl_module
        if self.meter is not None:
            self.meter.start()

    def on_before_optimizer_step(self, trainer: Any, pl_module: Any, optimizer: Any) -> None:
        """Take the norm of the gradients."""
        del trainer, optimizer
        if self._has_norm:
            self._norm = _norm_of_gradients(pl_module)

    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Count the step."""
        del pl_module, batch
        loss = outputs.get("loss") if isinstance(outputs, Mapping) else outputs
        if loss is not None:
            loss = loss * trainer.accumulate_grad_batches  # By which Lightning has divided it.
        self._running.update(batch_idx, loss=loss, grad_norm=self._norm)
        self._norm = None
        has_stepped = self._optimizer_step != trainer.global_step
        self._optimizer_step = trainer.global_step
        every = trainer.log_every_n_steps
        if has_stepped and every > 0 and trainer.global_step % every == 0:
            self._log(trainer, "window")

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """Log the figures of the epoch."""
        del pl_module
        self._log(trainer, "epoch")

    def _log(self, trainer: Any, scope: Any) -> None:
        # Not with `log_dict`, which makes a tensor on the device of every value.
        if trainer.loggers:
            scalars = self._running.scalars(scope, prefix=self._prefix)
            for logger in trainer.loggers:
                # As Lightning counts for what it logs of this very step.
                logger.log_metrics(scalars, step=trainer.global_step - 1)

    def state_dict(self) -> dict[str, Any]:
        """Return what checkpoints keep."""
        return {} if self.meter is None else self.meter.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Keep what a checkpoint has until training starts."""
        self._saved = state_dict or None


def _accumulation_steps_of(trainer: Any) -> tuple[int, bool]:
    """Return those of the current epoch, and whether a scheduler sets them, maybe after this."""
    for callback in trainer.callbacks:
        if isinstance(callback, framework().callbacks.GradientAccumulationScheduler):
            return callback.get_accumulate_grad_batches(trainer.current_epoch), True
    return trainer.accumulate_grad_batches, False


def _norm_of_gradients(module: torch.nn.Module) -> torch.Tensor | None:
    gradients = [one.grad for one in module.parameters() if one.grad is not None]
    if not gradients:
        return None
    norms = [torch.linalg.vector_norm(one.detach()).to(gradients[0].device) for one in gradients]
    norm: torch.Tensor = torch.linalg.vector_norm(torch.stack(norms))
    return norm
