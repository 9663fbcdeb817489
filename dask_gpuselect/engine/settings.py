"""Read and check this package's settings in dask's config, and those about threads.

An error names the setting and the allowed values. The defaults are in
`dask_gpuselect/dask_gpuselect.yaml`.
"""

from __future__ import annotations

import math
import operator
import os
from collections.abc import Mapping
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
    config.rename(RENAMED)  # in YAML files and the environment, which dask has read by now
    # `config.set` looks names up with hyphens.
    config.deprecations.update({old.replace("_", "-"): new for old, new in RENAMED.items()})


def _read_defaults() -> Mapping[str, Any]:
    """Load the values of the YAML file, and make them defaults of dask's config."""
    (found,) = config.collect_yaml([str(Path(__file__).parents[1] / "dask_gpuselect.yaml")])
    config.update_defaults(found)
    values: Mapping[str, Any] = found["dask_gpuselect"]
    return values


_accept_former_names()
DEFAULTS = _read_defaults()


def _value(name: str, chosen: Any = None) -> Any:
    """Return the value of `dask_gpuselect.<name>`; `chosen` if it is None, as is its default."""
    default = DEFAULTS[name]
    value = config.get(f"{OURS}{name}", default)
    return chosen if value is None and default is None else value


def all_values() -> dict[str, Any]:
    """Return the current values of all settings, by their names."""
    found: Mapping[str, Any] = config.get(OURS.rstrip("."), {})
    return {f"{OURS}{name}": found[name] for name in sorted(found)}


def n_bytes(name: str, chosen: str | int | None = None) -> int:
    """Return the bytes of the setting `dask_gpuselect.<name>`: a number, or a string like "500 MB".

    `chosen` serves a setting without a default, because its best value depends on the chunks.
    """
    value = _value(name, chosen)
    found = _bytes(value)
    if found is None:
        raise ValueError(
            f"{OURS}{name} must be a number of bytes, or a string such as '500 MB', not {value!r}"
        )
    if found < 0:
        raise ValueError(f"{OURS}{name} must be 0 or more bytes, not {value!r}")
    return found


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


def directory(name: str) -> str | None:
    """Return the directory of the setting `dask_gpuselect.<name>`; None if there is none.

    True stands for the directory of dask's temporary files, which is returned as "".
    """
    value = _value(name)
    if value is None or isinstance(value, bool):
        return "" if value else None
    if isinstance(value, str | os.PathLike) and os.fspath(value):
        return str(os.fspath(value))
    raise ValueError(f"{OURS}{name} must be True, False or a directory, not {value!r}")


def number(name: str, chosen: int) -> int:
    """Return the setting `dask_gpuselect.<name>`, 1 or more; `chosen` if it is not set."""
    return _number(f"{OURS}{name}", _value(name, chosen))


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
    return _number("num_workers", value) if value else CPU_COUNT


def _number(name: str, value: Any) -> int:
    found = integer(value)
    if found is None or found < 1:
        raise ValueError(f"{name} must be an integer of at least 1, not {value!r}")
    return found


def integer(value: Any) -> int | None:
    """Convert a value, or the string of an environment variable, to an integer, or return None."""
    if isinstance(value, bool):
        return None
    try:
        return int(value) if isinstance(value, str) else operator.index(value)
    except (TypeError, ValueError):
        return None
