"""From the text of CUDA kernels to machine code of this CPU, and running it; see ``cuda.hpp``."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
CACHE = Path(os.environ.get("EMULATED_CACHE", HERE.parents[2] / ".cache" / "emulated"))
ORDERS = {"forward": 0, "backward": 1, "random": 2}
FLAGS = ["-std=c++17", "-O1", "-fPIC", "-shared", "-w"]
# As on the device: no fused operations but those asked for, and words seen as anything.
FLAGS += ["-ffp-contract=off", "-fno-strict-aliasing", "-fno-exceptions", "-fno-rtti"]
# So that the static variables are a kernel's shared memory, and nothing else.
ALONE = ("-nostartfiles",)
# Kernels of windows are a single function of so many steps that -O1 takes up to 17 s, and -O0 3 s.
WINDOWS = (*ALONE, "-O0")


class CompileError(Exception):
    """What g++ says of a kernel."""


# --- Text -----------------------------------------------------------------------------------------

EXTERN_SHARED = re.compile(r"extern __shared__ (?:__align__\(\d+\) )?([\w ]+?) (\w+)\[\];")
EMPTY_LOOP = re.compile(r"(while \([^\n]*\)) \{\s*\}")
STATEMENT = re.compile(r"\basm\s*(?:volatile)?\s*\(")


def translated(text: str) -> str:
    """What g++ takes, given ``cuda.hpp``."""
    text = EXTERN_SHARED.sub(r"static \1* const \2 = (\1*)dynamic_shared;", text)
    # It waits for what another block does, so others have to run.
    text = EMPTY_LOOP.sub(r"\1 { spin(); }", text)
    return _without_asm(text.replace('extern "C" __global__', "static"))


def _without_asm(text: str) -> str:
    """Each asm statement as a call of `PTX` with its text, its outputs and its inputs."""
    out = []
    while match := STATEMENT.search(text):
        sections = _split(text[match.end() :], ":")
        length = sum(map(len, sections)) + len(sections) - 1
        operands = [o for section in sections[1:3] for o in _split(section + ")", ",") if o.strip()]
        values = [operand[operand.index("(") + 1 : operand.rindex(")")] for operand in operands]
        out += [text[: match.start()], f"PTX({', '.join([sections[0].strip(), *values])})"]
        text = text[match.end() + length + 1 :]
    return "".join([*out, text])


def _split(text: str, separator: str) -> list[str]:
    """What is between separators up to the closing parenthesis, not looking into strings or
    parentheses."""
    parts, depth, start, i = [], 0, 0, 0
    while True:
        c = text[i]
        if c == '"':
            i = re.compile(r'"(?:[^"\\]|\\.)*"').match(text, i).end()  # type: ignore[union-attr]
            continue
        if c == ")" and depth == 0:
            return [*parts, text[start:i]]
        depth += (c == "(") - (c == ")")
        if c == separator and depth == 0:
            parts.append(text[start:i])
            start = i + 1
        i += 1


# --- Compiling ------------------------------------------------------------------------------------


@functools.cache
def compiler() -> str:
    """The path of g++; an ImportError if there is none."""
    path = shutil.which(os.environ.get("CXX", "g++"))
    if path is None:
        raise ImportError("kernels on the CPU need g++: Debian and Ubuntu have it as g++")
    return path


@functools.cache
def _headers() -> str:
    return "".join((HERE / name).read_text() for name in ("runtime.hpp", "cuda.hpp"))


@functools.cache
def library(text: str, more: tuple[str, ...] = ()) -> Path:
    """A shared library from C++, compiled once for all processes."""
    sources = "\n".join([compiler(), *FLAGS, *more, _headers(), text])
    path = CACHE / f"{hashlib.sha256(sources.encode()).hexdigest()[:32]}.so"
    if path.exists():
        return path
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as folder:
        (Path(folder) / "kernel.cpp").write_text(text)
        command = [compiler(), *FLAGS, *more, f"-I{HERE}", "kernel.cpp", "-o", "kernel.so"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
        if done.returncode:
            raise CompileError(done.stderr)
        os.replace(Path(folder) / "kernel.so", path)
    return path


@functools.cache
def runtime() -> Any:
    path = library((HERE / "runtime.cpp").read_text(), ("-O2",))
    loaded = ctypes.CDLL(str(path), ctypes.RTLD_GLOBAL)
    loaded.launch.restype = ctypes.c_char_p
    return loaded


# --- Running --------------------------------------------------------------------------------------

_one_at_a_time = threading.Lock()  # what a block shares is static


class _Launch(ctypes.Structure):
    _fields_ = [
        ("kernel", ctypes.c_void_p),
        ("arguments", ctypes.c_void_p),
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared", ctypes.c_size_t),
        ("static_begin", ctypes.c_void_p),
        ("static_end", ctypes.c_void_p),
        ("is_cooperative", ctypes.c_int),
        ("order", ctypes.c_int),
        ("seed", ctypes.c_uint64),
    ]


class Compiled:
    """A kernel as machine code."""

    def __init__(self, text: str, name: str) -> None:
        lines = ('#include "cuda.hpp"', "namespace {", "#line 1", translated(text), "}")
        more = WINDOWS if name.startswith("window_") else ALONE
        path = library("\n".join([*lines, f"KERNEL({name})\n"]), more)
        runtime()
        self.name = name
        self.loaded = ctypes.CDLL(str(path))
        sizes, ends = (ctypes.c_int * 64)(), (ctypes.c_void_p * 2)()
        self.sizes = tuple(sizes[: self.loaded.sizes_of_parameters(sizes)])
        self.loaded.static_shared(ends)
        self.static = tuple(end or 0 for end in ends)

    def __call__(
        self,
        places: Sequence[int],
        grid: Sequence[int],
        block: Sequence[int],
        shared: int,
        cooperative: bool = False,
    ) -> None:
        """Run a grid with arguments at these addresses."""
        arguments = (ctypes.c_void_p * len(places))(*places)
        order, _, seed = os.environ.get("EMULATED_ORDER", "forward").partition(":")
        launch = _Launch(
            ctypes.cast(self.loaded.run_thread, ctypes.c_void_p),
            ctypes.addressof(arguments),
            (ctypes.c_uint * 3)(*grid),
            (ctypes.c_uint * 3)(*block),
            shared,
            *self.static,
            cooperative,
            ORDERS[order],
            int(seed or 0),
        )
        with _one_at_a_time:
            problem = runtime().launch(ctypes.byref(launch))
        if problem:
            raise RuntimeError(f"{self.name}: {problem.decode()}")
