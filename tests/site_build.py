"""The documentation site, built as `make docs` does."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def build(site: Path, root: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Build the site of the tree `root` into `site`; any warning is an error."""
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(site)]
    quiet = {"NO_MKDOCS_2_WARNING": "1"}  # an advertisement for the next version of the theme
    return subprocess.run(command, cwd=root, capture_output=True, text=True, env=os.environ | quiet)
