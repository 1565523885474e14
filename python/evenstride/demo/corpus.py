"""A corpus that every machine has: the functions of the Python standard library, as bytes."""

from __future__ import annotations

import ast
import sysconfig
import tokenize
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

# Folders that hold installed packages, tests or nothing to train on.
_SKIPPED_FOLDERS = frozenset(
    {"site-packages", "dist-packages", "__pycache__", "test", "tests", "idle_test", "lib2to3"}
)

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True)
class Corpus:
    """Functions, one sample each, and what was left out of them.

    Attributes
    ----------
    samples : list of ndarray of uint8
        The first bytes of each function's source, its tokens, each of shape (length,).
    files : int
        Files that were read.
    skipped_files : int
        Files that could not be read, decoded or parsed.
    truncated : int
        Samples that were cut.
    cut_tokens : int
        Tokens that were cut off them.

    """

    samples: list[NDArray[np.uint8]]
    files: int
    skipped_files: int
    truncated: int
    cut_tokens: int

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Tokens of each sample, shape (n_samples,)."""
        return np.array([len(sample) for sample in self.samples], np.int64)


def standard_library() -> Path:
    """Return the folder of the running Python's own modules."""
    return Path(sysconfig.get_path("stdlib"))


def read_corpus(library: Path, *, max_length: int) -> Corpus:
    """Return the functions of all Python files below a folder, in the order of their paths.

    Parameters
    ----------
    library : Path
        A folder of Python files. Tests and installed packages in it are passed over.
    max_length : int
        Where longer functions are cut, in bytes. At least 1.

    Raises
    ------
    ValueError
        If there is no function at all.

    """
    samples = []
    files = skipped_files = truncated = cut_tokens = 0
    for path in _python_files(library):
        files += 1
        try:
            functions = list(functions_of(path))
        # What is no Python says so in any of these ways; a UnicodeError is a ValueError.
        except (SyntaxError, ValueError, RecursionError, MemoryError, OSError):
            skipped_files += 1
            continue
        for function in functions:
            samples.append(np.frombuffer(function[:max_length], np.uint8))
            truncated += len(function) > max_length
            cut_tokens += max(0, len(function) - max_length)
    if not samples:
        msg = f"`library` must hold Python files with functions, but `{library}` has none."
        raise ValueError(msg)
    return Corpus(samples, files, skipped_files, truncated, cut_tokens)


def functions_of(path: Path) -> Iterator[bytes]:
    """Yield the source of each function of a file, in UTF-8, with its decorators.

    Methods are functions. A function inside another is part of that one, so that no text comes
    twice.
    """
    with tokenize.open(path) as file:  # Heeds the file's coding cookie; makes every newline "\n".
        text = file.read()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Of doubtful escapes in other people's strings.
        module = ast.parse(text)
    lines = text.split("\n")  # As the parser counts them; `splitlines` splits at form feeds too.
    for function in _outermost(module):
        first = min([function.lineno, *(node.lineno for node in function.decorator_list)])
        yield "\n".join(lines[first - 1 : function.end_lineno]).encode()


def _python_files(library: Path) -> list[Path]:
    files = (path.relative_to(library) for path in library.rglob("*.py") if path.is_file())
    kept = (path for path in files if _SKIPPED_FOLDERS.isdisjoint(path.parts[:-1]))
    return [library / path for path in sorted(kept, key=lambda path: path.parts)]


def _outermost(node: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Yield the functions below `node` that are in no other function, in the order of the text."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, _FUNCTIONS):
            yield child
        elif not isinstance(child, ast.expr):  # Functions stand in statements alone.
            yield from _outermost(child)
