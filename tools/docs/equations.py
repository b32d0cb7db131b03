"""TeX in a page as MathML, when the site is built: browsers typeset it without any script or font of ours."""

from __future__ import annotations

import html
import re

from latex2mathml.converter import convert

# What pymdownx.arithmatex makes of $…$ and $$…$$.
_INLINE = re.compile(r'<span class="arithmatex">\\\((.*?)\\\)</span>', re.DOTALL)
_DISPLAYED = re.compile(r'<div class="arithmatex">\s*\\\[(.*?)\\\]\s*</div>', re.DOTALL)
_TAG = re.compile(r"\\tag\{(.*?)\}")


def typeset(page: str) -> str:
    """Return the page with MathML where it had TeX."""
    return _DISPLAYED.sub(_displayed, _INLINE.sub(lambda found: _mathml(found[1], "inline"), page))


def _displayed(found: re.Match[str]) -> str:
    """Return a displayed equation, with its number (`\\tag{…}`) at the right."""
    tex = html.unescape(found[1])
    number = "".join(f'<span class="number">({tag})</span>' for tag in _TAG.findall(tex))
    return f'<div class="equation"><span>{_mathml(_TAG.sub("", tex), "block")}</span>{number}</div>'


def _mathml(tex: str, display: str) -> str:
    # A norm's bars would each stretch to what stands beside them, and differ.
    mathml = str(convert(html.unescape(tex).strip(), display=display))
    return mathml.replace("<mo>&#x02016;</mo>", '<mo stretchy="false">&#x02016;</mo>')
