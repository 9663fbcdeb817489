"""Print what this CPU has of the instructions that NumPy chooses when it starts."""

from numpy._core import _multiarray_umath as umath

print(*(name for name in umath.__cpu_dispatch__ if umath.__cpu_features__[name]))
