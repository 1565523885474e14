"""What the demonstration has found out, in numbers."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from evenstride.demo.noise import LossNoise, noise_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from evenstride.demo.training import StepLoss
    from evenstride.plan import EpochPlan
    from evenstride.stats import PlanStats

__all__ = ["Facts", "Results", "Run"]

_FINAL = 0.1  # Of a curve: what the final loss is the mean of.


@dataclass(frozen=True)
class Facts:
    """What all runs have in common.

    Attributes
    ----------
    library : str
        What the samples are from.
    files, skipped_files, functions, truncated : int
        Of the corpus: files read, files that are no Python, functions in the others, and how many
        of them were cut at `max_length`.
    corpus_tokens : int
        Tokens of all functions, once cut.
    max_length, token_budget, max_batch_size, accumulation_steps, seed : int
        The settings.
    threads : int
        With which torch computed.
    parameters : int
        Of the model.
    train_samples, train_tokens : int
        What each run trains on.
    validation_samples, validation_tokens : int
        What was held out.

    """

    library: str
    files: int
    skipped_files: int
    functions: int
    truncated: int
    corpus_tokens: int
    max_length: int
    token_budget: int
    max_batch_size: int
    accumulation_steps: int
    seed: int
    threads: int
    parameters: int
    train_samples: int
    train_tokens: int
    validation_samples: int
    validation_tokens: int

    @property
    def threads_in_words(self) -> str:
        """The threads, with their noun."""
        return "1 thread" if self.threads == 1 else f"{self.threads} threads"


@dataclass
class Run:
    """An epoch in one order, or as much of it as there was time for.

    Attributes
    ----------
    order : str
        The order of the sampler.
    plan : EpochPlan
        Its plan.
    steps : list of StepLoss
        One for every batch that was trained on.
    seconds : float
        What they took, waiting for data included.
    waited_s : float
        How much of this was waiting for data.
    validation_loss : float
        Mean loss of a held-out token after the epoch, in nats; NaN if the epoch was not finished.

    """

    order: str
    plan: EpochPlan
    steps: list[StepLoss] = field(default_factory=list)
    seconds: float = 0.0
    waited_s: float = 0.0
    validation_loss: float = math.nan

    def __post_init__(self) -> None:
        """Ask the plan for its statistics."""
        self.stats: PlanStats = self.plan.stats()

    @property
    def tokens_per_second(self) -> float:
        """Real tokens trained on, a second."""
        return sum(step.tokens for step in self.steps) / self.seconds if self.seconds else math.nan

    @property
    def waited_share(self) -> float:
        """The part of the time that was waiting for data."""
        return self.waited_s / self.seconds if self.seconds else math.nan

    @property
    def worst_quarter(self) -> float:
        """How far a bucket's share of a quarter is from its share of the epoch, at most."""
        return max(
            abs(share - bucket.share)
            for bucket in self.stats.buckets
            for share in bucket.quarters
            if not math.isnan(share)
        )

    @property
    def final_loss(self) -> float:
        """Mean loss of a token in the last tenth of the steps."""
        return mean_loss(self.steps[-max(1, round(_FINAL * len(self.steps))) :])

    def noise(self, accumulation_steps: int) -> LossNoise:
        """Return how much the loss scatters about its trend."""
        return noise_of(self.steps, accumulation_steps)


@dataclass(frozen=True)
class Results:
    """Everything that the report is made of.

    Attributes
    ----------
    facts : Facts
        What all runs have in common.
    lengths : ndarray of int64, shape (n_samples,)
        Tokens of the samples that each run trains on.
    runs : list of Run
        In the order in which they were done; only the last may be unfinished.

    """

    facts: Facts
    lengths: NDArray[np.int64]
    runs: list[Run]

    def to_dict(self) -> dict[str, Any]:
        """Return all numbers but those of single steps, ready for JSON: None for NaN."""
        return {"facts": asdict(self.facts), "runs": {r.order: self._of(r) for r in self.runs}}

    def _of(self, run: Run) -> dict[str, Any]:
        noise = asdict(run.noise(self.facts.accumulation_steps))
        return {
            "steps_done": len(run.steps),
            "seconds": run.seconds,
            "waited_s": run.waited_s,
            "tokens_per_second": _plain(run.tokens_per_second),
            "final_loss": _plain(run.final_loss),
            "validation_loss": _plain(run.validation_loss),
            "worst_quarter": run.worst_quarter,
            "noise": {name: _plain(value) for name, value in noise.items()},
            "plan": run.stats.to_dict(),
        }


def mean_loss(steps: list[StepLoss]) -> float:
    """Return the mean loss of the tokens of some steps; NaN if there is none."""
    tokens = sum(step.tokens for step in steps)
    return sum(step.loss * step.tokens for step in steps) / tokens if tokens else math.nan


def _plain(value: float) -> float | None:
    return None if math.isnan(value) else value
