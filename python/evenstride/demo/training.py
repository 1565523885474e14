"""Training and evaluation, through an ordinary ``DataLoader``."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch.nn import functional
from torch.utils.data import DataLoader

from evenstride.demo.batches import IGNORED, pad_batch

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor, nn

    from evenstride.sampler import BucketBatchSampler

    Samples = Sequence[NDArray[np.uint8]]

__all__ = ["StepLoss", "evaluate", "measure_speed", "train"]

_LEARNING_RATE = 6e-3
_WARM_UP = 0.1  # Of the optimizer steps.
_LARGEST_GRADIENT = 1.0


@dataclass(frozen=True, slots=True)
class StepLoss:
    """What a step of training has shown.

    Attributes
    ----------
    bucket : int
        The bucket of the step's batch.
    tokens : int
        Its real tokens, at least 1.
    loss : float
        Their mean loss, in nats.

    """

    bucket: int
    tokens: int
    loss: float


def train(
    model: nn.Module, samples: Samples, sampler: BucketBatchSampler, accumulation_steps: int
) -> Iterator[StepLoss]:
    """Train for an epoch, and yield the loss of every batch right after it was learned from.

    Every token weighs the same: the gradient of an optimizer step is the sum over the tokens of its
    `accumulation_steps` batches, divided by their number.
    """
    optimizer = torch.optim.AdamW(model.parameters(), lr=_LEARNING_RATE, betas=(0.9, 0.98))
    steps = sampler.total_steps(epochs=1)
    optimizer_steps = -(-steps // accumulation_steps)
    tokens_since = 0
    for step, (inputs, targets) in enumerate(_loader(samples, sampler)):
        loss, tokens = _summed_loss(model, inputs, targets)
        loss.backward()  # type: ignore[no-untyped-call]
        tokens_since += tokens
        if (step + 1) % accumulation_steps == 0 or step + 1 == steps:
            rate = _LEARNING_RATE * _schedule(step // accumulation_steps, optimizer_steps)
            _optimizer_step(model, optimizer, tokens_since, rate)
            tokens_since = 0
        yield StepLoss(sampler.step_info(step).bucket, tokens, loss.item() / tokens)


@torch.no_grad()
def evaluate(model: nn.Module, samples: Samples, sampler: BucketBatchSampler) -> float:
    """Return the mean loss of a token, in nats."""
    loss_sum, token_sum = 0.0, 0
    for inputs, targets in _loader(samples, sampler):
        loss, tokens = _summed_loss(model, inputs, targets)
        loss_sum += loss.item()
        token_sum += tokens
    return loss_sum / token_sum


def measure_speed(
    model: nn.Module, samples: Samples, sampler: BucketBatchSampler, seconds: float
) -> float:
    """Return how many real tokens a second are trained on; `model` is spoiled by it."""
    steps = train(model, samples, sampler, accumulation_steps=1)
    next(steps)  # The first takes longer.
    begin = time.perf_counter()
    tokens = 0
    for step in steps:
        tokens += step.tokens
        if time.perf_counter() - begin > seconds:
            break
    return tokens / (time.perf_counter() - begin)


def _loader(samples: Samples, sampler: BucketBatchSampler) -> DataLoader[Any]:
    return DataLoader(
        samples,  # type: ignore[arg-type] # Whatever has a length and items is a data set.
        batch_sampler=sampler,
        collate_fn=pad_batch,
        generator=torch.Generator(),  # Or it would draw from torch's random state.
    )


def _summed_loss(model: nn.Module, inputs: Tensor, targets: Tensor) -> tuple[Tensor, int]:
    logits = model(inputs)
    loss = functional.cross_entropy(
        logits.flatten(0, 1), targets.flatten(), ignore_index=IGNORED, reduction="sum"
    )
    return loss, int((targets != IGNORED).sum())


def _optimizer_step(
    model: nn.Module, optimizer: torch.optim.Optimizer, tokens: int, rate: float
) -> None:
    for group in optimizer.param_groups:
        group["lr"] = rate
    for parameter in model.parameters():
        if parameter.grad is not None:
            parameter.grad /= tokens
    torch.nn.utils.clip_grad_norm_(model.parameters(), _LARGEST_GRADIENT)
    optimizer.step()
    optimizer.zero_grad()


def _schedule(step: int, steps: int) -> float:
    """Return the learning rate as a fraction of its peak: a ramp, then half a cosine."""
    warm_up = max(1, round(_WARM_UP * steps))
    if step < warm_up:
        return (step + 1) / warm_up
    return 0.5 + 0.5 * math.cos(math.pi * (step - warm_up) / (steps - warm_up))
