"""The matrix: cases drawn from one table for each axis, judged by definitions and by laws.

``python -m tests.matrix --minutes 60 --seed 1`` is a long campaign; `test_matrix.py` a short one.
"""
