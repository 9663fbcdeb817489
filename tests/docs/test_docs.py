"""The documentation: its examples run, and what it names exists."""

from __future__ import annotations

import ast
import doctest
import importlib
import importlib.util
import logging
import re
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
import xarray as xr
import yaml

import dask_gpuselect
from dask_gpuselect import staging
from dask_gpuselect.engine import keeping, resident, settings
from dask_gpuselect.maths.ranks import METHODS
from dask_gpuselect.neighbors import search
from tests.backends import CUPY
from tests.data import normal
from tests.docs.programs import ROOT, module_of
from tests.docs.test_docstrings import MODULES

DOCS = ROOT / "docs"
PACKAGE = Path(dask_gpuselect.__file__).parent
PAGES = sorted(path.name for path in DOCS.glob("*.md"))
BLOCK = re.compile(r"^```([^\n]*)\n(.*?)^```$", flags=re.MULTILINE | re.DOTALL)


README = (ROOT / "README.md").read_text(encoding="utf-8")


def text_of(page: str) -> str:
    return (DOCS / page).read_text(encoding="utf-8")


def blocks(text: str, language: str = "python") -> list[str]:
    """The blocks of a text that are in a language."""
    return [code for each, code in BLOCK.findall(text) if each == language]


def sections(text: str, level: str = "##") -> dict[str, str]:
    """The parts of a text, by their headings, each of which is there once."""
    _, *parts = re.split(rf"^{level} (.*)$", text, flags=re.MULTILINE)
    assert len(set(parts[::2])) == len(parts) / 2
    return dict(zip(parts[::2], parts[1::2], strict=True))


def examples(page: str) -> doctest.DocTest:
    """Those in the blocks of a page, on the lines where they stand."""
    text = text_of(page)
    source = ["\n"] * (text.count("\n") + 1)
    for block in BLOCK.finditer(text):
        if block[1] == "pycon":
            first = text.count("\n", 0, block.start(2))
            lines = block[2].splitlines(keepends=True)
            source[first : first + len(lines)] = lines
    return doctest.DocTestParser().get_doctest("".join(source), {}, page, str(DOCS / page), 0)


@pytest.mark.few(1)
@pytest.mark.any_dask
@pytest.mark.parametrize(
    "page",
    [pytest.param(page, marks=[pytest.mark.gpu] if page == "gpu.md" else []) for page in PAGES],
)
def test_examples(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    assert runner.run(examples(page)).failed == 0


def test_examples_are_found() -> None:
    pages = "index.md", "quickstart.md", "which.md"
    assert min(len(examples(page).examples) for page in pages) > 3


# Pages with blocks that are no sessions, and what runs these.
RUN_ELSEWHERE = {
    "gallery.md": "test_gallery.py::test_the_snippet_runs",
    "gpu.md": "test_docs.py::test_examples_for_a_gpu",
    "out_of_core.md": "test_docs.py::test_the_logger_writes_what_the_page_says",
    "strategies.md": "test_docs.py::test_the_excerpt_is_of_a_strategy",
}


@pytest.mark.parametrize("page", PAGES)
def test_what_is_not_run_compiles(page: str) -> None:
    """Blocks that need a GPU or a store, and name nothing that the package lacks."""
    for language, block in BLOCK.findall(text_of(page)):
        assert language in ("python", "pycon") or language.startswith("{")
        if language == "python":
            assert page in RUN_ELSEWHERE, "a test has to run this block, or make it a pycon one"
            for node in ast.walk(ast.parse(block)):
                if isinstance(node, ast.ImportFrom) and node.module == "dask_gpuselect":
                    assert {alias.name for alias in node.names} <= set(dask_gpuselect.__all__)


def test_what_runs_blocks_exists() -> None:
    for page, test in RUN_ELSEWHERE.items():
        file, _, name = test.partition("::")
        assert name in names_in(file), page


def test_the_example_of_the_front_page(capsys: pytest.CaptureFixture[str]) -> None:
    """With 1e4 elements instead of 1e8."""
    (block,) = blocks(README)
    names: dict[str, Any] = {}
    exec(block.replace("10_000", "100").replace("1_000", "10"), names)
    values = names["x"].compute()
    assert dask.compute(names["q1"], names["q3"]) == tuple(np.quantile(values, [0.25, 0.75]))
    median, at_axis, n_high = capsys.readouterr().out.splitlines()
    assert float(median) == np.median(values)
    assert re.match(r"dask\.array<.* shape=\(100,\)", at_axis)
    assert 0 < int(n_high) < 200


def test_the_logger_writes_what_the_page_says(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if nobody has set up logging, which then shows warnings alone."""
    monkeypatch.setattr(logging.root, "handlers", [])
    logger = logging.getLogger("dask_gpuselect")
    (block,) = blocks(text_of("out_of_core.md"))
    try:
        exec(block, {})
        dask_gpuselect.median(da.from_array(normal(40_000), chunks=1_000) + 0).compute()
    finally:
        logger.setLevel(logging.NOTSET)
    output = re.sub(r"\d+", "N", capsys.readouterr().err)
    assert re.sub(r"\d+", "N", block.rpartition("# ")[2]) == output


def test_the_excerpt_is_of_a_strategy() -> None:
    """A part of a generator, which does not run by itself."""
    (excerpt,) = blocks(text_of("strategies.md"))
    texts = [
        re.sub(r"^ +", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
        for path in (PACKAGE / "strategies").glob("*.py")
    ]
    assert sum(excerpt in text for text in texts) == 1


# What the tables of "Coming from" have in their column "here", by the sections.
HERE: dict[str, Callable[[], dict[str, Any]]] = {
    "dask arrays": lambda: {"x": da.ones(20, chunks=5), "q": [0.5, 0.9]},
    "xarray": lambda: {
        "a": days().chunk(time=2),
        "clear": days() > 3,
        "w": xr.ones_like(days()),
        "q": 0.5,
    },
    "pandas and dask DataFrames": lambda: {"df": frame(), "s": frame().v, "keys": "k", "q": 0.5},
    "CuPy": lambda: {"a": CUPY.asarray(np.ones(5)), "x": da.ones(20, chunks=5), "q": 0.5},
}


def days() -> xr.DataArray:
    times = np.arange("2024-01-29", "2024-02-02", dtype="M8[D]")
    return xr.DataArray(np.arange(12.0).reshape(4, 3), {"time": times}, ("time", "x"))


def frame() -> Any:
    return dd.from_pandas(pd.DataFrame({"v": np.arange(6.0), "k": [0, 1] * 3}), npartitions=2)


@pytest.mark.any_dask
@pytest.mark.parametrize(
    "section",
    [pytest.param(name, marks=[pytest.mark.gpu] if name == "CuPy" else []) for name in HERE],
)
def test_what_to_type_here_runs(section: str) -> None:
    import dask_gpuselect.dataframe
    import dask_gpuselect.xarray  # noqa: F401

    result = rows(sections(text_of("coming_from.md"))[section])
    names = {name: getattr(dask_gpuselect, name) for name in dask_gpuselect.__all__}
    codes = [code for row in result for code in re.findall(r"`([^`]+\))`", row[2])]
    assert len(codes) >= len(result) - 3
    for code in codes:
        with dask_gpuselect.enable():  # for those that are called so
            answer = eval(code, {"np": np, **names, **HERE[section]()})
        assert dask.compute(answer)[0] is not None


class KeepAnswer(ast.NodeTransformer):
    """Gives the value of the one expression that stands by itself a name."""

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        return ast.copy_location(ast.Assign([ast.Name("answer", ast.Store())], node.value), node)


def answer_of(block: str) -> Any:
    """What the last line of a block gives, which has no other line without a name."""
    tree = ast.parse(block)
    assert sum(isinstance(node, ast.Expr) for node in ast.walk(tree)) == 1
    names: dict[str, Any] = {}
    exec(compile(ast.fix_missing_locations(KeepAnswer().visit(tree)), "gpu.md", "exec"), names)
    return names["answer"]


def gpu_blocks() -> list[Any]:
    """Those of the page about GPUs by their headings, with arrays a thousandth of the size."""
    return [
        pytest.param(
            re.sub(r"1 << (\d+)", r"1 << (\1 - 10)", block),
            id=heading,
            marks=[pytest.mark.device] if "dask_cuda" in block else [],
        )
        for heading, text in sections(text_of("gpu.md")).items()
        for block in blocks(text)
    ]


def test_examples_for_a_gpu_are_found() -> None:
    assert len(gpu_blocks()) >= 4
    assert answer_of("import decimal\nwith decimal.localcontext():\n    1 << (12 - 10)") == 4


@pytest.mark.gpu
@pytest.mark.filterwarnings(
    "ignore:Cannot get CPU affinity", "ignore:Port 8787 is already in use:UserWarning"
)
@pytest.mark.parametrize("block", gpu_blocks())
def test_examples_for_a_gpu(block: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All are of normal data, however much of it, and answered on the device."""
    monkeypatch.chdir(tmp_path)
    da.from_array(normal(1 << 18), chunks=1 << 15).to_zarr("data.zarr")
    actual = CUPY.to_numpy(answer_of(block))
    wanted = [-0.6745, 0, 0.6745] if np.ndim(actual) else 0
    np.testing.assert_allclose(actual, wanted, rtol=0, atol=0.02)


# --- What is named --------------------------------------------------------------------------------


def test_every_public_name_is_in_the_reference() -> None:
    """Each in one table, under the module that it is imported from."""
    _, *parts = re.split(r"^\.\. currentmodule:: (.*)$", text_of("api.rst"), flags=re.MULTILINE)
    named = [
        f"{module}.{name}"
        for module, text in zip(parts[::2], parts[1::2], strict=True)
        for name in re.findall(r"^   ([\w.]+)$", text, flags=re.MULTILINE)
    ]
    assert len(named) == len(set(named))
    public = {
        f"dask_gpuselect{part}.{name}"
        for part in MODULES
        for name in importlib.import_module(f"dask_gpuselect{part}").__all__
    }
    assert public | {"dask_gpuselect.accessor.Exact"} <= set(named)


def test_every_page_is_in_the_contents() -> None:
    lines = "".join(blocks(text_of("index.md"), "{toctree}")).splitlines()
    listed = [line for line in lines if re.fullmatch(r"\w+", line)]
    assert len(listed) == len(set(listed))
    assert set(listed) == {path.stem for path in (*DOCS.glob("*.md"), *DOCS.glob("*.rst"))} - {
        "index"
    }


@cache
def names_in(file: str) -> set[str]:
    (path,) = (ROOT / "tests").rglob(file)  # whose name is no other's
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("page", PAGES)
def test_every_test_that_is_named_exists(page: str) -> None:
    for file, name in re.findall(r"\{test\}`(\w+\.py)::(\w+)`", text_of(page)):
        assert name in names_in(file), f"{page} names {file}::{name}"


def rows(text: str) -> list[list[str]]:
    """Of the tables in a text, without their heads."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    rules = {i for i, row in enumerate(cells) if set("".join(row)) <= set("-:")}
    return [row for i, row in enumerate(cells) if i not in rules and i + 1 not in rules]


@pytest.mark.parametrize("page", ["comparison.md", "gpu.md", "guarantees.md"])
def test_every_row_is_backed(page: str) -> None:
    """Figures are those of the section that is named."""
    check_rows(rows(text_of(page)))


def test_every_figure_of_the_front_page_is_backed() -> None:
    assert len(README.splitlines()) <= 150
    result = rows(sections(README)["How fast it is"])
    check_rows(result)
    for row in result:  # both times and the `speed-up`, by a command before the section
        assert all(re.match(r"\d+\.\d+(?: m?s|×)$", cell) for cell in row[2:5]), row
        command = row[-1].partition(": [")[0]
        assert command == "the same" or (ROOT / re.findall(r"\S+\.py", command)[0]).exists(), row


def check_rows(actual: list[list[str]]) -> None:
    """The last cell of each row names a test, a section of the measurements or a source; figures
    are those of the section."""
    measured = results()
    assert len(actual) > 5
    for row in actual:
        named = re.findall(r'RESULTS\.md, "([^"]+)"', row[-1])
        assert named or "{test}`" in row[-1] or "](https://" in row[-1], row
        for section in named:
            for figure in re.findall(r"\d+\.\d+|\d+(?= reads| %)", " ".join(row[:-1])):
                assert re.search(rf"(?<![\d.]){figure}(?![\d.]*\d)", measured[section]), row


@pytest.mark.parametrize("page", PAGES)
def test_sections_that_are_named_exist(page: str) -> None:
    assert set(re.findall(r'RESULTS\.md, "([^"]+)"', text_of(page))) <= results().keys()


BENCH = ROOT / "asv_bench"
MEASURED = sorted((BENCH / "measured").glob("*.md"))
RESULTS = [BENCH / "RESULTS.md", *MEASURED]


def results() -> dict[str, str]:
    """The sections of the measurements, by their titles: of the pages behind RESULTS.md, for that
    page alone proves nothing."""
    return sections("".join(path.read_text(encoding="utf-8") for path in MEASURED), "#+")


def test_the_ten_figures_are_backed() -> None:
    """The first screen of RESULTS.md: each figure is in the section that its row links."""
    text = (BENCH / "RESULTS.md").read_text(encoding="utf-8")
    result = rows(text.partition("\n## ")[0])
    assert len(result) == 10
    check_rows([[*row[:-1], re.sub(r"^\[(.*)\]", r'RESULTS.md, "\1"', row[-1])] for row in result])
    for row in result:
        assert re.search(r"\d+\.\d+", row[2]), row
        assert row[3] == "the same" or (ROOT / re.findall(r"\S+\.py", row[3])[0]).exists(), row


def test_every_page_of_measurements_is_reached() -> None:
    """From the first screen, and from a page of `docs/` that includes it."""
    text = (BENCH / "RESULTS.md").read_text(encoding="utf-8")
    subjects = text.partition("\n## By subject\n")[2].partition("\n## ")[0]
    names = {path.name for path in MEASURED}
    assert set(re.findall(r"\]\(measured/(\w+\.md)\)", subjects)) == names
    assert {path.name for path in (DOCS / "measured").glob("*.md")} == names
    for name in names:
        assert f"{{include}} ../../asv_bench/measured/{name}\n" in text_of(f"measured/{name}")
    listed = re.findall(r"^measured/(\w+)$", text_of("results.md"), flags=re.MULTILINE)
    assert {f"{name}.md" for name in listed} == names


# --- The layout -----------------------------------------------------------------------------------


def test_every_folder_is_in_the_layout() -> None:
    """Of the package with its place, and of the tests by its name."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    (listing,) = re.findall(r"^```\n(dask_gpuselect/.*?)^```$", text, re.MULTILINE | re.DOTALL)
    listed, parents = set(), [""]
    for indent, name in re.findall(r"^( *)(\w+)/ ", listing, re.MULTILINE):
        parents[len(indent) // 2 :] = [name]
        listed.add("/".join(parents[1:]))
    inits = {path.parent.relative_to(PACKAGE) for path in PACKAGE.rglob("__init__.py")}
    assert listed == {folder.as_posix() for folder in inits if folder.parts} | {""}
    (tests,) = re.findall(r"^## Tests\n\n(.*?)\n\n", text, re.MULTILINE | re.DOTALL)
    folders = {path.parent.name for path in (ROOT / "tests").glob("*/__init__.py")}
    assert set(re.findall(r"`(\w+)`", tests)) - {"tests"} == folders


@pytest.mark.parametrize("suffix", [".py", ".cu", ".cuh"])
def test_every_module_says_what_it_is(suffix: str) -> None:
    """So that nobody keeps a map of the files."""
    begins = '"""' if suffix == ".py" else "// "
    paths = list(PACKAGE.rglob(f"*{suffix}"))
    assert len(paths) > 5
    assert [path for path in paths if not path.read_text("utf-8").startswith(begins)] == []


# --- Links ----------------------------------------------------------------------------------------

FRONT = ["README.md", "CONTRIBUTING.md", "SECURITY.md", "CODE_OF_CONDUCT.md", "CHANGELOG.md"]
LINK = re.compile(r"\]\((?!https?:|mailto:)([^)\s]+)\)")


def anchors(path: Path) -> set[str]:
    """Of the headings of a page, as GitHub and MyST make them."""
    text = BLOCK.sub("", path.read_text(encoding="utf-8"))
    titles = re.findall(r"^#+ (.*)$", text, flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize(
    "page", [*(ROOT / name for name in FRONT), *RESULTS], ids=lambda page: page.name
)
def test_links_of_the_repository_resolve(page: Path) -> None:
    """Sphinx looks at those of `docs/`."""
    for link in LINK.findall(BLOCK.sub("", page.read_text(encoding="utf-8"))):
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


# --- Settings -------------------------------------------------------------------------------------


def test_every_setting_is_in_the_table() -> None:
    """Those that the code asks for, by the functions of `engine/settings.py`."""
    names: set[str] = set()
    for path in PACKAGE.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        names |= set(re.findall(r"\b(?:n_bytes|directory|number)\(\"([\w-]+)\"", text))
    listed = (row[0].strip("`").partition(".") for row in rows(text_of("settings.md")))
    assert {name for of, _, name in listed if of == "dask_gpuselect"} == names
    assert names == settings.DEFAULTS.keys()


def test_the_settings_in_yaml_are_the_defaults() -> None:
    """The file that dask finds, the block and the table of the page, and the code that chooses."""
    text = (PACKAGE / "dask_gpuselect.yaml").read_text("utf-8")
    (block,) = blocks(text_of("settings.md"), "{code-block} yaml")
    assert yaml.safe_load(block) == yaml.safe_load(text) == {"dask_gpuselect": settings.DEFAULTS}
    page = {row[0].strip("`"): row for row in rows(text_of("settings.md"))}
    chosen = {
        "cache-limit": f"{keeping.CACHED >> 30} GiB, and a sixteenth of the memory of a device",
        "distance-limit": f"{search.DISTANCE_LIMIT}, and {search.DISTANCE_LIMIT_OF_GPUS} on a GPU",
        "scratch-limit": "half of what is free, and nothing where the directory is in memory; "
        "no limit on a cluster",
        "scratch-reads": "2, and 3 on a cluster",
        "staging-threads": f"the number of CPUs, at most {staging.MOST_THREADS}",
    }
    assert resident.DEVICE_SHARE == 16
    for name, value in settings.DEFAULTS.items():
        shown = str(value) if value is not None else f"None: {chosen[name]}"
        assert page[f"dask_gpuselect.{name}"][1] == shown
    for name, (kind, meaning) in settings.SETTINGS.items():
        *_, allowed, explained, _ = page[f"dask_gpuselect.{name}"]
        assert allowed == kind
        assert explained.startswith(meaning), name
    for name, what in chosen.items():
        assert re.search(rf"# .*null: {what}\.\n  {name}: null", text)
    for name in settings.DEFAULTS:
        assert re.search(rf"^  # .*\.\n  {name}: ", text, re.MULTILINE), name


# --- What is said of dask -------------------------------------------------------------------------


def test_dask_has_no_quantiles_of_all_elements() -> None:
    x = da.ones((8, 6), chunks=(4, 3))
    for function, *q in ((da.median,), (da.quantile, 0.5), (da.percentile, 50)):
        # AttributeError: `quantile` of dask 2025.1 fails before it raises its own error.
        with pytest.raises((NotImplementedError, AttributeError)):
            function(x, *q)


def test_dask_has_no_sort_of_arrays() -> None:
    x = da.from_array(np.array([3.0, 1.0, 2.0]), chunks=2)
    assert not hasattr(da, "sort")
    with pytest.warns(FutureWarning, match="not implemented by Dask array"):
        assert type(np.sort(x)) is np.ndarray  # all of it in memory
    assert dask_gpuselect.sort(x).compute().tolist() == [1, 2, 3]


def test_dasks_percentiles_are_approximate() -> None:
    a = np.random.default_rng(0).lognormal(size=100_000)
    x = da.from_array(a, chunks=10_000)
    exact = np.percentile(a, [25, 50, 75])
    assert not np.any(da.percentile(x, [25, 50, 75]).compute() == exact)
    np.testing.assert_array_equal(dask_gpuselect.percentile(x, [25, 50, 75]).compute(), exact)


def test_numpy_wraps_differences_of_small_integers() -> None:
    ends = np.array([-100, 100], "i1")
    with np.errstate(over="ignore"):
        assert np.quantile(ends, 0.5) == 128
    assert dask_gpuselect.quantile(ends, 0.5) == 0


def test_numpy_counts_nan_of_weight_0() -> None:
    some, none = np.array([np.nan, 1.0]), np.array([np.nan])
    ours = partial(dask_gpuselect.quantile, q=0.5, method="inverted_cdf")
    theirs = partial(np.quantile, q=0.5, method="inverted_cdf")
    assert np.isnan(theirs(some, weights=[0, 1]))
    assert ours(some, weights=[0, 1]) == 1
    if np.lib.NumpyVersion(np.__version__) < "2.4.0":
        with np.errstate(invalid="ignore"):
            assert np.isnan(theirs(none, weights=[0]))
    else:
        with np.errstate(invalid="ignore"), pytest.raises(ValueError, match="all zero"):
            theirs(none, weights=[0])
    with pytest.warns(RuntimeWarning, match="All-NaN"):
        assert np.isnan(ours(none, weights=[0]))


def test_numpys_nanquantile_misplaces_the_axes_of_q() -> None:
    a, q = np.arange(24.0).reshape(2, 3, 4), [[0.25], [0.5]]
    assert np.nanquantile(a, q, axis=(0, 2)).shape == (1, 3, 2)
    exact = np.quantile(a, q, axis=(0, 2))
    np.testing.assert_array_equal(dask_gpuselect.nanquantile(a, q, axis=(0, 2)), exact)


def test_dask_rechunks_the_reduced_axis() -> None:
    x = da.ones((40, 6), chunks=(10, 3))
    assert any("rechunk" in name for name in da.median(x, axis=0).dask.layers)
    assert not any("rechunk" in name for name in dask_gpuselect.median(x, axis=0).dask.layers)


@pytest.mark.gpu
@pytest.mark.device
@pytest.mark.parametrize("function", ["quantile", "percentile"])
def test_cupys_quantiles_lose_nan(function: str) -> None:
    """They sort, NaN last, and read off the places of the ranks."""
    a, q = np.array([3.0, np.nan, 1.0, 2.0, 5.0]), 0.5 if function == "quantile" else 50
    x = CUPY.asarray(a)
    assert np.isnan(getattr(np, function)(a, q))
    assert np.isnan(CUPY.to_numpy(getattr(dask_gpuselect, function)(x, q)))
    assert not np.isnan(CUPY.to_numpy(getattr(CUPY.xp, function)(x, q)))


@pytest.mark.gpu
@pytest.mark.device
def test_cupy_has_five_of_the_methods_and_no_nanquantile() -> None:
    x = CUPY.asarray(np.arange(10.0))
    missing = set()
    for method in METHODS:
        assert CUPY.to_numpy(dask_gpuselect.nanquantile(x, 1.0, method=method)) == 9
        try:
            CUPY.xp.quantile(x, 1.0, method=method)
        except ValueError:
            missing.add(method)
    assert METHODS.keys() - missing == {"linear", "lower", "higher", "midpoint", "nearest"}
    assert not hasattr(CUPY.xp, "nanquantile")


# --- The pictures ---------------------------------------------------------------------------------


def drawn_by(draw: Callable[[Path], Any], folder: Path) -> Any:
    """Let a program draw a picture, and return the figures that are in it."""
    drawn = draw(folder / "picture.png")
    assert (folder / "picture.png").read_bytes().startswith(b"\x89PNG")
    return drawn


@pytest.mark.any_dask
def test_the_picture_of_the_front_page_is_of_what_was_measured(tmp_path: Path) -> None:
    drawn = drawn_by(module_of(DOCS / "overview.py").draw, tmp_path)
    assert (DOCS / "overview.png").stat().st_size < 60_000
    assert drawn["times"]["dask_gpuselect"] == 1
    for time in list(drawn["times"].values())[1:]:
        assert f"{time:.3g}×" in README
    assert max(drawn["loads"].values()) <= 2
    assert f"{1000 * drawn['gigabytes']['peak of the process']:,.0f} MB" in README


@pytest.mark.any_dask
def test_the_picture_is_drawn_and_true(tmp_path: Path) -> None:
    drawn = drawn_by(module_of(DOCS / "pictures.py").draw, tmp_path)
    elements, bracket = drawn["elements"], drawn["bracket"]
    upto = np.searchsorted(elements, drawn["y"], side="right")
    assert np.all((drawn["least"] <= upto) & (upto <= drawn["most"]))
    assert bracket[0] < elements[drawn["rank"]] <= bracket[-1]
    assert 0 < len(drawn["inside"]) < len(elements) / 4
    assert (DOCS / "how_it_works.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.any_dask
def test_the_picture_of_what_is_kept_is_true(tmp_path: Path) -> None:
    drawn = drawn_by(module_of(DOCS / "pictures.py").draw_kept, tmp_path)
    (low, high), (first, last) = drawn["guess"], drawn["proven"]
    assert low < first < drawn["median"] <= last < high
    assert drawn["covers"]
    assert drawn["share"] < 0.15
    assert (DOCS / "kept_range.png").stat().st_size < 100_000
