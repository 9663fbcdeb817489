"""Docstrings that share parts: each part is written once."""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


def documented_like(original: Any) -> Callable[[F], F]:
    """Fill the docstring of a function or a class with parts of another's.

    The docstring names parts in braces, on lines of their own, by their first words:
    ``{Parameters}`` is that whole section, ``{axis}`` a parameter, ``{TypeError}`` the entry of an
    exception, and ``{Memory}`` a paragraph. The first part with that first word is taken.
    """

    def decorate(function: F) -> F:
        if function.__doc__:  # `python -OO` leaves none
            parts = dict(reversed(list(_parts(inspect.cleandoc(original.__doc__)))))
            lines = inspect.cleandoc(function.__doc__).splitlines()
            function.__doc__ = "\n".join(_filled(line, parts) for line in lines) + "\n"
        return function

    return decorate


def _parts(text: str) -> Iterator[tuple[str, str]]:
    """Yield the parts of a docstring, each with its first word.

    Parts are sections, and the parameters, exceptions and paragraphs in them.
    """
    for section in re.split(r"\n\n(?=\S.*\n---)", text):
        body = re.sub(r"^.*\n---+\n", "", section)
        # Lines that are not indented, and those below that are.
        for part in (section, *re.findall(r"^\S.*(?:\n\S.*)*(?:\n .*)*", body, re.MULTILINE)):
            yield re.split(r"[^\w.]", part, maxsplit=1)[0], part


def _filled(line: str, parts: dict[str, str]) -> str:
    """Replace a line that is a name in braces by the part of that name."""
    named = re.fullmatch(r"( *)\{([\w.]+)\}", line)
    return textwrap.indent(parts[named[2]], named[1]) if named else line
