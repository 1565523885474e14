"""Finds the blocks of the documentation's pages, and runs them."""

from __future__ import annotations

import doctest
import json
import re
import shlex
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = ["README.md", *sorted(str(p.relative_to(ROOT)) for p in ROOT.glob("docs/**/*.md"))]
TESTS = Path(__file__).parent

# A block in three backticks, or one in a comment, which readers do not see: what a page's examples
# start from, and what must be true after them. In front of code, a comment may give it a name, by
# which another test finds and runs it.
_BLOCK = re.compile(
    r"^(?:<!-- run: (?P<name>[^\n]*?) -->\n)?"
    r"(?:```(?P<language>[^\n]*)\n(?P<text>.*?)^```$"
    r"|<!-- (?P<hidden>setup|check):\n(?P<code>.*?)^-->$)",
    re.DOTALL | re.MULTILINE,
)
_FLAGS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS

# What is added to a command so that it takes no minute.
_SHORTER = {"bench": ["--seconds", "0.01"], "demo": ["--help"]}
# Programs of others, which start scripts of the reader.
_LAUNCHERS = {"accelerate", "chromium", "tensorboard", "torchrun"}


@dataclass(frozen=True)
class Block:
    """A block of a page: its language, its text, its first line, and who else runs it."""

    page: str
    line: int
    language: str
    text: str
    name: str | None = None

    @property
    def place(self):
        return f"{self.page}:{self.line}"


def blocks_of(page):
    """Return the blocks of a page, in order."""
    text = (ROOT / page).read_text(encoding="utf-8")
    blocks = []
    for found in _BLOCK.finditer(text):
        language = "python" if found["hidden"] else found["language"]
        code = found["code"] if found["hidden"] else found["text"]
        start = found.start("code") if found["hidden"] else found.start("text")
        line = text.count("\n", 0, start) + 1
        blocks.append(Block(page, line, language, code, found["name"]))
    fences = re.findall(r"(?m)^[ >]*```", text)
    visible = [block for block in blocks if f"```{block.language}\n{block.text}```" in text]
    assert len(fences) == 2 * len(visible), f"{page} has blocks that are not at the left margin"
    return blocks


def run(block, namespace):
    """Run a block in a namespace that the blocks of its page share."""
    match block.language:
        case "python" if ">>> " in block.text:
            _run_examples(block, namespace)
        case "python":
            # As many lines ahead as the page has, for tracebacks.
            code = compile("\n" * (block.line - 1) + block.text, ROOT / block.page, "exec")
            exec(code, namespace)  # noqa: S102 - It is the documentation's own.
        case "json":
            json.loads(block.text)
        case "":
            for line in _commands_of(block.text):
                _run_command(line)
        case language:
            assert language == "text", f"{block.place}: nothing runs {language!r}"


def _run_examples(block, namespace):
    examples = doctest.DocTestParser().get_doctest(
        block.text, {}, block.place, block.page, block.line - 1
    )
    examples.globs = namespace
    said = []
    doctest.DocTestRunner(optionflags=_FLAGS).run(examples, out=said.append, clear_globs=False)
    assert not said, "".join(said)


def _commands_of(text):
    """Return the commands of a shell, each in one line, without comments."""
    return [shlex.split(line, comments=True) for line in text.replace("\\\n", "").splitlines()]


def _run_command(words):
    match words:
        case ["evenstride", command, *_]:
            from evenstride.commands import run as run_command  # noqa: PLC0415 - An extra.

            assert run_command([*words[1:], *_SHORTER.get(command, [])]) == 0, words
        case ["make", target]:
            rules = (ROOT / "Makefile").read_text(encoding="utf-8")
            assert re.search(rf"(?m)^{target}:", rules), target
        case [".venv/bin/python" | "python", script, *_]:
            assert (ROOT / script).is_file(), script
        case ["pip", "install", package]:
            _check_extras(package)
        case _:
            assert words[0] in _LAUNCHERS, words


def _check_extras(package):
    name, _, extras = package.rstrip("]").partition("[")
    assert name in {".", "evenstride"}
    known = (ROOT / "pyproject.toml").read_text(encoding="utf-8").partition("[project.optional")[2]
    for extra in extras.split(","):
        assert re.search(rf"(?m)^{extra} = \[", known), extra


def runs_elsewhere(block):
    """Return whether there is a test that names both the page and the block."""
    page = block.page.removeprefix("docs/")
    texts = (test.read_text(encoding="utf-8") for test in TESTS.glob("test_*.py"))
    return any(f'"{page}"' in text and f'"{block.name}"' in text for text in texts)
