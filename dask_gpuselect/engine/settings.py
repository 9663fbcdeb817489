"""What dask's config says of this package, and of threads: every value is checked here, and an
error names the setting and says which values are allowed. The defaults are in
`dask_gpuselect/dask_gpuselect.yaml`."""

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
CHUNK = "128 MiB"  # as dask has it


def _read_defaults() -> Mapping[str, Any]:
    """The values of the YAML file, which become defaults of dask's config."""
    (found,) = config.collect_yaml([str(Path(__file__).parents[1] / "dask_gpuselect.yaml")])
    config.update_defaults(found)
    values: Mapping[str, Any] = found["dask_gpuselect"]
    return values


DEFAULTS = _read_defaults()


def _value(name: str, chosen: Any = None) -> Any:
    """What `dask_gpuselect.<name>` is set to, or `chosen` if it is None and None is its default."""
    default = DEFAULTS[name]
    value = config.get(f"{OURS}{name}", default)
    return chosen if value is None and default is None else value


def all_values() -> dict[str, Any]:
    """The values of all settings, as they are set, by their names."""
    found: Mapping[str, Any] = config.get(OURS.rstrip("."), {})
    return {f"{OURS}{name}": found[name] for name in sorted(found)}


def n_bytes(name: str, chosen: str | int | None = None) -> int:
    """The bytes that `dask_gpuselect.<name>` is set to: a number, or a string such as "500 MB".

    `chosen` is for a setting that has no default because the best value depends on the chunks.
    """
    value = _value(name, chosen)
    found = _bytes(value)
    if found is None:
        raise ValueError(
            f"{OURS}{name} must be a number of bytes, or a string such as '500 MB', "
            f"and is {value!r}"
        )
    if found < 0:
        raise ValueError(f"{OURS}{name} must not be negative, and is {value!r}")
    return found


def _bytes(value: Any) -> int | None:
    """A size; None if the value is none."""
    if isinstance(value, str) and any(map(str.isdigit, value)):  # dask takes "MB" for one
        try:
            return int(parse_bytes(value))
        except (ValueError, OverflowError):
            return None
    # bool is an int, and None what a line without a value is in a YAML file.
    is_number = isinstance(value, Real) and not isinstance(value, bool)
    return int(value) if is_number and math.isfinite(value) else None


def directory(name: str) -> str | None:
    """The directory that `dask_gpuselect.<name>` is set to, "" for that of dask's temporary files
    (if it is True); None for none."""
    value = _value(name)
    if value is None or isinstance(value, bool):
        return "" if value else None
    if isinstance(value, str | os.PathLike) and os.fspath(value):
        return str(os.fspath(value))
    raise ValueError(f"{OURS}{name} must be True, False or a directory, and is {value!r}")


def number(name: str, chosen: int) -> int:
    """The number, 1 or more, that `dask_gpuselect.<name>` is set to; `chosen` if it is not set."""
    return _number(f"{OURS}{name}", _value(name, chosen))


def chunk_bytes() -> int:
    """How large chunks are that dask makes: its own setting."""
    value = config.get("array.chunk-size", None)
    return _bytes(value) or int(parse_bytes(CHUNK))


def shuffles_to_disk() -> bool:
    """Return whether workers keep on disk what they move between them: dask's own setting."""
    return bool(config.get("distributed.p2p.storage.disk", True))


def n_workers() -> int:
    """How many threads dask may start: its own setting, or the number of CPUs."""
    value = config.get("num_workers", None)
    return _number("num_workers", value) if value else CPU_COUNT


def _number(name: str, value: Any) -> int:
    found = integer(value)
    if found is None or found < 1:
        raise ValueError(f"{name} must be 1 or more, and is {value!r}")
    return found


def integer(value: Any) -> int | None:
    """A whole number, also as the string that an environment variable is; None if it is none."""
    if isinstance(value, bool):
        return None
    try:
        return int(value) if isinstance(value, str) else operator.index(value)
    except (TypeError, ValueError):
        return None
