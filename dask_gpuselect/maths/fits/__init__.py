"""Robust linear fits of rows. Up to half of the rows may be outliers. Plain NumPy on the host."""
