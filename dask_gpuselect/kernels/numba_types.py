"""Numba's types; Numba is imported when the first one is used."""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    from numba import types

    return getattr(types, name)
