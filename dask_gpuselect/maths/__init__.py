"""Mathematics of exact quantiles, in plain NumPy: cuts, brackets, ranks, interpolation and sums."""
