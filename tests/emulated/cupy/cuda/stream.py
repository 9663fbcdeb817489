"""Streams and events, of work that is done at once."""

from __future__ import annotations

import itertools
import threading
import time
from typing import Any

_numbers = itertools.count(0x1000)
_of_thread = threading.local()


class Event:
    def __init__(
        self, block: bool = False, disable_timing: bool = False, interprocess: bool = False
    ) -> None:
        self.ptr = next(_numbers)
        self.time = 0.0

    def record(self, stream: Any = None) -> None:
        self.time = time.perf_counter()

    def synchronize(self) -> None:
        pass

    @property
    def done(self) -> bool:
        return True


def get_elapsed_time(start: Event, end: Event) -> float:
    return 1e3 * (end.time - start.time)


class Stream:
    null: Stream
    ptds: Stream

    def __init__(self, null: bool = False, non_blocking: bool = False, ptds: bool = False) -> None:
        self.ptr = 0 if null else 2 if ptds else next(_numbers)

    def use(self) -> Stream:
        _of_thread.stream = self
        return self

    def __enter__(self) -> Stream:
        self.before = get_current_stream()
        return self.use()

    def __exit__(self, *_: Any) -> None:
        self.before.use()

    def synchronize(self) -> None:
        pass

    def wait_event(self, event: Event) -> None:
        pass

    def record(self, event: Event | None = None) -> Event:
        event = event or Event()
        event.record(self)
        return event

    @property
    def done(self) -> bool:
        return True


Stream.null, Stream.ptds = Stream(null=True), Stream(ptds=True)


def get_current_stream() -> Stream:
    return getattr(_of_thread, "stream", Stream.null)
