"""Sorted arrays, and bins with equal numbers of elements."""
