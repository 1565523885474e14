"""A meter's scalars to the loggers that people have."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter
    from wandb import Run

    from evenstride.metrics.meter import BatchMeter, Scope

__all__ = ["log_to_tensorboard", "log_to_wandb"]


def log_to_tensorboard(
    meter: BatchMeter,
    writer: SummaryWriter,
    global_step: int,
    *,
    scope: Scope | None = None,
    prefix: str = "evenstride",
) -> None:
    """Add a meter's scalars to an event file.

    Parameters
    ----------
    meter : BatchMeter
        Whose :meth:`~BatchMeter.scalars`.
    writer : torch.utils.tensorboard.SummaryWriter
        Where to.
    global_step : int
        Where on the horizontal axis: a count that rises over the epochs.
    scope, prefix
        As :meth:`BatchMeter.scalars` takes them.

    """
    for name, value in meter.scalars(scope, prefix=prefix).items():
        writer.add_scalar(name, value, global_step)


def log_to_wandb(
    meter: BatchMeter,
    run: Run,
    step: int | None = None,
    *,
    scope: Scope | None = None,
    prefix: str = "evenstride",
) -> None:
    """Log a meter's scalars to a run of Weights & Biases.

    Parameters
    ----------
    meter : BatchMeter
        Whose :meth:`~BatchMeter.scalars`.
    run : wandb.Run
        Where to.
    step : int, optional
        The step of the run, which must never fall; by default the next one.
    scope, prefix
        As :meth:`BatchMeter.scalars` takes them.

    """
    run.log(meter.scalars(scope, prefix=prefix), step=step)
