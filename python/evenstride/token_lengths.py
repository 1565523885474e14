"""Lengths of texts in tokens, for `datasets.map` and whatever else calls with batches of texts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

__all__ = ["lengths_of"]


class lengths_of:  # noqa: N801 - It is called where a function is expected.
    """What ``Dataset.map(..., batched=True)`` calls, to add a column of lengths in tokens.

    The tokens of a batch live no longer than its call. It is pickled with the tokenizer, for
    ``num_proc``, and with equal arguments has an equal fingerprint, so that datasets finds the
    result in its cache again.

    Parameters
    ----------
    tokenizer : callable, or tokenizers.Tokenizer
        Takes a list of texts, and `options`. It returns a list of lists of tokens, or a mapping in
        which they are "input_ids", as tokenizers of transformers do. Of what has a method
        ``encode_batch`` instead, as ``tokenizers.Tokenizer`` has, that is called.
    text : str
        The column of texts.
    name : str, default "length"
        The column of lengths, of int32.
    **options
        What the tokenizer is called with besides, such as ``add_special_tokens=False``, or
        ``truncation=True, max_length=4096``: what the training will use.

    Examples
    --------
    >>> def words(texts):
    ...     return [text.split() for text in texts]
    >>> measure = lengths_of(words, "text")
    >>> measure({"text": ["a b c", "", "d"]})
    {'length': array([3, 0, 1], dtype=int32)}

    With a data set of Hugging Face::

        lengths = ds.map(
            lengths_of(tokenizer, "text"),
            batched=True, num_proc=8, remove_columns=ds.column_names,
        )
        lengths.save_to_disk("lengths")  # evenstride lengths lengths -o lengths.npy

    """

    def __init__(self, tokenizer: Any, text: str, *, name: str = "length", **options: Any) -> None:
        self._tokenizer = tokenizer
        self._text = text
        self._name = name
        self._options = options

    def __call__(self, batch: Mapping[str, Any]) -> dict[str, NDArray[np.int32]]:
        """Return the lengths of a batch's texts.

        Raises
        ------
        TypeError
            If a text is None, or the tokenizer returns no lists of tokens.
        ValueError
            If it returns another number of them than there are texts.

        """
        texts = list(batch[self._text])
        if None in texts:
            msg = f"`{self._text}` must have no nulls, but text {texts.index(None)} of a batch is."
            raise TypeError(msg)
        call = getattr(self._tokenizer, "encode_batch", self._tokenizer)
        tokens = call(texts, **self._options)
        tokens = tokens["input_ids"] if hasattr(tokens, "keys") else tokens
        if len(tokens) != len(texts):
            msg = (
                f"`tokenizer` must return {len(texts)} lists for as many texts, not {len(tokens)}."
            )
            raise ValueError(msg)
        return {self._name: np.fromiter(map(len, tokens), np.int32, len(texts))}
