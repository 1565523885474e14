"""A small model trained on the batches of every way: the losses are equal, bit for bit."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

import evenstride as es
from evenstride.cuda import DeviceCollator
from gpu.section import Section, run_section

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

VOCABULARY = 64
WIDTH = 32


class Model(torch.nn.Module):
    """Tells from each token the next one."""

    def __init__(self) -> None:
        super().__init__()
        self.read = torch.nn.Linear(VOCABULARY, WIDTH)
        self.mix = torch.nn.Linear(WIDTH, WIDTH)
        self.tell = torch.nn.Linear(WIDTH, VOCABULARY)
        self.register_buffer("vocabulary", torch.arange(VOCABULARY))

    def forward(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        # One-hot tokens, because the gradient of an embedding adds in any order.
        tokens = (batch["input_ids"][..., None] == self.vocabulary).float()
        hidden = torch.relu(self.read(tokens)) * batch["attention_mask"][..., None]
        told = self.tell(torch.relu(self.mix(hidden)))
        # The negative logarithm of what was told, where there is a label.
        labels = batch["labels"]  # Rows of one token less, and narrower at times.
        told = told[:, : labels.shape[1]]
        wanted = (labels[..., None] == self.vocabulary).float()
        return -(torch.log_softmax(told, -1) * wanted).sum() / (labels >= 0).sum().clamp(min=1)


def run(section: Section) -> None:
    torch.use_deterministic_algorithms(mode=True)
    rng = np.random.default_rng(0)
    lengths = rng.integers(2, 120, 200 if section.quick else 2_000)
    offsets = np.concatenate([[0], lengths.cumsum()])
    steps = rng.integers(1, 4, offsets[-1])
    values = (steps.cumsum() % VOCABULARY).astype(np.uint16)
    dataset = es.RaggedDataset({"input_ids": (values, offsets)})
    collate = es.PadCollator(
        {"input_ids": es.Field(), "labels": es.Field(-100, source="input_ids", start=1)},
        pad_to_multiple_of=8,
    )

    def sampler() -> es.BucketBatchSampler:
        return es.BucketBatchSampler(lengths, token_budget=2_048, buckets=3, pad_to_multiple_of=8)

    def on_host() -> Iterable[Any]:
        for rows in sampler():
            batch = collate(dataset.__getitems__(rows))
            yield {key: value.to(section.device) for key, value in batch.items()}

    def by_collator() -> Iterable[Any]:
        return map(DeviceCollator(dataset, collate, device=section.device), sampler())

    def by_loader(memory: str) -> Iterable[Any]:
        return es.Loader(dataset, sampler(), collate, device=section.device, device_memory=memory)

    expected = losses(on_host, section.device)
    section.check("Training makes the loss smaller", expected[-1] < expected[0], story(expected))
    ways: dict[str, Callable[[], Iterable[Any]]] = {
        "DeviceCollator": by_collator,
        "Loader, device_memory='torch'": lambda: by_loader("torch"),
        "Loader, device_memory='ring'": lambda: by_loader("ring"),
    }
    for name, batches in ways.items():
        with section.attempt(f"training on the batches of {name}"):
            found = losses(batches, section.device)
            claim = f"Losses on the batches of {name} equal those on the host's, bit for bit"
            section.check(claim, found == expected, story(found))


def losses(batches: Callable[[], Iterable[Any]], device: torch.device) -> list[float]:
    """Train a new model for one pass, and return the loss of each step."""
    torch.manual_seed(0)
    model = Model().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    found: list[torch.Tensor] = []
    for batch in batches():
        loss = model(batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found.append(loss.detach())
    return torch.stack(found).tolist()


def story(found: list[float]) -> str:
    """Return the first and the last loss as text."""
    return f"{len(found)} steps, loss {found[0]:.4f} to {found[-1]:.4f}"


if __name__ == "__main__":
    # Read when the first product is computed; without it they are not the same in every run.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    sys.exit(run_section(run, __doc__))
