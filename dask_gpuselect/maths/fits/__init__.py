"""Linear fits of rows, of which up to half may be wrong. Plain NumPy on the host."""
