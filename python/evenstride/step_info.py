"""What a step of an epoch holds, and which steps and ranks there are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from evenstride.options import as_integer

if TYPE_CHECKING:
    from typing import SupportsIndex


@dataclass(frozen=True)
class StepInfo:
    """What one step of an epoch holds, on one rank and on all.

    Attributes
    ----------
    bucket : int
        The bucket of the rank's batch, from 0.
    width : int
        Tokens of a row of the rank's batch once padded, at least 1.
    samples, tokens, padded_tokens : int
        Of the rank's batch.
    global_samples, global_tokens, global_padded_tokens : int
        Of the batches of all ranks together.

    """

    bucket: int
    width: int
    samples: int
    tokens: int
    padded_tokens: int
    global_samples: int
    global_tokens: int
    global_padded_tokens: int


def as_rank(rank: SupportsIndex, num_replicas: int) -> int:
    """Return `rank` as an int in ``[0, num_replicas)``; say what is wrong with it else."""
    number = as_integer("rank", rank)
    if not 0 <= number < num_replicas:
        msg = f"`rank` must be in [0, num_replicas = {num_replicas}), but is {number}."
        raise ValueError(msg)
    return number


def as_step(step: SupportsIndex, num_steps: int) -> int:
    """Return `step` as an int in ``[0, num_steps)``; say what is wrong with it else."""
    number = as_integer("step", step)
    if not 0 <= number < num_steps:
        msg = f"`step` must be in [0, num_steps = {num_steps}), but is {number}."
        raise IndexError(msg)
    return number
