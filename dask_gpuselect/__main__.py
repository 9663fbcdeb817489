"""Print facts for a bug report: ``python -m dask_gpuselect``."""

from dask_gpuselect.versions import show_versions

if __name__ == "__main__":
    show_versions()
