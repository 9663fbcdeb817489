"""Names of dask that are not public, which `source`, `graphs` and `expressions` use: one row each,
so that a release of dask that changes one is told by its name."""

from __future__ import annotations

from collections.abc import Callable
from itertools import starmap
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import dask.array as da
import distributed
import numpy as np
import pytest
from dask._task_spec import Alias, DataNode, Task, TaskRef
from dask.highlevelgraph import MaterializedLayer
from dask.layers import ArrayBlockwiseDep

from dask_gpuselect.engine.graphs import worker_memory, workers_here
from dask_gpuselect.engine.source import (
    GETTERS,
    SLICES,
    Source,
    Step,
    _waiting,
    calls,
    is_reduction,
    nested,
    rebuilt,
    steps_of,
)

TASK = Task("b", np.add, TaskRef("a"), 2, _data_producer=True)
X = da.core.from_array(np.arange(6.0), chunks=2)
OF_A_FILE = da.core.from_array(SimpleNamespace(shape=(6,), dtype=X.dtype, ndim=1), chunks=2)
READER = OF_A_FILE.dask.layers[OF_A_FILE.name].task


BLOCKWISE = (X + 1).dask.layers[(X + 1).name]
MADE_ONE = Task.fuse(Task("a", Step("reduce", np.sum), [1, 2]), Task("b", abs, TaskRef("a")))


def layers_of(x: Any) -> dict[str, Any]:
    return dict(x.dask.layers)


NAMES: dict[str, Callable[[], bool]] = {
    "Task.func, .args": lambda: TASK.func is np.add and TASK.args[1] == 2,
    "Task.dependencies": lambda: TASK.dependencies == {"a"},
    "Task.block_fusion": lambda: TASK.block_fusion is False,
    "Task.data_producer": lambda: TASK.data_producer is True,
    "Task.substitute": lambda: TASK.substitute({"a": "c"}, key="d").dependencies == {"c"},
    "a task in a task": lambda: TASK.substitute({"a": DataNode("a", 1)}, key="b")() == 3,
    "Alias.target": lambda: Alias("b", "a").target == "a",
    "DataNode.value": lambda: DataNode("a", 1).value == 1,
    "TaskRef.key": lambda: TaskRef("a").key == "a",
    "Blockwise": lambda: (
        vars(rebuilt(BLOCKWISE, output="c"))
        == vars(BLOCKWISE) | {"output": "c", "collection_annotations": None}
    ),
    "a task that waits": lambda: (
        _waiting(TASK, "c", TaskRef("turn")).data_producer
        and _waiting(TASK, "c", TaskRef("turn"))({"a": 1, "turn": 0}) == 3
    ),
    "a task in a task reads": lambda: (
        nested(Task("c", abs, TaskRef("b")), {"b": TASK}, "c").data_producer
    ),
    "ArrayBlockwiseDep.chunks": lambda: ArrayBlockwiseDep(X.chunks).chunks == X.chunks,
    "collection_annotations": lambda: layers_of(X)[X.name].collection_annotations["shape"] == (6,),
    "names of reductions": lambda: any(starmap(is_reduction, layers_of(X.mean()).items())),
    "readers that wait": lambda: calls(_waiting(READER, "c", TaskRef("turn")), GETTERS),
    "names of getters": lambda: calls(READER, GETTERS),
    "names of slices": lambda: calls(next(iter(layers_of(X[1:])[X[1:].name].values())), SLICES),
    "tasks made one": lambda: [step.does for step in steps_of(MADE_ONE)] == ["", "reduce"],
    "materialized chunks": lambda: isinstance(layers_of(X)[X.name], MaterializedLayer),
    "chunks in memory": lambda: Source.of(X).is_in_memory,
}


@pytest.mark.parametrize("name", NAMES)
def test_dask_has_the_name(name: str) -> None:
    assert NAMES[name]()


def test_a_worker_without_a_word_has_the_memory_of_the_machine(cluster_here: Any) -> None:
    def asked(*, forget: bool) -> tuple[float, float]:
        worker = SimpleNamespace if forget else distributed.get_worker
        with patch.object(distributed, "get_worker", worker):
            return worker_memory(), distributed.system.MEMORY_LIMIT

    limit, machine = cluster_here.submit(asked, forget=False).result()
    assert 0 < limit <= machine
    assert cluster_here.submit(asked, forget=True).result() == (machine, machine)
    assert worker_memory() == np.inf


def test_a_worker_counts_the_workers_and_its_threads(cluster: Any) -> None:
    (threads,) = set(cluster.nthreads().values())
    assert cluster.submit(workers_here, pure=False).result() == (2, 2, threads)
