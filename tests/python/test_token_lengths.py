"""Lengths in tokens, with the packages `datasets` and `tokenizers` themselves."""

from __future__ import annotations

import re

import numpy as np
import pytest

from evenstride.read_lengths import read_lengths
from evenstride.token_lengths import lengths_of
from evenstride.write_lengths import write_lengths

UNKNOWN = "[UNK]"
WORDS = ["one", "two", "three", "four", "unheard-of"]
TEXTS = [" ".join(WORDS[: i % 6] * (i % 3)) for i in range(700)]


@pytest.fixture
def datasets():
    found = pytest.importorskip("datasets")
    found.disable_progress_bars()
    found.enable_caching()  # Which a documented example may have ended.
    return found


@pytest.fixture
def tokenizer():
    tokenizers = pytest.importorskip("tokenizers")
    vocabulary = {UNKNOWN: 0, **{word: i + 1 for i, word in enumerate(WORDS[:4])}}
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token=UNKNOWN))
    made.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    return made


def words(texts, *, most=None):
    return [text.split()[:most] for text in texts]


@pytest.mark.parametrize("num_proc", [None, 2])
def test_a_data_set_is_mapped_saved_and_read(datasets, tokenizer, tmp_path, num_proc):
    ds = datasets.Dataset.from_dict({"text": TEXTS, "id": range(700)})
    mapped = ds.map(
        lengths_of(tokenizer, "text"),
        batched=True,
        batch_size=64,
        num_proc=num_proc,
        remove_columns=ds.column_names,
    )
    assert mapped.column_names == ["length"]
    assert str(mapped.features["length"].dtype) == "int32"
    expected = [len(text.split()) for text in TEXTS]
    assert read_lengths(mapped).tolist() == expected
    mapped.save_to_disk(tmp_path / "lengths", num_shards=3)
    write_lengths(tmp_path / "lengths", tmp_path / "lengths.npy")
    assert np.load(tmp_path / "lengths.npy").tolist() == expected


def test_what_datasets_has_cached_is_read_from_its_files(datasets, tokenizer, tmp_path):
    datasets.Dataset.from_dict({"text": TEXTS}).save_to_disk(tmp_path / "texts", num_shards=2)
    ds = datasets.load_from_disk(tmp_path / "texts")

    def mapped():
        return ds.map(lengths_of(tokenizer, "text"), batched=True, remove_columns=ds.column_names)

    files = [entry["filename"] for entry in mapped().cache_files]
    assert read_lengths(files).tolist() == [len(text.split()) for text in TEXTS]
    assert [entry["filename"] for entry in mapped().cache_files] == files


def test_the_column_is_read_where_it_lies(datasets, tokenizer):
    ds = datasets.Dataset.from_dict({"text": TEXTS})
    mapped = ds.map(lengths_of(tokenizer, "text", name="n"), batched=True)
    lengths = read_lengths(mapped, column="n")
    (chunk,) = mapped.data.table["n"].chunks
    assert lengths.ctypes.data == chunk.buffers()[1].address


def test_a_tokenizer_of_transformers_is_called_with_its_options(tokenizer):
    transformers = pytest.importorskip("transformers")
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token=UNKNOWN)
    measure = lengths_of(fast, "text", truncation=True, max_length=3)
    assert measure({"text": TEXTS})["length"].tolist() == [min(3, len(t.split())) for t in TEXTS]


def test_any_callable_will_do():
    assert lengths_of(words, "t", most=2)({"t": ["a b c", "", "d"]})["length"].tolist() == [2, 0, 1]


@pytest.mark.parametrize(
    ("tokenizer", "texts", "kind", "message"),
    [
        (words, ["a", None], TypeError, "`t` must have no nulls, but text 1 of a batch is."),
        (
            lambda texts: words(texts[1:]),
            ["a", "b"],
            ValueError,
            "`tokenizer` must return 2 lists for as many texts, not 1.",
        ),
    ],
)
def test_what_is_wrong_is_one_sentence(tokenizer, texts, kind, message):
    with pytest.raises(kind, match=f"^{re.escape(message)}$"):
        lengths_of(tokenizer, "t")({"t": texts})
