"""The documentation builds as a site without a warning: no broken link, no page outside the navigation."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def build(docs: Path, site: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html", str(docs), str(site)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_site_builds_and_a_broken_link_breaks_it(tmp_path: Path) -> None:
    built = build(ROOT / "docs", tmp_path / "site")
    assert built.returncode == 0, built.stderr
    pages = {page.relative_to(ROOT / "docs").with_suffix(".html") for page in (ROOT / "docs").rglob("*.md")}
    assert [page for page in pages if page.name != "README.html" and not (tmp_path / "site" / page).is_file()] == []

    wrong = tmp_path / "docs"
    wrong.mkdir()
    (wrong / "conf.py").write_text('extensions = ["myst_parser"]\nnitpicky = True\n')
    (wrong / "index.md").write_text("# Start\n\n[gone](no-such-page.md)\n")
    assert "no-such-page.md" in build(wrong, tmp_path / "other").stderr
