"""Locks of this package that stay usable in forked processes.

A child has the memory of its parent and one of its threads. A lock that another thread held at that
moment would stay locked in the child for ever.
"""

from __future__ import annotations

import os
import threading
from typing import Any


def lock() -> Any:
    """Return a reentrant lock that is free again in forked children.

    A fork waits until the lock is free. So the child finds it free, and what it guards complete.
    """
    made = threading.RLock()
    if hasattr(os, "register_at_fork"):  # Windows has no fork
        os.register_at_fork(
            before=made.acquire, after_in_parent=made.release, after_in_child=made.release
        )
    return made
