"""Settings of the documentation site: `./run docs` builds it, `./run docs --serve` shows it.

The pages are the Markdown files as they stand in the repository. `index.md` adds the navigation.
"""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VERSION = re.search(r'^__version__ = "(.+)"$', (ROOT / "src/herma/__init__.py").read_text("utf-8"), re.MULTILINE)

project = "Herma"
author = "The Herma authors"
release = VERSION[1] if VERSION else ""
extensions = ["myst_parser"]
exclude_patterns = ["README.md"]  # included by index.md
myst_heading_anchors = 3
nitpicky = True
highlight_language = "none"  # blocks without a language are terminal sessions
suppress_warnings = ["misc.highlighting_failure"]

html_theme = "furo"
html_title = f"Herma {release}"
html_copy_source = False
html_show_sphinx = False
