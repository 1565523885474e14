"""How Sphinx builds the documentation: `make docs`.

The source folder is that of the repository, and the pages are those of its Markdown files that are
named here. So a relative link means the same file here as where the files are read without Sphinx.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import evenstride

if TYPE_CHECKING:
    from docutils.nodes import Element
    from sphinx.addnodes import pending_xref
    from sphinx.application import Sphinx
    from sphinx.environment import BuildEnvironment

project = "Evenstride"
author = "The Evenstride authors"
version = release = evenstride.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]

# ---- Pages ----

root_doc = "docs/index"
include_patterns = ["docs/**.md", "csrc/*/README.md", "*.md"]
exclude_patterns = [".*", "benchmarks", "build", "dist", "evenstride-demo", "python", "shared"]

myst_heading_anchors = 4

# Each name is one that this site does not describe, as the docstrings write it.
nitpicky = True
nitpick_ignore = [
    *(("py:exc", name) for name in ("IndexError", "ImportError", "MemoryError", "OSError")),
    *(("py:exc", name) for name in ("FileExistsError", "RuntimeError", "TypeError", "ValueError")),
    ("py:func", "numpy.digitize"),
]

# ---- What docstrings say ----

# Types are written for people, with shapes and ranges; annotations would repeat them.
autodoc_typehints = "none"
autodoc_member_order = "bysource"
autodoc_default_options = {"members": True}
autodoc_preserve_defaults = True
napoleon_google_docstring = False
napoleon_use_param = False
napoleon_use_rtype = False
napoleon_custom_sections = [("Attributes", "params_style")]

# ---- How it looks ----

html_theme = "furo"
html_title = f"Evenstride {version}"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_extra_path = ["redirect"]  # From the top of the site to its first page.
html_copy_source = False
html_show_copyright = False
html_show_sphinx = False
pygments_style = "friendly"
highlight_language = "text"


def show_directives(_app: Sphinx, _page: str, source: list[str]) -> None:
    """Let a comment that holds a directive be one: those who read the file itself are spared it."""
    source[0] = re.sub(r"(?s)<!-- (\{[a-z-]+\}.*?)\n-->", r"```\1\n```", source[0])


def find_short_name(
    app: Sphinx, env: BuildEnvironment, node: pending_xref, text: Element
) -> Element | None:
    """Find a name of the package's top level, which docstrings of all modules write short."""
    if node.get("refdomain") != "py":
        return None
    name, kind, page = f"evenstride.{node['reftarget']}", node["reftype"], node["refdoc"]
    return env.domains["py"].resolve_xref(env, page, app.builder, kind, name, node, text)


def setup(app: Sphinx) -> None:
    """Connect what is done to pages."""
    app.connect("source-read", show_directives)
    app.connect("missing-reference", find_short_name)
