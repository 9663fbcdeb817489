"""The matrix: cases drawn from one table for each axis, judged by definitions and by laws.

``python -m tests.matrix --minutes 60 --seed 1`` is a long campaign; `test_matrix.py` a short one.

A case takes one row of each table: question, slots, measure, mask, dtype, distribution, shape,
chunks, where the chunks are, scheduler, settings, and kernels or NumPy. `definitions` has the right
answers, from definitions alone. `laws` has the laws: the answer equals the definition, for any
chunks and any order; warnings are NumPy's; the reads and the memory are as stated; nothing is
computed at the call; weights that are counts equal `numpy.repeat`; a chunk that changes is named.

- Add a row: add a line to a table of `axes`, or a `Question` with its definition to `questions`. If
  the row cannot be combined with some others, say so in `cases.fitting`. If a mistake needs several
  rows at once, add a focus that fixes these rows (`FOCI` in `axes`): half of the cases have one.
  Rows that meet less often still are `PINNED`: the short campaign has a few cases of each. A table
  at the end of `cases.tables_of` changes no other draws.
- Read a failure: its first two lines name the rows, the seed and the law. Then comes a script of
  about ten lines that fails by itself, as small as possible, with the expected answer. Run the
  script; mend the cause.
- Plant the mistake that you have just mended in `planted`. ``make planted`` must catch it. If it
  does not, extend the tables or the laws.
"""
