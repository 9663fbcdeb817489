"""Kernels for chunks of any array of the array API; they define what every other kernel returns."""
