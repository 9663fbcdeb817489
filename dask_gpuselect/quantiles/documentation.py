"""Docstrings that have parts in common: each is written once."""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


def documented_like(original: Any) -> Callable[[F], F]:
    """A decorator of a function or a class whose docstring has parts of another's.

    It names them in braces, on lines of their own, by their first words: ``{Parameters}`` is that
    whole section, ``{axis}`` a parameter, ``{TypeError}`` what is said of an exception, and
    ``{Memory}`` a paragraph. The first one that begins so is taken.
    """

    def decorate(function: F) -> F:
        if function.__doc__:  # `python -OO` leaves none
            parts = dict(reversed(list(_parts(inspect.cleandoc(original.__doc__)))))
            lines = inspect.cleandoc(function.__doc__).splitlines()
            function.__doc__ = "\n".join(_filled(line, parts) for line in lines) + "\n"
        return function

    return decorate


def _parts(text: str) -> Iterator[tuple[str, str]]:
    """The sections of a docstring, and the parameters, exceptions and paragraphs in them, each with
    its first word."""
    for section in re.split(r"\n\n(?=\S.*\n---)", text):
        body = re.sub(r"^.*\n---+\n", "", section)
        # Lines that are not indented, and those below that are.
        for part in (section, *re.findall(r"^\S.*(?:\n\S.*)*(?:\n .*)*", body, re.MULTILINE)):
            yield re.split(r"[^\w.]", part, maxsplit=1)[0], part


def _filled(line: str, parts: dict[str, str]) -> str:
    named = re.fullmatch(r"( *)\{([\w.]+)\}", line)
    return textwrap.indent(parts[named[2]], named[1]) if named else line
