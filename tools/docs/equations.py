"""TeX in a page as MathML, when the site is built: browsers typeset it without any script or font of ours."""

from __future__ import annotations

import html
import re

from latex2mathml.converter import convert

# What pymdownx.arithmatex makes of $…$ and $$…$$.
_INLINE = re.compile(r'<span class="arithmatex">\\\((.*?)\\\)</span>', re.DOTALL)
_DISPLAYED = re.compile(r'<div class="arithmatex">\\?\[?(.*?)\\?\]?</div>', re.DOTALL)
_TAG = re.compile(r"\\tag\{(.*?)\}")


def typeset(page: str) -> str:
    r"""Return the page with MathML where it had TeX.

    >>> typeset(r'<span class="arithmatex">\(x_t\)</span>')[-58:]
    '<mrow><msub><mi>x</mi><mi>t</mi></msub></mrow></math>'
    """
    return _DISPLAYED.sub(_displayed, _INLINE.sub(lambda found: _mathml(found[1], "inline"), page))


def _displayed(found: re.Match[str]) -> str:
    """Return a displayed equation, with its number (`\\tag{…}`) at the right."""
    tex = html.unescape(found[1])
    number = "".join(f'<span class="number">({tag})</span>' for tag in _TAG.findall(tex))
    return f'<div class="equation"><span>{_mathml(_TAG.sub("", tex), "block")}</span>{number}</div>'


def _mathml(tex: str, display: str) -> str:
    return str(convert(html.unescape(tex).strip(), display=display))
