"""A hostile reader as a program: random calls of every public function, held to oracles and laws.

::

    python -m tests.hostile --minutes 120 --seed 1      # look for failures
    python -m tests.hostile --seed 1 --case 4711        # one case again, with its traceback

`around.py` draws sources and surroundings; `doors.py` has a row for every
public function: how its arguments are drawn, and what is right; `judge.py` asks and checks
the laws; `__main__.py` runs cases in a process that can be ended if it
hangs, and counts failures by their signature.

The laws: nothing is computed by the call; chunks are loaded no more often than is documented; the
declared dtype and shape are those that come; the answer is the oracle's, with any chunks and of the
plain array too; the data are left as they were; no warnings but NumPy's own; arguments that make no
sense are refused by an error that was raised on purpose.

`python -m tests.hostile.search` looks for data that are slow instead: `recipes.py` makes data of
steps, `costs.py` measures beside normal data, and `worst.py` has the worst that were found.
"""
