"""Arrays with a unit, of pint, astropy, unyt and others: their numbers alone would be taken."""

from __future__ import annotations

from typing import Any


def check_no_unit(array: Any, name: str = "an array") -> None:
    """Raise for a quantity: NumPy's functions would drop its unit."""
    kind = type(array)
    # A quantity knows its unit, and converts itself to another one. So dates of pandas, which have
    # a unit of time, are none; attributes that are called so are none either.
    if not hasattr(kind, "to"):
        return
    for attribute in ("units", "unit"):
        unit = getattr(array, attribute, None)
        if unit is not None:
            numbers = "magnitude" if hasattr(kind, "magnitude") else "value"
            raise TypeError(
                f"{name} is a {kind.__name__} in {str(unit) or 'no unit'}, and the answer would "
                f"have none: pass its numbers, a.{numbers}, and give the answer its unit"
            )
