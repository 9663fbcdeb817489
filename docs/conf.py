"""How Sphinx builds the documentation: `make docs`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from docutils import nodes

import dask_gpuselect

project = "dask_gpuselect"
author = "the dask_gpuselect developers"
copyright = author
release = version = dask_gpuselect.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "numpydoc"]
exclude_patterns = ["_build"]
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


def setup(app: Any) -> None:
    """Tests are named as {test}`test_file.py::test_name`, in whatever folder of `tests/` that is;
    `tests/docs/test_docs.py` says if there is no such test."""
    app.add_generic_role("test", nodes.literal)
