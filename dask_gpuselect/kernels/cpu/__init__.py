"""What happens to a NumPy chunk, compiled by Numba. Importing this package compiles nothing."""
