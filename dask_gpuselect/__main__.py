"""Print what a report of a problem should say: ``python -m dask_gpuselect``."""

from dask_gpuselect.versions import show_versions

if __name__ == "__main__":
    show_versions()
