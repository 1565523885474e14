"""What is compared: orders, compositions, and how many samples a run trains on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from evenstride import BucketBatchSampler, optimal_edges, plan_epoch
from evenstride.compare import ORDERS
from evenstride.demo.batches import as_dataset
from evenstride.demo.corpus import read_corpus, standard_library
from evenstride.demo.model import new_model

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from evenstride import RaggedDataset
    from evenstride.demo.corpus import Corpus


@dataclass(frozen=True)
class Setting:
    """One way to make an epoch."""

    name: str
    order: str = "stride"
    composition: str = "shuffle"
    equal: str = "tokens"
    """What it has as much of as "stride": real tokens, or time, which is padded tokens."""


SETTINGS = {
    setting.name: setting
    for setting in (
        *(Setting(order, order) for order in ORDERS),
        Setting("window", composition="window"),
        Setting("frozen", composition="frozen"),
        Setting("mixed_time", "mixed", equal="time"),
        Setting("window_time", composition="window", equal="time"),
    )
}


@dataclass(frozen=True)
class Size:
    """How much is trained on, and in what batches."""

    max_length: int
    token_budget: int
    max_batch_size: int
    train_samples: int
    validation_samples: int
    window: int
    folder: str = "."
    """Of the standard library."""
    accumulation_steps: int = 4
    num_buckets: int = 6


FULL = Size(1024, 2048, 64, 1200, 160, window=64)
QUICK = Size(128, 256, 16, 160, 20, window=8, folder="asyncio")


class Data:
    """The functions of the standard library, drawn once for all runs.

    The first ones drawn are for validation; a run trains on as many of the next as it may.
    """

    def __init__(self, size: Size) -> None:
        self.size = size
        self.corpus: Corpus = read_corpus(
            standard_library() / size.folder, max_length=size.max_length
        )
        drawn = np.random.default_rng(0).permutation(len(self.corpus.samples))
        self._held_out, self._rest = np.split(drawn, [size.validation_samples])
        self.validation = self._dataset(self._held_out)
        self.edges: list[int] = optimal_edges(
            self.lengths(size.train_samples),
            size.num_buckets,
            token_budget=size.token_budget,
            max_batch_size=size.max_batch_size,
        )
        buckets = np.digitize(self.corpus.lengths[self._held_out], self.edges)
        of_buckets = [self._held_out[buckets == k] for k in range(len(self.edges) + 1)]
        self.validation_by_bucket = [self._dataset(b) if len(b) else None for b in of_buckets]

    def lengths(self, num_samples: int) -> NDArray[np.int64]:
        """Tokens of the first so many samples to train on."""
        return self.corpus.lengths[self._rest[:num_samples]]

    def samples(self, num_samples: int) -> RaggedDataset:
        """Return the first so many samples to train on."""
        return self._dataset(self._rest[:num_samples])

    def _dataset(self, chosen: NDArray[np.int64]) -> RaggedDataset:
        return as_dataset([self.corpus.samples[i] for i in chosen])

    def options(self, setting: Setting, seed: int) -> dict[str, Any]:
        """Return the options of a setting's plan."""
        return {
            "token_budget": self.size.token_budget,
            "max_batch_size": self.size.max_batch_size,
            "buckets": self.edges,
            "order": setting.order,
            "composition": setting.composition,
            "window": self.size.window,
            "accumulation_steps": self.size.accumulation_steps,
            "seed": seed,
        }

    def num_samples(self, setting: Setting, seed: int) -> int:
        """Return how many samples a run trains on."""
        if setting.equal == "tokens":
            return self.size.train_samples
        wanted = self._padded_tokens(SETTINGS["stride"], seed, self.size.train_samples)
        low, high = 1, len(self._rest)
        while low < high:  # Padded tokens rise with the samples, but for some steps of noise.
            middle = (low + high) // 2
            if self._padded_tokens(setting, seed, middle) < wanted:
                low = middle + 1
            else:
                high = middle
        return low

    def _padded_tokens(self, setting: Setting, seed: int, num_samples: int) -> int:
        plan = plan_epoch(self.lengths(num_samples), **self.options(setting, seed))
        return plan.stats().padded_tokens

    def sampler(self, setting: Setting, seed: int) -> BucketBatchSampler:
        """Return the sampler of a run."""
        lengths = self.lengths(self.num_samples(setting, seed))
        return BucketBatchSampler(lengths, **self.options(setting, seed), num_replicas=1, rank=0)

    def facts(self) -> dict[str, Any]:
        """Return what all runs have in common, ready for JSON."""
        size = self.size
        return {
            "corpus_functions": len(self.corpus.samples),
            "corpus_tokens": int(self.corpus.lengths.sum()),
            "train_samples": size.train_samples,
            "train_tokens": int(self.lengths(size.train_samples).sum()),
            "validation_samples": size.validation_samples,
            "validation_tokens": int(self.validation.lengths.sum()),
            "max_length": size.max_length,
            "token_budget": size.token_budget,
            "max_batch_size": size.max_batch_size,
            "window": size.window,
            "edges": self.edges,
            "accumulation_steps": size.accumulation_steps,
            "parameters": sum(weights.numel() for weights in new_model(0).parameters()),
        }
