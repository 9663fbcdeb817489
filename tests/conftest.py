"""What all tests share."""

from __future__ import annotations

from hypothesis import settings

# The same examples every time, and no clock: the machines that run this are shared.
settings.register_profile("repeatable", deadline=None, derandomize=True)
settings.load_profile("repeatable")
