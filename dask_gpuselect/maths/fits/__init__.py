"""Robust linear fits of rows, of which up to half may be outliers. Plain NumPy on the host."""
