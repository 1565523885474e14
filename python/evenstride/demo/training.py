"""Training and evaluation, on the batches of a ``Loader``."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch.nn import functional

from evenstride import Loader
from evenstride.demo.batches import IGNORED, new_collator

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from torch import Tensor, nn

    from evenstride import BucketBatchSampler, RaggedDataset

__all__ = ["StepLoss", "evaluate", "measure_speed", "new_loader", "train"]

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


def new_loader(dataset: RaggedDataset, sampler: BucketBatchSampler) -> Loader:
    """Return the loader of a data set's batches, which threads make while the model learns."""
    return Loader(dataset, sampler, new_collator())


def train(
    model: nn.Module, loader: Loader, sampler: BucketBatchSampler, accumulation_steps: int
) -> Iterator[StepLoss]:
    """Train for an epoch, and yield the loss of every batch right after it was learned from.

    Every token weighs the same: the gradient of an optimizer step is the sum over the tokens of its
    `accumulation_steps` batches, divided by their number.
    """
    optimizer = torch.optim.AdamW(model.parameters(), lr=_LEARNING_RATE, betas=(0.9, 0.98))
    steps = sampler.total_steps(epochs=1)
    optimizer_steps = -(-steps // accumulation_steps)
    tokens_since = 0
    for step, batch in enumerate(loader):
        loss, tokens = _summed_loss(model, batch)
        loss.backward()  # type: ignore[no-untyped-call]
        tokens_since += tokens
        if (step + 1) % accumulation_steps == 0 or step + 1 == steps:
            rate = _LEARNING_RATE * _schedule(step // accumulation_steps, optimizer_steps)
            _optimizer_step(model, optimizer, tokens_since, rate)
            tokens_since = 0
        yield StepLoss(sampler.step_info(step).bucket, tokens, loss.item() / tokens)


@torch.no_grad()
def evaluate(model: nn.Module, loader: Loader) -> float:
    """Return the mean loss of a token, in nats."""
    loss_sum, token_sum = 0.0, 0
    for batch in loader:
        loss, tokens = _summed_loss(model, batch)
        loss_sum += loss.item()
        token_sum += tokens
    return loss_sum / token_sum


def measure_speed(
    model: nn.Module, loader: Loader, sampler: BucketBatchSampler, seconds: float
) -> float:
    """Return how many real tokens a second are trained on; `model` is spoiled by it."""
    steps = train(model, loader, sampler, accumulation_steps=1)
    next(steps)  # The first takes longer.
    begin = time.perf_counter()
    tokens = 0
    for step in steps:
        tokens += step.tokens
        if time.perf_counter() - begin > seconds:
            break
    return tokens / (time.perf_counter() - begin)


def _summed_loss(model: nn.Module, batch: Mapping[str, Tensor]) -> tuple[Tensor, int]:
    logits, targets = model(batch["inputs"]), batch["targets"]
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
