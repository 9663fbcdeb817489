"""Kernels for groups whose elements are sorted together, as `maths.runs.Runs`."""
