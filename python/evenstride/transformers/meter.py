"""A callback that meters what a ``Trainer`` of transformers trains on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from transformers import PrinterCallback, ProgressCallback, TrainerCallback
from transformers.loss.loss_utils import ForCausalLMLoss

from evenstride.metrics.callbacks import MeterCallback

if TYPE_CHECKING:
    from collections.abc import Mapping

_IGNORED_LABEL = -100


class BatchMeterCallback(MeterCallback, TrainerCallback):  # type: ignore[misc]
    """Feeds a :class:`evenstride.metrics.BatchMeter` with every step, and logs its scalars.

    The loss of a step is the mean over the labels of this rank's batch, whatever the ``Trainer``
    divides it by. The gradient norm of an optimizer step is known where the ``Trainer`` logs it:
    with ``logging_steps=1`` always. With each of those logs the scalars go to all that report to
    (TensorBoard, Weights & Biases, callbacks of one's own), but for the progress bar and the log
    history, which would grow by dozens of values. Checkpoints keep the figures of rank 0; where
    training goes on from one, those of other ranks begin anew.

    Parameters
    ----------
    trainer : transformers.Trainer, optional
        Which the callback is added to. Needed only if it is not of :func:`with_buckets` or
        :class:`BucketBatchMixin`, but makes its loader itself.
    window : int, optional
        Steps of the rolling figures; by default that of the meter.
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
    ValueError
        Then too, if `trainer` is needed.

    Examples
    --------
    >>> import torch, transformers
    >>> import evenstride as es
    >>> Trainer = es.transformers.with_buckets(transformers.Trainer, token_budget=4096)
    >>> arguments = transformers.TrainingArguments("checkpoints", use_cpu=True, report_to="none")
    >>> callback = es.transformers.BatchMeterCallback(window=100)
    >>> trainer = Trainer(torch.nn.Linear(1, 1), arguments, callbacks=[callback])

    """

    _first_hook = "on_train_begin"

    def __init__(
        self, trainer: Any = None, *, window: int | None = None, prefix: str = "evenstride"
    ) -> None:
        super().__init__(window, prefix)
        self.trainer = trainer
        # In checkpoints, where several callbacks of one window may share a state: it is the same.
        self._key = f"evenstride.BatchMeter.{'default' if window is None else window}"
        self._step = 0
        self._loss: Any = None
        self._hook: Any = None

    def on_train_begin(
        self, args: Any, state: Any, control: Any, train_dataloader: Any = None, **others: Any
    ) -> None:
        """Meter the sampler that training takes its batches from, and the model's loss."""
        del control
        accumulation_steps = args.gradient_accumulation_steps
        saved = state.stateful_callbacks.get(self._key) if state.global_step > 0 else None
        sampler = self._begin(train_dataloader, accumulation_steps, saved)
        if self.trainer is None:
            msg = "`trainer` must be given, unless its class has buckets, but is None."
            raise ValueError(msg)
        optimizer_steps = -(-len(sampler) // accumulation_steps)
        done = 0 if args.ignore_data_skip else state.global_step % optimizer_steps
        self._step = done * accumulation_steps
        self._remove_hook()
        self._hook = others["model"].register_forward_hook(self._take_loss, with_kwargs=True)

    def _take_loss(self, model: Any, args: Any, inputs: Mapping[str, Any], outputs: Any) -> None:
        del args
        if model.training:
            self._loss = _mean_loss(model, inputs, outputs)

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Start the clock."""
        del args, state, control
        self._running.start()

    def on_substep_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Count a step that does not end its optimizer step."""
        del args, state, control
        self._update()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Count the last step of an optimizer step."""
        del args
        self._update()
        self._keep(state, control)

    def _update(self) -> None:
        self._running.update(self._step, loss=self._loss)
        self._step, self._loss = self._step + 1, None

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **others: Any) -> None:
        """Take the gradient norm of the last step, and log the figures of the window."""
        if self.meter is None or "learning_rate" not in (logs or {}):
            return  # Of an evaluation, or of the whole training.
        if logs.get("grad_norm") is not None:
            self.meter.add_grad_norm(logs["grad_norm"])
            self._keep(state, control)
        self._log("window", args, state, control, others)

    def on_epoch_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        """Log the figures of the epoch."""
        self._log("epoch", args, state, control, others)
        self._keep(state, control)
        self._step = 0

    def on_evaluate(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Leave out the time of an evaluation, which may decide that a checkpoint is saved."""
        del args, control
        if self.meter is not None:
            state.stateful_callbacks[self._key] = self.meter.state_dict()
            self.meter.start()

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Leave out the time of a checkpoint."""
        del args, state, control
        self._running.start()

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Let the model be."""
        del args, state, control
        self._remove_hook()

    def _keep(self, state: Any, control: Any) -> None:
        if control.should_save:
            state.stateful_callbacks[self._key] = self._running.state_dict()

    def _log(self, scope: Any, args: Any, state: Any, control: Any, others: Any) -> None:
        scalars = self._running.scalars(scope, prefix=self._prefix)
        for callback in self.trainer.callback_handler.callbacks:
            if not isinstance(callback, (BatchMeterCallback, PrinterCallback, ProgressCallback)):
                callback.on_log(args, state, control, logs=dict(scalars), **others)

    def _remove_hook(self) -> None:
        if self._hook is not None:
            self._hook.remove()
            self._hook = None


def _mean_loss(model: Any, inputs: Mapping[str, Any], outputs: Any) -> Any:
    """Return the loss that a model has returned, as the mean over the labels of its batch."""
    loss = outputs.get("loss") if hasattr(outputs, "get") else None
    whole = inputs.get("num_items_in_batch")
    labels = inputs.get("labels")
    if loss is None or whole is None or labels is None:
        return loss
    # The sum over the batch's labels, divided by the labels of all batches of an optimizer step.
    if _shifts_labels(model):
        labels = labels[..., 1:]
    return loss.detach() * whole / labels.ne(_IGNORED_LABEL).sum()


def _shifts_labels(model: Any) -> bool:
    """Whether a model's loss leaves out the first label of each row."""
    is_decoder = not getattr(getattr(model, "config", None), "is_encoder_decoder", False)
    return is_decoder and getattr(model, "loss_function", None) is ForCausalLMLoss
