"""Kernels for NumPy chunks, compiled by Numba. Importing this package compiles nothing."""
