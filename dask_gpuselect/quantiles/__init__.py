"""Medians, quantiles and order statistics of arrays, exactly."""
