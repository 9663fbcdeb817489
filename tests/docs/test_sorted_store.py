"""The example that sorts a store into another: it runs within its limit, and sees mistakes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import zarr

from tests.docs.programs import EXAMPLES, example
from tests.processes import python

pytestmark = pytest.mark.any_dask  # of an example


@pytest.mark.slow
def test_a_store_is_sorted(tmp_path: Path) -> None:
    """In a process of its own, whose memory is limited for good."""
    store = tmp_path / "made.zarr"
    command = [str(EXAMPLES / "sorted_store.py"), "--store", str(store), "--keep"]
    command += ["--gigabytes", "0.002", "--chunk-mb", "0.3", "--distribution", "integers"]
    printed = python(*command)
    assert "reads per chunk    3" in printed
    assert "the sorted store is the first one in ascending order" in printed
    made, result = (
        zarr.open_array(tmp_path / name, mode="r") for name in ("made.zarr", "sorted-made.zarr")
    )
    assert result.chunks == made.chunks
    np.testing.assert_array_equal(result[:], np.sort(made[:]))


def test_a_mistake_is_seen() -> None:
    program = example("sorted_store")
    values = np.random.default_rng(0).normal(size=100)
    ordered = np.sort(values)
    expected = program.summary(values)

    def shown(actual: np.ndarray) -> tuple[bool, bool]:
        parts = [program.summary(part) for part in np.array_split(actual, 4)]
        whole = program.joined(parts)
        return whole.ascends, whole[:2] == expected[:2]

    assert shown(ordered) == (True, True)
    assert shown(values) == (False, True)
    assert shown(np.concatenate([ordered[25:50], ordered[:25], ordered[50:]])) == (False, True)
    assert shown(np.append(ordered[0], ordered[:-1])) == (True, False)
    assert shown(ordered[:-1]) == (True, False)


def test_a_limit_that_is_too_low_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    program = example("sorted_store")

    def refuse(path: Path) -> None:
        raise MemoryError

    for name in ("limit_memory", "prepare", "forget"):
        monkeypatch.setattr(program, name, lambda *_: False)
    monkeypatch.setattr(program, "summary_of", refuse)
    assert program.main(["--store", str(tmp_path / "made.zarr"), "--limit-gb", "0.5"]) == 1
    assert "0.5 GB of memory are not enough: raise --limit-gb" in capsys.readouterr().err
