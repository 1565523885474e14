"""A language model over bytes, small enough to learn something in 20 seconds on two cores."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

__all__ = ["ByteModel", "new_model"]

_BYTES = 256
_REACH = 5  # Bytes that the convolution sees, itself included: a word, more or less.


class ByteModel(nn.Module):
    """A gated causal convolution, which learns spelling fast, and one causal transformer block.

    No place sees what comes after it, nor therefore the padding on the right.

    Parameters
    ----------
    width : int, default 64
        Features of a place. A multiple of `heads`.
    heads : int, default 4
        Heads of the attention.

    """

    def __init__(self, width: int = 64, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.embed = nn.Embedding(_BYTES, width)
        self.convolve = nn.Conv1d(width, 2 * width, _REACH)
        self.before_attention = nn.LayerNorm(width)
        self.queries_keys_values = nn.Linear(width, 3 * width)
        self.after_attention = nn.Linear(width, width)
        self.feed_forward = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )
        self.predict = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, _BYTES))

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the logits of the byte that comes at each place.

        Parameters
        ----------
        inputs : Tensor of int64, shape (n_samples, n_places)
            The byte before each place.

        Returns
        -------
        Tensor of float32, shape (n_samples, n_places, 256)

        """
        hidden: Tensor = self.embed(inputs)
        hidden = hidden + self._words(hidden)
        hidden = hidden + self._attention(self.before_attention(hidden))
        hidden = hidden + self.feed_forward(hidden)
        logits: Tensor = self.predict(hidden)
        return logits

    def _words(self, hidden: Tensor) -> Tensor:
        shifted = functional.pad(hidden.transpose(1, 2), (_REACH - 1, 0))
        return functional.glu(self.convolve(shifted), dim=1).transpose(1, 2)

    def _attention(self, hidden: Tensor) -> Tensor:
        by_head = self.queries_keys_values(hidden).unflatten(2, (3, self.heads, -1))
        queries, keys, values = by_head.permute(2, 0, 3, 1, 4)
        seen = functional.scaled_dot_product_attention(queries, keys, values, is_causal=True)
        mixed: Tensor = self.after_attention(seen.transpose(1, 2).flatten(2))
        return mixed


def new_model(seed: int) -> ByteModel:
    """Return a model whose weights depend on `seed` alone; torch's random state stays as it is."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return ByteModel()
