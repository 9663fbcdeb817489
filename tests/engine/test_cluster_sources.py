"""Every public function over every kind of source that dask makes on a cluster, by its defaults.

A source is an array made in one of the ways that users make them. Masks, weights and labels are
made in the same way as the data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray

import dask_gpuselect as dg
import dask_gpuselect.dataframe  # noqa: F401 -- registers the accessors
from dask_gpuselect import neighbors
from dask_gpuselect.arrays import to_host
from tests.backends import CUPY
from tests.data import hashed
from tests.engine.test_cluster import Place, started
from tests.matrix.cases import Case, ask
from tests.matrix.laws import same, same_computed
from tests.matrix.questions import ONE_AXIS, QUESTIONS

SHAPE = (48, 24)
ROWS, COLUMNS = (6, 24), (48, 1)  # from one to the other dask rechunks by a peer-to-peer shuffle

Values = NDArray[Any]
Kind = Callable[[Values, Any, Path], da.Array]

pytestmark = pytest.mark.legacy  # dask chooses how to shuffle, and layers are looked at


@pytest.fixture(autouse=True)
def dasks_own_threshold() -> Iterator[None]:
    """Let dask rechunk as by default: the package dask-array raises its threshold when it is
    imported."""
    with dask.config.set({"array.rechunk.threshold": 4}):
        yield


# --- Sources --------------------------------------------------------------------------------------


def held(a: Values, client: Any, folder: Path) -> da.Array:
    return da.from_array(a, chunks=ROWS)


def made(a: Values, client: Any, folder: Path) -> da.Array:
    return held(a, client, folder).map_blocks(np.copy)


def rechunked(a: Values, client: Any, folder: Path) -> da.Array:
    x = da.from_array(a, chunks=COLUMNS).rechunk(ROWS)
    assert is_peer_to_peer(x)
    return x


def rechunked_in_part(a: Values, client: Any, folder: Path) -> da.Array:
    with dask.config.set({"array.rechunk.method": "p2p"}):
        x = da.from_array(a, chunks=(24, 1)).rechunk((4, 12))
    assert is_peer_to_peer(x)
    return x


def rechunked_in_memory(a: Values, client: Any, folder: Path) -> da.Array:
    with dask.config.set({"distributed.p2p.storage.disk": False}):
        return rechunked(a, client, folder)


def overlapped(a: Values, client: Any, folder: Path) -> da.Array:
    x = da.from_array(a, chunks=(12, 12))
    return da.map_overlap(np.copy, x, depth=2, boundary="reflect", meta=x._meta)


def in_quarters(a: Values, part: Callable[[Any], Any]) -> da.Array:
    """Quarters of an array, each what is made of a slice of it."""
    parts = [part(slice(i, i + 12)) for i in range(0, 48, 12)]
    return da.concatenate([da.from_delayed(each, (12, 24), a.dtype) for each in parts])


def delayed(a: Values, client: Any, folder: Path) -> da.Array:
    whole = dask.delayed(np.copy)(a)
    return in_quarters(a, lambda i: whole[i])


def in_a_store(a: Values, client: Any, folder: Path) -> da.Array:
    zarr = pytest.importorskip("zarr")
    path = str(folder / f"{dask.base.tokenize(a)}.zarr")
    zarr.save(path, a)
    return da.from_zarr(path, chunks=ROWS)


def less_their_means(a: Values, client: Any, folder: Path) -> da.Array:
    x = rechunked(a, client, folder)
    return abs(x - x.mean(axis=0)) if a.dtype.kind == "f" else x


def rows_of_a_frame(a: Values, client: Any, folder: Path) -> da.Array:
    frame = pd.DataFrame(a, columns=[f"c{i}" for i in range(24)]).assign(row=np.arange(48)[::-1])
    table = dd.from_pandas(frame, npartitions=6).set_index("row", divisions=[0, 12, 24, 47])
    return table.to_dask_array(lengths=True)


KINDS: dict[str, Kind] = {
    "held": held,
    "made": made,
    "persisted": lambda *given: made(*given).persist(),
    "made of persisted": lambda *given: made(*given).persist().map_blocks(np.copy),
    "rechunked": rechunked,
    "made of rechunked": lambda *given: rechunked(*given).map_blocks(np.copy)[::-1],
    "rechunked twice": lambda *given: rechunked(*given).map_blocks(np.copy).rechunk(COLUMNS),
    "rechunked in part": rechunked_in_part,
    "rechunked in memory": rechunked_in_memory,
    "rechunked by tasks": lambda a, *_: da.from_array(a, chunks=COLUMNS).rechunk(
        ROWS, method="tasks"
    ),
    "overlapped": overlapped,
    "scattered": lambda a, client, _: in_quarters(a, lambda i: client.scatter(a[i])),
    "submitted": lambda a, client, _: in_quarters(a, lambda i: client.submit(np.copy, a[i])),
    "delayed": delayed,
    "in a store": in_a_store,
    "concatenated": lambda *given: da.concatenate([rechunked(*given)[:24], held(*given)[24:]]),
    "taken": lambda *given: held(*given)[np.argsort(hashed(np.arange(48)))],
    "less their means": less_their_means,
    "rows of a frame": rows_of_a_frame,
}


def is_peer_to_peer(x: da.Array) -> bool:
    return any(type(layer).__name__ == "P2PRechunkLayer" for layer in x.dask.layers.values())


# --- Questions ------------------------------------------------------------------------------------

DATA = (hashed(np.arange(48 * 24)).reshape(SHAPE) * 1000).round(1)
MASK = hashed(np.arange(48 * 24) + 5000).reshape(SHAPE) > 0.3
WEIGHTS = (hashed(np.arange(48 * 24) + 9000).reshape(SHAPE) * 5).round() + 1
LABELS = (hashed(np.arange(48 * 24) + 300).reshape(SHAPE) * 4).astype("i8")

Given = dict[str, Any]
Q = [0.1, 0.5, 0.77]


def cases_of(values: Given) -> Iterator[Case]:
    """Every question of the matrix, but for windows, of some slots, with companions in turn."""
    for number, question in enumerate(QUESTIONS.values()):
        companions = ["", *["weights"] * (len(question.measures) > 1)]
        companions += ["where"] * ("where" in question.missing)
        some = ("all", "first axis", "last axis", "groups, lazy labels")
        for slots in () if question.moves else filter(question.slots.__contains__, some):
            companions.append(companion := companions.pop(0))
            names = [companion] * bool(companion) + ["labels"] * ("groups" in slots)
            arguments = question.draw(np.random.default_rng(number), "f", companion == "weights")
            flat = np.ravel if question.shapes == ONE_AXIS else lambda a: a
            beside = {name: flat(values[name]) for name in names}
            row = {"question": question.name, "slots": slots, "home": "tasks"}
            yield Case(row, flat(values["data"]), (), arguments, beside)


OTHERS: dict[str, Callable[[da.Array], Any]] = {
    "99 quantiles": lambda x: dg.quantile(x, np.linspace(0, 1, 99)),
    "less its median": lambda x: x - dg.median(x),
    "deviation": lambda x: dg.median(abs(x - dg.median(x))),
    "neighbors": lambda x: neighbors.kneighbors(x.rechunk({1: -1}, method="tasks"), DATA[:3], 2),
}


def given(kind: Kind, client: Any, folder: Path) -> Given:
    arrays = {"data": DATA, "where": MASK, "weights": WEIGHTS, "labels": LABELS}
    return {name: kind(array, client, folder) for name, array in arrays.items()}


def check_all(x: Given) -> None:
    """Ask everything on the cluster: answers are those of definitions, or of one chunk."""
    values = {name: to_host(each) for name, each in zip(x, dask.compute(*x.values()), strict=True)}
    about = [(case, lazy) for case, lazy in zip(cases_of(values), cases_of(x), strict=True)]
    answers = [ask(lazy, lazy.values, lazy.beside) for _, lazy in about]
    # All at once: dask may lose a shuffle that is asked for again while it is being forgotten.
    results = dask.compute(*answers, *(other(x["data"]) for other in OTHERS.values()))
    for (case, _), each in zip(about, results, strict=False):
        same(each, case.expected(), f"{case.row}, {case.asked}")
    whole = da.from_array(values["data"], chunks=-1)
    for (name, other), each in zip(OTHERS.items(), results[len(about) :], strict=True):
        same_computed(each, other(whole), name)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_every_question(kind: str, cluster: Any, tmp_path: Path) -> None:
    check_all(given(KINDS[kind], cluster, tmp_path))


@pytest.fixture(scope="module")
def gpu_cluster() -> Iterator[Any]:
    with started(Place(CUPY, 1)) as client:
        yield client


@pytest.mark.gpu
@pytest.mark.device
@pytest.mark.parametrize("kind", KINDS)
def test_every_question_about_chunks_on_a_device(
    kind: str, gpu_cluster: Any, tmp_path: Path
) -> None:
    x = given(KINDS[kind], gpu_cluster, tmp_path)
    on_device = {name: CUPY.mapped(array) for name, array in x.items()}
    # A peer-to-peer shuffle takes NumPy chunks alone, and `ravel` rechunks columns.
    with dask.config.set({"array.rechunk.method": "tasks"}):
        check_all(on_device)


# --- Tables ---------------------------------------------------------------------------------------

TABLE = pd.DataFrame({"k": np.arange(400) % 20, "v": hashed(np.arange(400)), "t": np.arange(400)})
PARTS = 8

TableKind = Callable[[Any, Path], Any]


def frame() -> Any:
    return dd.from_pandas(TABLE, npartitions=PARTS)


def merged(client: Any, folder: Path) -> Any:
    others = pd.DataFrame({"k": range(20), "w": range(20)})
    return frame().merge(dd.from_pandas(others, npartitions=4), on="k")


def shuffled_and_not(client: Any, folder: Path) -> Any:
    whole = frame()
    parts = [whole[whole.t < 100].shuffle("k"), whole[(whole.t >= 100) & (whole.t < 300)]]
    return dd.concat([*parts, whole[whole.t >= 300].shuffle("t")])


def shuffled_less_its_mean(client: Any, folder: Path) -> Any:
    table = frame().shuffle("k")
    return table.assign(v=table.v - table.v.mean() * 0)


def in_eighths(part: Callable[[slice], Any]) -> Any:
    parts = [part(slice(i, i + 50)) for i in range(0, 400, 50)]
    return dd.from_delayed(parts, meta=TABLE.iloc[:0])


def of_files(client: Any, folder: Path) -> Any:
    for i in range(0, 400, 50):
        TABLE.iloc[i : i + 50].to_parquet(folder / f"{i}.parquet")
    return dd.read_parquet(f"{folder}/*.parquet")


TABLES: dict[str, TableKind] = {
    "in partitions": lambda *_: frame(),
    "shuffled": lambda *_: frame().shuffle("k"),
    "merged": merged,
    "merged with a frame": lambda *_: frame().merge(
        pd.DataFrame({"k": range(20), "w": range(20)}), on="k"
    ),
    "by index": lambda *_: frame().set_index("t"),
    "in order": lambda *_: frame().sort_values("v"),
    "without duplicates": lambda *_: frame().drop_duplicates(subset=["t"], split_out=4),
    "shuffled and not": shuffled_and_not,
    "shuffled twice": lambda *_: frame().shuffle("k").shuffle("t").assign(v=lambda x: x.v * 1.0),
    "shuffled and persisted": lambda *_: frame().shuffle("k").persist(),
    "shuffled less its mean": shuffled_less_its_mean,
    "of delayed": lambda *_: in_eighths(lambda i: dask.delayed(TABLE.iloc)[i]),
    "of futures": lambda client, _: in_eighths(lambda i: client.submit(TABLE.iloc.__getitem__, i)),
    "of rows nearby": lambda *_: frame().assign(v=lambda x: x.v.rolling(1).max()),
    "of files": of_files,
    "one behind the other": lambda *_: frame().assign(v=lambda x: x.v + 0 * x.v.cumsum()),
    "in fewer partitions": lambda *_: frame().repartition(npartitions=2),
}

TABLE_QUESTIONS: dict[str, Callable[[Any], Any]] = {
    "median": lambda x: x.v.exact.median(),
    "quantile": lambda x: x.v.exact.quantile(Q),
    "box": lambda x: x.v.exact.describe_boxplot(whis=0.3),
    "describe": lambda x: x.v.exact.describe(),
    "quantiles of columns": lambda x: x[["v", "k"]].exact.quantile(Q),
    "median of groups": lambda x: x.exact.groupby("k")["v"].median(),
    "quantiles of groups": lambda x: x.exact.groupby("k")["v"].quantile(Q),
}


def table_answers(table: Any) -> dict[str, Any]:
    return {name: ask(table) for name, ask in TABLE_QUESTIONS.items()}


def as_values(result: Any) -> Any:
    """Return what was computed of a table, as something to compare: groups by their keys."""
    if isinstance(result, pd.Series | pd.DataFrame):
        ordered = result.sort_index()
        return [np.asarray(ordered.index.to_list()), ordered.to_numpy(dtype=float)]
    return repr(result.to_dict()) if isinstance(result, dg.Boxplot) else result


@pytest.mark.slow
@pytest.mark.parametrize("kind", TABLES)
def test_every_question_about_a_table(kind: str, cluster: Any, tmp_path: Path) -> None:
    answers = table_answers(TABLES[kind](cluster, tmp_path))
    results = {name: answer.compute() for name, answer in answers.items()}
    for name, right in table_answers(dd.from_pandas(TABLE, npartitions=1)).items():
        expected = as_values(right.compute(scheduler="sync"))
        np.testing.assert_equal(as_values(results[name]), expected, name)
    assert results["median"] == TABLE.v.median()
    pd.testing.assert_series_equal(
        results["median of groups"].sort_index(), TABLE.groupby("k").v.median()
    )
