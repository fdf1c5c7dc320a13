"""HTML that is escaped by construction: text becomes markup in one place only."""

import html

from evenkeel.domain.model.values import printable

_VOID = ("meta", "input", "rect", "line", "path")  # the last three: written short inside SVG


class Html(str):
    """Markup that may stand on a page as it is. Every other text is escaped where it is put in."""

    __slots__ = ()


Child = Html | str | None


def escape(text: str) -> str:
    """As it may stand in markup, and orders nothing."""
    return html.escape(printable(text))


def joined(*children: Child) -> Html:
    """Children one after the other; None is nothing."""
    return Html("".join(child if isinstance(child, Html) else escape(child) for child in children if child is not None))


def el(tag: str, *children: Child, **attributes: str | int | float | None) -> Html:
    """An element. ``class_`` is written class, ``data_until`` is data-until; attributes that are None are left out."""
    attributes_text = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{escape(str(value))}"'
        for name, value in attributes.items()
        if value is not None
    )
    if tag in _VOID:
        return Html(f"<{tag}{attributes_text}/>")
    return Html(f"<{tag}{attributes_text}>{joined(*children)}</{tag}>")
