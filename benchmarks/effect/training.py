"""One run: an epoch of training in one setting, and what is measured on the way."""

from __future__ import annotations

import math
import time
from dataclasses import asdict, dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from effect.gradients import GradientNorms, shares_of
from evenstride import BucketBatchSampler
from evenstride.demo.model import new_model
from evenstride.demo.noise import noise_of
from evenstride.demo.training import StepLoss, evaluate, new_loader, train

if TYPE_CHECKING:
    from torch import nn

    from effect.settings import Data, Setting
    from evenstride import RaggedDataset

QUARTERS = (0.25, 0.5, 0.75, 1.0)
"""When the model is evaluated: parts of the epoch's real tokens."""


@dataclass
class Record:
    """What a run has shown, step by step."""

    steps: list[StepLoss] = field(default_factory=list)
    norms: list[float] = field(default_factory=list)
    validation: list[float] = field(default_factory=list)
    """Mean loss of a held-out token after each quarter of the tokens, in nats."""
    by_bucket: list[float | None] = field(default_factory=list)
    """The same after the epoch, for the held-out samples of each bucket; None where it has none."""
    processor_s: float = 0.0
    """Processor time of all threads, evaluation excluded."""

    def columns(self) -> dict[str, list[float]]:
        """Return what each step has shown, column by column."""
        return {
            "bucket": [step.bucket for step in self.steps],
            "tokens": [step.tokens for step in self.steps],
            "loss": [step.loss for step in self.steps],
            "gradient_norm": self.norms,
        }

    def measures(self, accumulation_steps: int) -> dict[str, Any]:
        """Return what is compared, ready for JSON: None for NaN."""
        noise = noise_of(self.steps, accumulation_steps)
        shares = shares_of(
            np.array(self.norms),
            np.array([step.tokens for step in self.steps], np.float64),
            np.array([step.bucket for step in self.steps]),
            accumulation_steps,
        )
        return {
            "norm_share": {name: _plain(value) for name, value in asdict(shares).items()},
            "loss_noise": {name: _plain(value) for name, value in asdict(noise).items()},
            "validation": self.validation,
            "validation_by_bucket": self.by_bucket,
            "processor_s": self.processor_s,
        }


def run(data: Data, setting: Setting, seed: int) -> tuple[dict[str, Any], Record]:
    """Train for an epoch; return its plan's facts and measures, ready for JSON, and its steps."""
    sampler = data.sampler(setting, seed)
    stats = sampler.plan.stats()
    record = train_and_measure(data, sampler, seed, stats.tokens)
    result = {
        "setting": setting.name,
        "seed": seed,
        "samples": stats.samples,
        "batches": stats.batches,
        "tokens": stats.tokens,
        "padded_tokens": stats.padded_tokens,
        "longest_run": stats.longest_run,
        **record.measures(data.size.accumulation_steps),
    }
    return result, record


def train_and_measure(data: Data, sampler: BucketBatchSampler, seed: int, tokens: int) -> Record:
    """Train a new model for an epoch of so many tokens."""
    record = Record()
    model = new_model(seed)
    norms = GradientNorms(model)
    done = 0
    with new_loader(data.samples(len(sampler.lengths)), sampler) as loader:
        began_s = time.process_time()
        for step in train(model, loader, sampler, data.size.accumulation_steps):
            record.steps.append(step)
            record.norms.append(norms.take() / step.tokens)
            done += step.tokens
            if done >= QUARTERS[len(record.validation)] * tokens:
                record.processor_s += time.process_time() - began_s
                record.validation.append(_loss(data, model, data.validation))
                began_s = time.process_time()
    record.by_bucket = [
        None if samples is None else _loss(data, model, samples)
        for samples in data.validation_by_bucket
    ]
    return record


def first_losses(data: Data, setting: Setting, seed: int, num_steps: int) -> list[float]:
    """Return the losses of the first steps of a run."""
    sampler = data.sampler(setting, seed)
    with new_loader(data.samples(len(sampler.lengths)), sampler) as loader:
        steps = train(new_model(seed), loader, sampler, data.size.accumulation_steps)
        return [step.loss for step in islice(steps, num_steps)]


def _loss(data: Data, model: nn.Module, samples: RaggedDataset) -> float:
    sampler = BucketBatchSampler(
        samples.lengths,
        token_budget=data.size.token_budget,
        shuffle=False,
        num_replicas=1,
        rank=0,
    )
    return evaluate(model, new_loader(samples, sampler))


def _plain(value: float) -> float | None:
    return None if math.isnan(value) else value
