"""Configuration of Sphinx, which builds the documentation: `make docs`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from docutils import nodes

import dask_gpuselect
from dask_gpuselect import strategies

project = "dask_gpuselect"
author = "the dask_gpuselect developers"
copyright = author
release = version = dask_gpuselect.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.autosummary", "numpydoc"]
exclude_patterns = ["_build"]
templates_path = ["_templates"]
html_theme = "furo"
html_title = f"{project} {version}"

# Those of asv, which `make bench-pages` makes, are taken along if they are there.
asv_pages = Path(__file__).parents[1] / "asv_bench" / "html"
has_asv_pages = (asv_pages / "benchmarks" / "index.html").exists()
html_extra_path = [str(asv_pages)] if has_asv_pages else []

myst_enable_extensions = ["dollarmath", "substitution"]
myst_substitutions = {
    "asv_pages": '<a href="benchmarks/index.html">The pages that asv made</a> come with this copy.'
    if has_asv_pages
    else "This copy of the documentation was built without them."
}
myst_heading_anchors = 3

autodoc_typehints = "none"  # the docstrings say more
autodoc_member_order = "bysource"
default_role = "code"  # what is in single backquotes in docstrings
numpydoc_show_class_members = False

# A page for each name of api.rst, in docs/generated. Of estimators only these methods are shown:
# others are scikit-learn's.
autosummary_generate = True
autosummary_context = {
    "members_shown": {
        "dask_gpuselect.Boxplot": ["plot", "to_bxp", "to_dict", "to_plotly"],
        "dask_gpuselect.robust.LeastTrimmedSquares": ["fit", "predict", "score"],
        "dask_gpuselect.robust.LeastMedianOfSquares": ["fit", "predict", "score"],
        "dask_gpuselect.neighbors.NearestNeighbors": ["fit", "kneighbors"],
        "dask_gpuselect.neighbors.KNeighborsRegressor": ["fit", "kneighbors", "predict"],
        "dask_gpuselect.neighbors.KNeighborsClassifier": [
            "fit",
            "kneighbors",
            "predict",
            "predict_proba",
        ],
        "dask_gpuselect.distribution.MonotoneQuadraticSpline": [
            "__call__",
            "derivative",
            "inverse",
        ],
        "dask_gpuselect.distribution.MonotoneRationalSpline": ["__call__", "derivative", "inverse"],
        **dict.fromkeys((f"dask_gpuselect.strategies.{name}" for name in strategies.__all__), []),
    },
    "not_constructed": [
        "dask_gpuselect.Boxplot",
        "dask_gpuselect.groups.GroupBy",
        "dask_gpuselect.distribution.LazyDistribution",
        "dask_gpuselect.sorted_boxes.SortedBox",
    ],
}


def setup(app: Any) -> None:
    """Add the role of tests: {test}`test_file.py::test_name`, in any folder of `tests/`.

    `tests/docs/test_docs.py` checks that the test exists.
    """
    app.add_generic_role("test", nodes.literal)
