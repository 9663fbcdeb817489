"""Docstrings that share parts, and methods that forward to functions: each is written once."""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Callable, Collection, Iterator
from functools import partial, update_wrapper
from typing import Any, Concatenate, ParamSpec, TypeVar

from dask_gpuselect.arguments import SameKind, public, same_kind

F = TypeVar("F", bound=Callable[..., Any])
P = ParamSpec("P")


def statistic(
    body: Callable[Concatenate[str, Any, P], Any],
    *data: str,
    many: tuple[str, ...] = (),
    like: Any = None,
    without: Collection[str] = (),
) -> Callable[[Callable[[], None]], SameKind[P]]:
    """Make a public function of a docstring, and of a body that several functions share.

    The decorated function has a name and a docstring, and no parameters. Those of the public
    function are the body's, except the first: the body is called with the name.

    Parameters
    ----------
    body : callable
        It tells by the name which of the functions is called.
    *data, many
        As for `public`.
    like : callable, optional
        The function whose docstring has parts of this one, as for `documented_like`.
    without : collection of str
        Names of parameters of the body that the function lacks.
    """

    def decorate(named: Callable[[], None]) -> SameKind[P]:
        signature = inspect.signature(body)
        first, *parameters = signature.parameters.values()
        function: Any = update_wrapper(partial(body, named.__name__), named)
        parameters = [each for each in parameters if each.name not in without]
        function.__signature__ = signature.replace(parameters=parameters)
        function.__annotations__ = {**body.__annotations__}
        for name in (first.name, *without):
            del function.__annotations__[name]
        documented = function if like is None else documented_like(like)(function)
        return same_kind(public(*data, many=many)(documented))

    return decorate


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


def as_method(
    method: F,
    function: Callable[..., Any],
    owner: str,
    summary: str,
    *,
    without: Collection[str] = (),
    more: Collection[inspect.Parameter] = (),
) -> F:
    """Give a method that forwards to a function of an array the name and signature of that.

    Parameters
    ----------
    method : callable
        The method.
    function : callable
        The function. Its first parameter is the array, or the object that has the method.
    owner : str
        Name of the class.
    summary : str
        First line of the docstring; ``{name}`` stands for the full name of the function.
    without : collection of str
        Parameters of the function that the method does not have.
    more : collection of Parameter
        Further parameters of the method, keywords alone.
    """
    signature = inspect.signature(function)
    own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    given = [each for each in list(signature.parameters.values())[1:] if each.name not in without]
    signature = signature.replace(parameters=[own, *given, *more])
    method.__signature__ = signature  # type: ignore[attr-defined]
    method.__name__ = function.__name__
    method.__qualname__ = f"{owner}.{method.__name__}"
    method.__doc__ = summary.format(name=public_name(function))
    return method


# Subpackages whose functions are imported from there, and not from the package.
SUBPACKAGES = ("distribution", "groups", "robust", "windows")


def public_name(function: Callable[..., Any]) -> str:
    """Return the full name of a public function, as users type it."""
    folder = function.__module__.split(".")[1]
    return f"dask_gpuselect.{f'{folder}.' if folder in SUBPACKAGES else ''}{function.__name__}"


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
