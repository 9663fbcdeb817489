"""The mathematics, of NumPy alone: cuts and the brackets they prove, ranks, interpolation, sums."""
