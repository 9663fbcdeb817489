"""Machine code of networks of comparisons, made by LLVM.

A network is a list of minima and maxima without branches. Numba would take seconds to compile a
function of Python for each network; LLVM alone makes its code in some hundredths of a second. The
code goes along rows by one vector of windows at a time. A value that only one stage of a network
needs stays in registers: it writes a fifth to a third of what it would if each comparison were a
loop.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from dask_gpuselect.kernels.compiling import by_types, intrinsic, numba, ready, types

if TYPE_CHECKING:
    from dask_gpuselect.kernels.cpu.window_networks import Network

VECTOR = 64  # bytes that are compared together; LLVM divides them where registers are smaller


def address_of(made: Network, itemsize: int, width: int) -> int:
    """Return the address of the code of a network, for rows of `width` keys one behind the other.

    The code takes the address of the first row, and the bytes of each row that it goes along, a
    multiple of `VECTOR`.
    """
    key = ("network", *made.key, itemsize, width)
    return int(ready(key, partial(_compiled, made, itemsize, width))())


def _compiled(made: Network, itemsize: int, width: int) -> Callable[[], int]:
    """Compile a network; the result returns the address, which is valid as long as it exists."""
    numba()
    from llvmlite import binding

    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    target = binding.Target.from_default_triple()
    features = binding.get_host_cpu_features().flatten()
    machine = target.create_target_machine(cpu=binding.get_host_cpu_name(), features=features)
    module = binding.parse_assembly(str(_module(made, itemsize, width)))
    engine = binding.create_mcjit_compiler(module, machine)
    engine.finalize_object()
    return partial(engine.get_function_address, "run")


def _module(made: Network, itemsize: int, width: int) -> Any:
    """Write the function `run`: a loop for each stage of a network.

    Keys of eight bytes are compared as signed integers: vectors have no minimum of unsigned ones.
    """
    from llvmlite import ir

    module, byte, size = ir.Module(), ir.IntType(8), ir.IntType(64)
    vector = ir.VectorType(ir.IntType(8 * itemsize), VECTOR // itemsize)
    of_run = ir.FunctionType(ir.VoidType(), [byte.as_pointer(), size])
    run = ir.Function(module, of_run, "run")
    builder = ir.IRBuilder(run.append_basic_block())
    compare = builder.icmp_signed if itemsize == 8 else builder.icmp_unsigned
    for stage in made.stages:
        before, body, behind = builder.block, *(run.append_basic_block() for _ in range(2))
        builder.branch(body)
        builder.position_at_end(body)
        place = builder.phi(size)
        place.add_incoming(size(0), before)
        start = builder.gep(run.args[0], [place])
        known: dict[tuple[int, int], Any] = {}

        def at(
            number: int, moved: int, start: Any = start, builder: Any = builder
        ) -> Any:  # where a vector of a row lies
            offset = (made.rows[number] * width + moved) * itemsize
            return builder.bitcast(builder.gep(start, [size(offset)]), vector.as_pointer())

        for first, moved, second, also_moved, low, high in stage:
            pair = (first, moved), (second, also_moved)
            for node in pair:
                if node not in known:
                    known[node] = builder.load(at(*node), align=itemsize)
            a, b = (known[node] for node in pair)
            is_less = compare("<", a, b)
            for number, values in ((low, (a, b)), (high, (b, a))):
                if number >= 0:
                    known[number, 0] = builder.select(is_less, *values)
                if number in made.rows:
                    builder.store(known[number, 0], at(number, 0), align=itemsize)
        following = builder.add(place, size(VECTOR))
        place.add_incoming(following, body)
        builder.cbranch(builder.icmp_unsigned("<", following, run.args[1]), body, behind)
        builder.position_at_end(behind)
    builder.ret_void()
    return module


def _call(context: Any, address: Any, first: Any, n_bytes: Any) -> Any:
    """Call the code of a network."""
    del context, address, first, n_bytes

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        from llvmlite import ir

        address, first, n_bytes = arguments
        byte = ir.IntType(8).as_pointer()
        run = ir.FunctionType(ir.VoidType(), [byte, n_bytes.type]).as_pointer()
        builder.call(builder.inttoptr(address, run), [builder.inttoptr(first, byte), n_bytes])
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), generate


@by_types
def run_code(address: Any, first: Any, n_bytes: Any) -> Any:
    """Run the code of a network; see `address_of`."""
    call = intrinsic(_call)
    return lambda address, first, n_bytes: call(address, first, n_bytes)
