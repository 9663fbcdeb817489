"""Read and check this package's settings in dask's config, and those about threads.

`SETTINGS` is the table of them. Whichever setting a call reads, the values of all are checked, so
that a mistake shows at the first call. The defaults are in `dask_gpuselect/dask_gpuselect.yaml`.
"""

from __future__ import annotations

import difflib
import math
import operator
import os
import warnings
from collections.abc import Mapping
from contextlib import suppress
from numbers import Real
from pathlib import Path
from typing import Any

from dask import config
from dask.system import CPU_COUNT
from dask.utils import parse_bytes

OURS = "dask_gpuselect."
CHUNK = "128 MiB"  # dask's default

RENAMED = {
    f"{OURS}keep-limit": f"{OURS}cache-limit",
    f"{OURS}keep-spill": f"{OURS}cache-spill",
    f"{OURS}scratch-loads": f"{OURS}scratch-reads",
}
"""Former names of settings, and their names today."""


def _accept_former_names() -> None:
    """Let dask replace former names, with its FutureWarning for those that a program sets."""
    # YAML files and the environment, which dask has read by now. `config.rename` of 2025.1 knows no
    # nested names.
    ours: Any = config.config.get(OURS.rstrip("."))
    for old, new in RENAMED.items() if isinstance(ours, dict) else ():
        name = old.removeprefix(OURS)
        for spelled in {name, name.replace("-", "_")} & ours.keys():
            ours[new.removeprefix(OURS)] = ours.pop(spelled)
    # `config.set` looks names up with hyphens.
    config.deprecations.update({old.replace("_", "-"): new for old, new in RENAMED.items()})


def _read_defaults() -> Mapping[str, Any]:
    """Load the values of the YAML file, and make them defaults of dask's config."""
    (defaults,) = config.collect_yaml([str(Path(__file__).parents[1] / "dask_gpuselect.yaml")])
    config.update_defaults(defaults)
    values: Mapping[str, Any] = defaults["dask_gpuselect"]
    return values


_accept_former_names()
DEFAULTS = _read_defaults()


# --- The table ------------------------------------------------------------------------------------


def _check_size(name: str, value: Any) -> int:
    """Return a number of bytes."""
    n = _bytes(value)
    if n is None:
        raise ValueError(
            f"{name} must be a number of bytes, or a string such as '500 MB', not {value!r}"
        )
    if n < 0:
        raise ValueError(f"{name} must be 0 or more bytes, not {value!r}")
    return n


def _check_directory(name: str, value: Any) -> str | None:
    """Return a directory: "" for True, and None for False."""
    if value is None or isinstance(value, bool):
        return "" if value else None
    if isinstance(value, str | os.PathLike) and os.fspath(value):
        return str(os.fspath(value))
    raise ValueError(f"{name} must be True, False or a directory, not {value!r}")


def _check_number(name: str, value: Any) -> int:
    """Return an integer of at least 1."""
    n = integer(value)
    if n is None or n < 1:
        raise ValueError(f"{name} must be an integer of at least 1, not {value!r}")
    return n


SIZE, DIRECTORY, NUMBER = KINDS = (
    "bytes, 0 or more",
    "True, False or a directory",
    "an integer of at least 1",
)
"""Types and ranges of settings."""

CHECKS = dict(zip(KINDS, (_check_size, _check_directory, _check_number), strict=True))
"""Functions of a full name and a value, which return the value to use or raise a ValueError."""

SETTINGS: dict[str, tuple[str, str]] = {
    "column-limit": (SIZE, "bytes of chunks that one task may hold along an axis"),
    "cache-limit": (SIZE, "bytes of elements that a process may cache from first reads"),
    "cache-spill": (DIRECTORY, "whether what exceeds `cache-limit` is written to disk"),
    "scratch-directory": (DIRECTORY, "where columns of chunks that exceed `column-limit` go"),
    "scratch-reads": (NUMBER, "number of reads at which columns are written to disk instead"),
    "scratch-limit": (SIZE, "bytes that one array may take in `scratch-directory`"),
    "root-limit": (SIZE, "bytes of partial results that one task gathers"),
    "spill-limit": (SIZE, "bytes of an array up to which `sort` holds its pieces in memory"),
    "distance-limit": (SIZE, "bytes of one tile of the distance matrix"),
    "staging-pool": (SIZE, "bytes of pinned memory of `to_gpu`"),
    "staging-threads": (NUMBER, "threads that copy to pinned memory"),
}
"""The kind of each setting, and its meaning. If a default is None, the package chooses."""

_checked: Mapping[str, Any] = {}
"""The values that were checked last."""


def all_values() -> dict[str, Any]:
    """Return the current values of all settings, by their names."""
    values = _ours()
    return {f"{OURS}{name}": values[name] for name in sorted(values)}


def _ours() -> Mapping[str, Any]:
    """Return the part of dask's config that is about this package."""
    values = config.get(OURS.rstrip("."), {})
    if not isinstance(values, Mapping):
        raise ValueError(
            f"dask_gpuselect must be a mapping of settings, such as column-limit, not {values!r}"
        )
    return values


def _check_all() -> None:
    """Raise for a setting with a senseless value, and warn of one that does not exist."""
    global _checked  # noqa: PLW0603 -- a cache of one
    values = _ours()
    with suppress(Exception):  # an array is neither equal nor different
        if values == _checked:  # 1 us; the words of all values took 10, in a call of 130
            return
    for full, value in all_values().items():
        name = full.removeprefix(OURS).replace("_", "-")
        if name not in SETTINGS:
            _warn_unknown(full)
        elif value is not None or DEFAULTS[name] is not None:
            CHECKS[SETTINGS[name][0]](f"{OURS}{name}", value)
    _checked = dict(values)


def _warn_unknown(name: str) -> None:
    """Warn of a setting that does not exist, and name the one that may be meant."""
    near = difflib.get_close_matches(name, [OURS + each for each in SETTINGS], 1, 0.75)
    advice = f"did you mean {near[0]}?" if near else f"there are {', '.join(SETTINGS)}"
    warnings.warn(f"dask's config has {name}, which is no setting: {advice}", stacklevel=2)


# --- Values ---------------------------------------------------------------------------------------


def _value(name: str, chosen: Any = None) -> Any:
    """Return the value of `dask_gpuselect.<name>`; `chosen` if it is None, as is its default."""
    default = DEFAULTS[name]
    _check_all()
    value = config.get(f"{OURS}{name}", default)
    value = chosen if value is None and default is None else value
    return CHECKS[SETTINGS[name][0]](f"{OURS}{name}", value)


def n_bytes(name: str, chosen: str | int | None = None) -> int:
    """Return the bytes of the setting `dask_gpuselect.<name>`: a number, or a string like "500 MB".

    `chosen` serves a setting without a default, because its best value depends on the chunks.
    """
    assert SETTINGS[name][0] is SIZE
    return int(_value(name, chosen))


def directory(name: str) -> str | None:
    """Return the directory of the setting `dask_gpuselect.<name>`; None if there is none.

    True stands for the directory of dask's temporary files, which is returned as "".
    """
    assert SETTINGS[name][0] is DIRECTORY
    path: str | None = _value(name)
    return path


def number(name: str, chosen: int) -> int:
    """Return the setting `dask_gpuselect.<name>`, 1 or more; `chosen` if it is not set."""
    assert SETTINGS[name][0] is NUMBER
    return int(_value(name, chosen))


def _bytes(value: Any) -> int | None:
    """Parse a size in bytes; return None if the value is not a size."""
    if isinstance(value, str) and any(map(str.isdigit, value)):  # dask parses "MB" as 1 MB
        try:
            return int(parse_bytes(value))
        except (ValueError, OverflowError):
            return None
    # A bool is an int in Python. A YAML line without a value gives None.
    is_number = isinstance(value, Real) and not isinstance(value, bool)
    return int(value) if is_number and math.isfinite(value) else None


def chunk_bytes() -> int:
    """Return the size of chunks that dask makes, by dask's own setting."""
    value = config.get("array.chunk-size", None)
    return _bytes(value) or int(parse_bytes(CHUNK))


def shuffles_to_disk() -> bool:
    """Return whether workers keep on disk what they move between them: dask's own setting."""
    return bool(config.get("distributed.p2p.storage.disk", True))


def n_workers() -> int:
    """Return the number of threads that dask may start: its own setting, or the number of CPUs."""
    value = config.get("num_workers", None)
    return _check_number("num_workers", value) if value else CPU_COUNT


def integer(value: Any) -> int | None:
    """Convert a value, or the string of an environment variable, to an integer, or return None."""
    if isinstance(value, bool):
        return None
    try:
        return int(value) if isinstance(value, str) else operator.index(value)
    except (TypeError, ValueError):
        return None
