"""What the example for Ray does to a block and to chunks, which needs no Ray."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

import evenstride as es

SCRIPT = Path(__file__).parents[2] / "examples" / "ray_lengths.py"
TEXTS = ["one", "", "größer", "长度", "two words"] * 3


@pytest.fixture
def example(monkeypatch):
    spec = importlib.util.spec_from_file_location("ray_lengths", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "ray_lengths", module)
    spec.loader.exec_module(module)
    return module


def drafts_of(example, output, blocks):
    (output / "chunks").mkdir(parents=True)
    return [
        example.write_chunk(output / "chunks", texts, example.tokenizer_of("bytes"), "uint16")
        for texts in blocks
    ]


def test_chunks_are_the_rows_in_order_and_so_are_their_lengths(example, tmp_path):
    output = tmp_path / "tokens"
    drafts = drafts_of(example, output, [TEXTS[:4], [], TEXTS[4:5], TEXTS[5:]])
    assert [draft["rows"] for draft in drafts] == [4, 0, 1, 10]
    drafts_of_a_lost_task = example.write_chunk(
        output / "chunks", ["lost"], example.encode_bytes, "uint16"
    )
    assert (output / "chunks" / drafts_of_a_lost_task["name"]).is_dir()
    written = example.number_chunks(output, drafts)
    expected = [text.encode() for text in TEXTS]
    lengths = [len(row) for row in expected]
    assert (written.samples, written.tokens) == (len(TEXTS), sum(lengths))
    assert np.load(output / "lengths.npy").tolist() == lengths
    assert sorted(chunk.name for chunk in output.glob("chunks/*")) == [f"{i:06}" for i in range(3)]
    for number, rows in enumerate((expected[:4], expected[4:5], expected[5:])):
        part = np.load(output / "lengths" / f"{number:06}.npy")
        chunk = es.RaggedDataset.open(output / "chunks" / f"{number:06}")
        assert part.tolist() == chunk.lengths.tolist() == [len(row) for row in rows]
    ds = example.open_chunks(output)
    assert ds.lengths.tolist() == lengths
    assert [bytes(row["input_ids"].tolist()) for row in ds] == expected


def test_from_a_million_chunks_on_they_are_still_in_order(example, tmp_path):
    for draft, number in zip(
        drafts_of(example, tmp_path, [["a"], ["bc"]]), ["999999", "1000000"], strict=True
    ):
        (tmp_path / "chunks" / draft["name"]).rename(tmp_path / "chunks" / number)
    assert example.open_chunks(tmp_path).lengths.tolist() == [1, 2]


def test_a_corpus_without_rows_has_lengths_of_none(example, tmp_path):
    written = example.number_chunks(tmp_path, drafts_of(example, tmp_path, [[], []]))
    assert written.samples == 0
    assert np.load(tmp_path / "lengths.npy").shape == (0,)


def test_a_tokenizer_is_found_by_its_name(example):
    assert example.tokenizer_of("ray_lengths:encode_bytes") is example.encode_bytes


def test_a_token_that_does_not_fit_leaves_no_chunk(example, tmp_path):
    with pytest.raises(ValueError, match="holds 70000"):
        example.write_chunk(tmp_path, ["x"], lambda texts: [[70_000] for _ in texts], "uint16")
    assert list(tmp_path.iterdir()) == []
