"""Values of dask's config: each is checked, and an error says which are allowed."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from dask.system import CPU_COUNT
from dask.utils import parse_bytes

from dask_gpuselect import median, sort, staging
from dask_gpuselect.engine import keeping, settings
from dask_gpuselect.neighbors import kneighbors
from dask_gpuselect.neighbors.search import DISTANCE_LIMIT, distance_limit
from dask_gpuselect.robust import mad
from tests.data import normal
from tests.processes import python


def data() -> da.Array:
    return da.from_array(normal(6000).reshape(600, 10), chunks=(7, 10))


def along_a_disk() -> Any:
    with dask.config.set({"dask_gpuselect.column-limit": 6000, "scheduler": "threads"}):
        return median(data() + 1, axis=0)


# By the name of a setting: what reads it.
READERS: dict[str, Callable[[], Any]] = {
    "column-limit": lambda: median(data(), axis=0),
    "root-limit": lambda: median(data()),
    "spill-limit": lambda: sort(data()[:, 0] + 1),
    "cache-limit": lambda: median(data() + 1),
    "scratch-limit": lambda: along_a_disk(),
    "distance-limit": lambda: kneighbors(data().rechunk({1: -1}), np.ones((1, 10)), 1),
    "staging-pool": lambda: staging._settings(),
}


@pytest.mark.parametrize("old", settings.RENAMED)
def test_former_names_still_work(old: str) -> None:
    """A program gets dask's warning, and the value has the name of today."""
    new = settings.RENAMED[old]
    with pytest.warns(FutureWarning, match=f"'{old}' has been deprecated; please use '{new}'"):
        given = dask.config.set({old: 7})
    with given:
        assert dask.config.get(new) == 7
    assert dask.config.get(new) == settings.DEFAULTS[new.partition(".")[2]]


def test_former_names_in_the_environment_still_work(tmp_path: Path) -> None:
    (tmp_path / "some.yaml").write_text("dask_gpuselect:\n  scratch-loads: 5\n")
    code = "import dask, dask_gpuselect\n"
    code += "value = dask.config.get('dask_gpuselect')\n"
    code += "print(value['cache-limit'], value['scratch-reads'], len(value))"
    environment = {"DASK_DASK_GPUSELECT__KEEP_LIMIT": "3", "DASK_CONFIG": str(tmp_path)}
    printed = python("-W", "error", "-c", code, **environment)
    assert printed.split() == ["3", "5", str(len(settings.DEFAULTS))]


NO_SIZES: dict[str, list[Any]] = {
    "0 or more bytes": [-1, "-1 MB"],
    "a number of bytes, or a string such as '500 MB'": [
        None, True, "much", "", [1], float("nan"), float("inf")
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", READERS)
def test_sizes_are_known_by_many_names(name: str) -> None:
    for value in ("1 GiB", np.int64(10**9)):
        with dask.config.set({f"dask_gpuselect.{name}": value}):
            READERS[name]()


REFUSED: dict[str, tuple[str, list[Any], Callable[[], Any]]] = {
    "staging-threads must be an integer of at least 1, not ": (
        "dask_gpuselect.staging-threads",
        [0, -3, 2.5, "many", True],
        staging._settings,
    ),
    "num_workers must be an integer of at least 1, not ": (
        "num_workers",
        ["two", -1, 2.5],
        lambda: mad(np.ones(1 << 23)),
    ),
    "split_every must be an integer of at least 2, or a dict of": (
        "split_every",
        [-2, 2.5, "two", {0: 2.5}, [2], True, {0: None}],
        lambda: median(data()),
    ),
    "cache-spill must be True, False or a directory, not ": (
        "dask_gpuselect.cache-spill",
        [3, "", ["a"]],
        lambda: median(data() + 1),
    ),
    "dask_gpuselect must be a mapping of settings, such as ": (
        "dask_gpuselect",
        ["5 GB"],
        lambda: median(data()),
    ),
    **{
        f"^dask_gpuselect.{name} must be {sizes}, not ": (
            f"dask_gpuselect.{name}",
            [each for each in values if each is not None or settings.DEFAULTS[name] is not None],
            read,
        )
        for name, read in READERS.items()
        for sizes, values in NO_SIZES.items()
    },
}  # fmt: skip
"""By the message: a setting, values that it does not take, and what reads it."""


@pytest.mark.parametrize("message", REFUSED)
def test_values_that_a_setting_does_not_take(message: str) -> None:
    name, values, read = REFUSED[message]
    for value in values:
        with dask.config.set({name: value}), pytest.raises(ValueError, match=message):
            read()


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("no-such", "there are column-limit, cache-limit, "),
        ("scratch-dir", "did you mean dask_gpuselect.scratch-directory?"),
        ("colum_limit", "did you mean dask_gpuselect.column-limit?"),
    ],
)
def test_a_setting_that_does_not_exist_warns(name: str, advice: str) -> None:
    message = f"dask's config has dask_gpuselect.{name}, which is no setting: {advice}"
    with (
        dask.config.set({f"dask_gpuselect.{name}": 5}),
        pytest.warns(UserWarning, match="^" + re.escape(message)),
    ):
        answer = median(data())
    assert answer.compute() == np.median(normal(6000))


@pytest.mark.parametrize(("name", "value"), [("scratch-reads", 0), ("staging-pool", "much")])
def test_a_call_checks_settings_that_it_does_not_need(name: str, value: Any) -> None:
    for _ in range(2):  # no mistake passes because it has been told
        with (
            dask.config.set({f"dask_gpuselect.{name}": value}),
            pytest.raises(ValueError, match=f"dask_gpuselect.{name} must be "),
        ):
            median(data())
    median(data())


def test_the_table_has_every_setting() -> None:
    assert settings.SETTINGS.keys() == settings.DEFAULTS.keys()


def test_what_the_package_chooses() -> None:
    """Where the default is None: by the kind of the chunks, or by the number of CPUs."""
    names = [name for name, value in settings.DEFAULTS.items() if value is None]
    others = {"distance-limit", "scratch-limit", "scratch-reads", "staging-threads"}
    assert set(names) == {"cache-limit", *others}
    with dask.config.set({f"dask_gpuselect.{name}": None for name in names}):
        assert keeping.limits().n_bytes == keeping.CACHED == 1 << 30
        assert distance_limit(np.empty(0)) == parse_bytes(DISTANCE_LIMIT)
        assert staging._settings()[1] == min(staging.MOST_THREADS, CPU_COUNT)


def test_dask_knows_the_defaults() -> None:
    """Of a fresh process, and again after `refresh`; what the user sets comes first."""
    code = (
        "import dask, dask_gpuselect\n"
        "from dask_gpuselect.engine import settings\n"
        "dask.config.set({'dask_gpuselect.root-limit': 5})\n"
        "for i in range(2):\n"
        "    get = lambda name: dask.config.get(f'dask_gpuselect.{name}')\n"
        "    assert all(get(name) == settings.DEFAULTS[name]\n"
        "        for name in settings.DEFAULTS if name not in ('column-limit', 'root-limit'))\n"
        "    assert get('column-limit') == 7 == settings.n_bytes('column-limit')\n"
        "    assert get('root-limit') == [5, '1 GiB'][i]\n"
        "    dask.config.refresh()\n"
    )
    python("-c", code, DASK_DASK_GPUSELECT__COLUMN_LIMIT="7")


def test_an_empty_config_does_no_harm() -> None:
    with dask.config.set({"dask_gpuselect": {}}):
        assert settings.n_bytes("column-limit") == 1 << 30
        assert settings.directory("cache-spill") is None


def test_a_setting_needs_a_default() -> None:
    with pytest.raises(KeyError, match="no-such-limit"):
        settings.n_bytes("no-such-limit", "1 GiB")


def test_every_setting_is_read_in_one_way() -> None:
    sources = {path: path.read_text() for path in Path(settings.__file__).parents[1].rglob("*.py")}
    sizes = {name for text in sources.values() for name in re.findall(r'n_bytes\("(.*?)"', text)}
    assert sizes == set(READERS)
    readers = {path.name for path, text in sources.items() if "config.get(" in text}
    assert readers == {"settings.py", "graphs.py", "spill.py"}  # the last two dask's own settings
