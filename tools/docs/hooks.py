"""What `mkdocs build` does besides: reference pages from the code, files from outside docs/, equations.

- `reference/spec.md` and `reference/cli.md` are generated (`spec_reference`, `cli_reference`).
- Pages link to `results/` and `examples/` as they lie in the repository, so that the links hold there, too;
  the site gets a copy of these files, and the links are rewritten. A link to anything else outside docs/
  is a warning, which `--strict` turns into an error.
- Notebooks become pages, with a link to the file itself.
- TeX becomes MathML (`equations`), which browsers typeset without any script.
"""

from __future__ import annotations

import json
import logging
import posixpath
import re
from pathlib import Path
from typing import Any

from cli_reference import cli_reference
from equations import typeset
from mkdocs.structure.files import File, Files
from spec_reference import spec_reference

ROOT = Path(__file__).resolve().parents[2]
COPIED = ("results/*/*", "examples/*.py", "examples/*.toml", "examples/notebooks/*.ipynb")
_LINK = re.compile(r"(\]\()([^)\s#]+)")
log = logging.getLogger("mkdocs.hooks.flexfl")


def on_files(files: Files, config: Any) -> Files:
    """Add the generated pages, and the files that pages show or link to."""
    files.append(File.generated(config, "reference/spec.md", content=spec_reference()))
    files.append(File.generated(config, "reference/cli.md", content=cli_reference()))
    for path in sorted(path for pattern in COPIED for path in ROOT.glob(pattern)):
        if path.suffix != ".md":  # tables of the figures: they stand in the page
            uri = path.relative_to(ROOT).as_posix()
            files.append(File.generated(config, uri, abs_src_path=str(path)))
        if path.suffix == ".ipynb":
            page = posixpath.splitext(uri)[0] + ".md"
            files.append(File.generated(config, page, content=notebook_page(path)))
    return files


def notebook_page(path: Path) -> str:
    """Return a notebook as a page: its text, and its code."""
    parts = []
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        parts.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
    title, *rest = parts
    return "\n\n".join([title, f"Run it yourself: [{path.name}]({path.name}).", *rest]) + "\n"


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Point links that leave docs/ to the copies in the site."""
    docs, folder = Path(config.docs_dir), posixpath.dirname(page.file.src_uri)

    def rewrite(match: re.Match[str]) -> str:
        target = match[2]
        if not target.startswith(".."):
            return match[0]
        path = (docs / folder / target).resolve()
        if path.is_relative_to(docs):
            return match[0]
        uri = path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else target
        if uri.endswith(".ipynb"):
            uri = posixpath.splitext(uri)[0] + ".md"
        if files.get_file_from_path(uri) is None:
            log.warning("%s links to %s, which the site does not have", page.file.src_uri, target)
        return match[1] + posixpath.relpath(uri, folder or ".")

    return _LINK.sub(rewrite, markdown)


def on_page_content(html: str, **_: Any) -> str:
    """Typeset the equations."""
    return typeset(html)
