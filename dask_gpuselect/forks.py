"""Locks of this package, and processes that fork.

A child has the memory of its parent and one of its threads. A lock that another thread held at that
moment would stay locked in the child for ever.
"""

from __future__ import annotations

import os
import threading
from typing import Any


def lock() -> Any:
    """A lock for a module, that a thread may take twice. A fork waits until it is free, so that
    the child finds it free and what it guards whole."""
    made = threading.RLock()
    if hasattr(os, "register_at_fork"):  # Windows has no fork
        os.register_at_fork(
            before=made.acquire, after_in_parent=made.release, after_in_child=made.release
        )
    return made
