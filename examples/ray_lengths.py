"""Tokenizes a corpus on a Ray cluster, into chunks of a data set and their lengths.

    python examples/ray_lengths.py corpus/ tokens --format parquet --text text \
        --tokenizer my_module:encode --dtype uint16

A block of Ray's becomes a chunk: a folder that `RaggedDataset.open` reads, and a `.npy` file of
lengths. At the end there are

    tokens/chunks/000000/   tokens/chunks/000001/   ...   the rows, in the order of the source
    tokens/lengths/000000.npy                       ...   the lengths of each chunk
    tokens/lengths.npy                                    those of all rows, for the sampler

`open_chunks("tokens")` is all rows as one data set, memory-mapped, and its `lengths` are those in
`tokens/lengths.npy`. OUTPUT must be a folder that all machines of the cluster see. A task that Ray
repeats writes other drafts; only what the task that counts has written gets a number.
"""

from __future__ import annotations

import argparse
import importlib
import secrets
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from evenstride.folder import open_folder
from evenstride.write_lengths import WrittenLengths, write_lengths
from evenstride.writer import RaggedWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from evenstride.dataset import RaggedDataset

FIELD = "input_ids"
READERS = {"parquet": "read_parquet", "json": "read_json", "text": "read_text"}


def encode_bytes(texts: Sequence[str]) -> list[np.ndarray]:
    """Return the bytes of each text in UTF-8: a tokenizer that every machine has."""
    return [np.frombuffer(text.encode(), np.uint8) for text in texts]


def tokenizer_of(name: str) -> Callable[[Sequence[str]], Sequence[Any]]:
    """Return the function that "module:function" names, which all machines can import."""
    if name == "bytes":
        return encode_bytes
    module, _, function = name.partition(":")
    found: Callable[[Sequence[str]], Sequence[Any]]
    found = getattr(importlib.import_module(module), function)
    return found


def write_chunk(
    folder: Path, texts: Sequence[str], encode: Callable[[Sequence[str]], Any], dtype: str
) -> dict[str, Any]:
    """Write the tokens of some texts under a name that no other has; return it and their number.

    Raises
    ------
    ValueError
        If a token does not fit `dtype`.

    """
    if not texts:
        return {"name": "", "rows": 0}
    name = f"draft-{secrets.token_hex(8)}"
    with RaggedWriter(folder / name, {FIELD: dtype}) as writer:
        writer.extend({FIELD: tokens} for tokens in encode(texts))
    return {"name": name, "rows": writer.num_rows}


def number_chunks(output: Path, chunks: Iterable[dict[str, Any]]) -> WrittenLengths:
    """Give the chunks numbers in this order, remove the other drafts, and write all lengths.

    Returns
    -------
    WrittenLengths
        What is in ``lengths.npy``.

    """
    (output / "lengths").mkdir()
    names = [chunk["name"] for chunk in chunks if chunk["rows"] > 0]
    for number, name in enumerate(names):
        chunk = output / "chunks" / f"{number:06}"
        (output / "chunks" / name).rename(chunk)
        write_lengths(chunk, output / "lengths" / f"{number:06}.npy")
    for draft in output.glob("chunks/*draft-*"):
        shutil.rmtree(draft)
    parts = [output / "lengths" / f"{number:06}.npy" for number in range(len(names))]
    if not parts:
        np.save(output / "lengths" / "000000.npy", np.empty(0, np.uint16))
        parts = [output / "lengths" / "000000.npy"]
    return write_lengths(parts, output / "lengths.npy")


def open_chunks(output: str | Path) -> RaggedDataset:
    """Return all chunks as one data set, in order, memory-mapped."""
    from evenstride import RaggedDataset  # noqa: PLC0415 - It needs torch, unlike the rest.

    folders = Path(output).glob("chunks/[0-9]*")
    ordered = sorted(folders, key=lambda folder: int(folder.name))
    fields = [open_folder(folder)[0][FIELD] for folder in ordered]
    pairs = [(chunk.values, chunk.offsets) for field in fields for chunk in field.chunks]
    return RaggedDataset({FIELD: pairs})


def tokenize(
    source: Sequence[str],
    output: Path,
    *,
    format_: str,
    text: str,
    tokenizer: str,
    dtype: str,
    blocks: int | None,
) -> WrittenLengths:
    """Run it all on the Ray that this process is connected to, or on one of its own."""
    import ray  # noqa: PLC0415 - Only here, so that the rest runs without.

    folder = output.absolute() / "chunks"
    folder.mkdir(parents=True)
    # Else blocks come in the order in which they are done.
    ray.data.DataContext.get_current().execution_options.preserve_order = True

    def chunk_of(block: Any) -> dict[str, list[Any]]:
        texts = block.column(text).to_pylist()
        found = write_chunk(folder, texts, tokenizer_of(tokenizer), dtype)
        return {name: [value] for name, value in found.items()}

    rows = getattr(ray.data, READERS[format_])(list(source))
    if blocks is not None:
        rows = rows.repartition(blocks)  # Which keeps the order, as long as it does not shuffle.
    chunks = rows.map_batches(chunk_of, batch_size=None, batch_format="pyarrow")
    return number_chunks(output, chunks.take_all())


def main() -> None:
    """Read the arguments, and print what has been written."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("source", nargs="+", help="files or folders, as ray.data reads them")
    parser.add_argument("output", type=Path, help="a new folder, which all machines see")
    parser.add_argument("--format", choices=READERS, default="parquet")
    parser.add_argument("--text", default="text", help="the column of texts")
    parser.add_argument("--tokenizer", default="bytes", help="module:function, or bytes")
    parser.add_argument("--dtype", default="uint16", help="of the tokens")
    parser.add_argument("--blocks", type=int, help="how many chunks; by default what Ray thinks")
    given = parser.parse_args()
    written = tokenize(
        given.source,
        given.output,
        format_=given.format,
        text=given.text,
        tokenizer=given.tokenizer,
        dtype=given.dtype,
        blocks=given.blocks,
    )
    print(written.table())


if __name__ == "__main__":
    main()
