"""Machine code of networks of comparisons, made by LLVM.

A network is a list of minima and maxima without branches. Numba would take seconds to compile a
function of Python for each network; LLVM alone makes its code in some hundredths of a second. The
code goes along rows by one vector of windows at a time, and reads and writes elements as they are.
A value that only one stage of a network needs stays in registers: it writes a fifth to a third of
what it would if each comparison were a loop.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dask_gpuselect.kernels.compiling import called_by_kernels, instructions, numba, ready

if TYPE_CHECKING:
    from dask_gpuselect.kernels.cpu.window_networks import Network
    from dask_gpuselect.maths.window_networks import Node, Step

VECTOR = 64  # bytes that are compared together; LLVM divides them where registers are smaller
ROW = 4096  # bytes of windows in a row that are answered together
N_ARGUMENTS = 7  # of code; see `Code`


class Code(NamedTuple):
    """The code of a network for elements of a dtype.

    Its arguments are integers: the address of a table that has the addresses of the rows of the
    first window of each row of windows, the number of rows and of windows in each, the address of
    scratch, that of the answers, and the bytes between those of two rows and of two ranks.

    Parameters
    ----------
    run : callable
        The code for callers in Python. It lets other threads run.
    address : int
        Where the code lies.
    n_scratch : int
        Bytes of scratch.
    n_beyond : int
        Bytes behind the first element of a row's last window that it may read.
    owner : object
        What keeps the code.
    """

    run: Callable[..., None]
    address: int
    n_scratch: int
    n_beyond: int
    owner: Any


def code_of(made: Network, ranks: tuple[int, ...], dtype: np.dtype[Any]) -> Code:
    """Return the code that finds elements of some ranks, none of which is missing.

    Zeros are positive.
    """
    key = ("network", *made.key, ranks, dtype)
    build: Any = partial(_compiled, made, ranks, dtype)
    code: Code = ready(key, build)  # type: ignore[assignment]
    return code


def _compiled(made: Network, ranks: tuple[int, ...], dtype: np.dtype[Any]) -> Code:
    """Compile a network."""
    numba()
    from llvmlite import binding

    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    target = binding.Target.from_default_triple()
    features = binding.get_host_cpu_features().flatten()
    machine = target.create_target_machine(cpu=binding.get_host_cpu_name(), features=features)
    n_beyond = VECTOR + 2 * made.reach * dtype.itemsize
    width = -(-(ROW + VECTOR + n_beyond) // VECTOR) * VECTOR
    module = binding.parse_assembly(str(_module(made, ranks, dtype, width)))
    owner = binding.create_mcjit_compiler(module, machine)
    owner.finalize_object()
    address = owner.get_function_address("run")
    n_scratch = (made.n_rows - made.n_window_rows) * width + (1 + len(ranks)) * VECTOR
    run = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * N_ARGUMENTS)(address)
    return Code(run, address, n_scratch, n_beyond, owner)


def _module(made: Network, ranks: tuple[int, ...], dtype: np.dtype[Any], width: int) -> Any:
    """Write the function `run`: for each run of windows in a row, a loop for each stage.

    Less than a vector of answers at the end of a run is copied, so that nothing behind is written.
    """
    from llvmlite import ir

    module, size = ir.Module(), ir.IntType(64)
    pointer = ir.IntType(8).as_pointer()
    copy = module.declare_intrinsic("llvm.memcpy", [pointer, pointer, size])
    run = ir.Function(module, ir.FunctionType(ir.VoidType(), [size] * N_ARGUMENTS), "run")
    builder = ir.IRBuilder(run.append_basic_block())
    table, n_rows, length, room, out, pitch, gap = run.args
    scratch = builder.and_(builder.add(room, size(VECTOR - 1)), size(-VECTOR))
    tails = builder.add(scratch, size((made.n_rows - made.n_window_rows) * width))
    n_bytes = builder.mul(length, size(dtype.itemsize))

    with _loop(builder, n_rows, 1) as row, _loop(builder, n_bytes, ROW) as start:
        left = builder.sub(n_bytes, start)
        stop = builder.select(builder.icmp_unsigned("<", left, size(ROW)), left, size(ROW))
        first = builder.mul(row, size(8 * made.n_window_rows))
        rows = []
        for i in range(made.n_window_rows):
            entry = builder.add(builder.add(table, first), size(8 * i))
            address = builder.load(builder.inttoptr(entry, size.as_pointer()))
            rows.append(builder.add(address, start))
        n_others = made.n_rows - made.n_window_rows
        rows += [builder.add(scratch, size(i * width)) for i in range(n_others)]
        vectors = _Vectors(builder, made, dtype, rows)
        end = builder.add(stop, size(made.reach * dtype.itemsize))
        for stage in made.stages[:-1]:
            with _loop(builder, end, VECTOR) as place:
                vectors.compare(stage, place)
        first = builder.add(builder.add(out, builder.mul(row, pitch)), start)
        ends = []
        for i in range(len(ranks)):
            answers = builder.add(first, builder.mul(gap, size(i)))
            ends.append((answers, builder.add(tails, size(i * VECTOR))))
        with _loop(builder, stop, VECTOR) as place:
            known = vectors.compare(made.stages[-1], place, is_last=True)
            is_whole = builder.icmp_unsigned("<=", builder.add(place, size(VECTOR)), stop)
            for rank, (answers, tail) in zip(ranks, ends, strict=True):
                node = made.answers[rank]
                value = known[node] if node in known else vectors.load(node, place)
                to = builder.select(is_whole, builder.add(answers, place), tail)
                vectors.store(vectors.left(value), to)
        rest = builder.and_(stop, size(VECTOR - 1))
        for answers, tail in ends:
            behind = builder.sub(builder.add(answers, stop), rest)
            given = (builder.inttoptr(each, pointer) for each in (behind, tail))
            builder.call(copy, [*given, rest, ir.IntType(1)(0)])
    builder.ret_void()
    return module


@contextmanager
def _loop(builder: Any, stop: Any, step: int) -> Iterator[Any]:
    """Write a loop over numbers from 0 to before `stop`, which is not 0."""
    before, body = builder.block, builder.append_basic_block()
    builder.branch(body)
    builder.position_at_end(body)
    place = builder.phi(stop.type)
    place.add_incoming(stop.type(0), before)
    yield place
    following = builder.add(place, stop.type(step))
    place.add_incoming(following, builder.block)
    behind = builder.append_basic_block()
    builder.cbranch(builder.icmp_unsigned("<", following, stop), body, behind)
    builder.position_at_end(behind)


class _Vectors:
    """Vectors of elements at a place of each row, which a network compares.

    Vectors have no minimum of unsigned words of eight bytes: those are compared as signed ones.
    """

    def __init__(self, builder: Any, made: Network, dtype: np.dtype[Any], rows: list[Any]) -> None:
        from llvmlite import ir

        self.builder, self.made, self.dtype, self.rows = builder, made, dtype, rows
        own = ir.IntType(8 * dtype.itemsize)
        if dtype.kind == "f":
            own = ir.DoubleType() if dtype.itemsize == 8 else ir.FloatType()
        self.type = ir.VectorType(own, VECTOR // dtype.itemsize)
        is_wide = dtype.kind == "u" and dtype.itemsize == 8
        zero = 0.0 if dtype.kind == "f" else 1 << 63 if is_wide else 0
        self.sign = self.type([zero] * self.type.count)
        self.is_wide, is_signed = is_wide, dtype.kind == "i" or is_wide
        self.less = builder.icmp_signed if is_signed else builder.icmp_unsigned
        if dtype.kind == "f":
            self.less = builder.fcmp_ordered

    def address(self, node: tuple[int, int], place: Any) -> Any:
        number, moved = node
        start = self.builder.add(self.rows[self.made.rows[number]], place)
        return self.builder.add(start, place.type(moved * self.dtype.itemsize))

    def load(self, node: tuple[int, int], place: Any) -> Any:
        """Load what is compared of a value."""
        pointer = self.type.as_pointer()
        address = self.builder.inttoptr(self.address(node, place), pointer)
        vector = self.builder.load(address, align=1)
        is_flipped = self.is_wide and node[0] < self.made.n_window_rows
        return self.builder.xor(vector, self.sign) if is_flipped else vector

    def left(self, vector: Any) -> Any:
        """Turn what is compared into elements, whose zeros are positive."""
        if self.dtype.kind == "f":
            return self.builder.fadd(vector, self.sign)
        return self.builder.xor(vector, self.sign) if self.is_wide else vector

    def store(self, vector: Any, address: Any) -> None:
        pointer = self.builder.inttoptr(address, self.type.as_pointer())
        self.builder.store(vector, pointer, align=1)

    def compare(self, stage: list[Step], place: Any, *, is_last: bool = False) -> dict[Node, Any]:
        """Make the comparisons of a stage, and return the values that are known."""
        known: dict[Node, Any] = {}
        for *reads, low, high in stage:
            pair = [(reads[i], reads[i + 1]) for i in (0, 2)]
            for node in pair:
                if node not in known:
                    known[node] = self.load(node, place)
            a, b = (known[node] for node in pair)
            is_less = self.less("<", a, b)
            for number, values in ((low, (a, b)), (high, (b, a))):
                if number >= 0:
                    known[number, 0] = self.builder.select(is_less, *values)
                if number in self.made.rows and not is_last:
                    self.store(known[number, 0], self.address((number, 0), place))
        return known


def _write_call(builder: Any, address: Any, *given: Any) -> None:
    from llvmlite import ir

    run = ir.FunctionType(ir.VoidType(), [ir.IntType(64)] * N_ARGUMENTS).as_pointer()
    builder.call(builder.inttoptr(address, run), given)


_call = instructions("call_code", "void", ["int64"] * (1 + N_ARGUMENTS), _write_call)
"""Call the code at an address with its arguments."""


@called_by_kernels
def run_code(address: Any, rows: Any, length: Any, scratch: Any, found: Any) -> None:
    """Run the code of a network over one row of windows, whose rows are at some addresses.

    There is a row of `found` for each rank.
    """
    gap, room, out = found.shape[1] * found.itemsize, scratch.ctypes.data, found.ctypes.data
    _call(address, rows.ctypes.data, 1, length, room, out, 0, gap)
