"""Comparisons that find elements of some ranks in moving windows; each is made once.

A comparison of two places is also that of their neighbours for the window beside it. So it is made
once, for all windows that need it: columns of a window are sorted once, then pairs of columns are
merged once, and pairs of pairs. Comparisons that cannot change the wanted ranks are left out.
Merges are Batcher's (Knuth, The Art of Computer Programming, 5.3.4).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

MOST_CROSSED = 9  # elements of a window; of more, it is never the fewest comparisons

Node = tuple[int, int]
"""A value, by its number, and how many places to the right it is read."""
Step = tuple[int, int, int, int, int, int]
"""A comparison: the two values with their shifts to the right, and the numbers of the lesser and of
the larger one, -1 if nothing needs it."""


@lru_cache(maxsize=64)
def comparisons(
    size: tuple[int, ...],
    footprint: tuple[bool, ...] | None,
    wanted: tuple[int, ...],
    *,
    crosses: bool = False,
) -> tuple[int, list[Step], dict[int, Node]]:
    """Return the fewest comparisons that are known for some ranks of a window.

    Return the number of rows of the window, which are the first values, then the comparisons, each
    behind those that it needs, and the node of each rank. `crosses` says whether to try the
    networks of `Comparisons.crossed`: LLVM took 0.1 s more for one of 3 x 3 uint16.
    """
    marks = np.ones(size, bool) if footprint is None else np.array(footprint).reshape(size)
    marks = marks.reshape(-1, size[-1])
    ways = [Comparisons.of(marks, wanted, selects=selects) for selects in (False, True)]
    if crosses and marks.all() and marks.size <= MOST_CROSSED:
        ways.append(Comparisons.of(marks, wanted, selects=True, crosses=True))
    steps, answers = min(ways, key=lambda way: sum(n >= 0 for step in way[0] for n in step[4:]))
    return len(marks), steps, answers


class Comparisons:
    """Comparisons of rows of elements; each comparison is made once.

    The results of each are two more rows. A comparison of two rows that are both moved is the same
    comparison, moved.
    """

    def __init__(self, n_rows: int) -> None:
        self._n_rows = n_rows
        self._numbers: dict[tuple[int, int, int, int], int] = {}

    @classmethod
    def of(
        cls,
        marks: NDArray[np.bool_],
        wanted: Iterable[int],
        *,
        selects: bool,
        crosses: bool = False,
    ) -> tuple[list[Step], dict[int, Node]]:
        """Return comparisons for wanted ranks of a window, and the node of each rank.

        `selects` says that the last merge finds each rank by itself. `crosses` says that rows of
        sorted columns are sorted too, which tells of many elements on which side of a rank they
        are.
        """
        made = cls(len(marks))
        rows = [np.flatnonzero(marks[:, x]).tolist() for x in range(marks.shape[1])]
        nodes = [[[(row, x)] for row in own] for x, own in enumerate(rows) if own]
        columns = [made.merged(column) for column in nodes] if len(nodes) > 1 else nodes[0]
        if crosses:
            answers = {rank: made.crossed(columns, rank) for rank in wanted}
            return made.needed(answers.values()), answers
        find = made.finding(columns, selects=selects)
        answers = {rank: find(rank) for rank in wanted}
        return made.needed(answers.values()), answers

    def finding(self, parts: Sequence[list[Node]], *, selects: bool) -> Callable[[int], Node]:
        """Return what finds the element of a rank in sorted lists."""
        if len(parts) == 1:
            return parts[0].__getitem__
        half = _half(parts)
        first, second = self.merged(parts[:half]), self.merged(parts[half:])
        return (
            partial(self.selected, first, second)
            if selects
            else self.merge(first, second).__getitem__
        )

    def crossed(self, columns: Sequence[list[Node]], rank: int) -> Node:
        """Find the element of one rank in sorted columns of the same size."""
        across = zip(*columns, strict=True)
        rows = [self.finding([[node] for node in row], selects=True) for row in across]
        n_rows, n_columns = len(rows), len(columns)
        last, kept, n_less = n_rows * n_columns - 1, [], 0
        for i, row in enumerate(rows):
            # So many are not larger, and so many not less.
            is_larger = [(i + 1) * (j + 1) - 1 > rank for j in range(n_columns)]
            is_less = [(n_rows - i) * (n_columns - j) - 1 > last - rank for j in range(n_columns)]
            n_less += sum(is_less)
            part = [row(j) for j in range(sum(is_less), n_columns - sum(is_larger))]
            kept += [part] if part else []
        return self.finding(kept, selects=True)(rank - n_less)

    def compare(self, *nodes: Node) -> tuple[Node, Node]:
        """Return the nodes of the lesser and of the larger elements of two nodes."""
        (first, i), (second, k) = sorted(nodes)
        moved = min(i, k)
        key = (first, i - moved, second, k - moved)
        number = self._numbers.setdefault(key, self._n_rows + 2 * len(self._numbers))
        return (number, moved), (number + 1, moved)

    def merged(self, parts: Sequence[list[Node]]) -> list[Node]:
        """Merge sorted lists, those of the next larger power of two by themselves."""
        if len(parts) < 2:
            return parts[0] if parts else []
        half = _half(parts)
        return self.merge(self.merged(parts[:half]), self.merged(parts[half:]))

    def merge(self, first: list[Node], second: list[Node]) -> list[Node]:
        """Merge two sorted lists."""
        if not first or not second:
            return first or second
        if len(first) == len(second) == 1:
            return list(self.compare(first[0], second[0]))
        even, odd = (self.merge(first[i::2], second[i::2]) for i in (0, 1))
        merged = even[:1]
        for low, high in zip(odd, even[1:], strict=False):
            merged += self.compare(low, high)
        n = min(len(odd), len(even) - 1)
        return merged + odd[n:] + even[1 + n :]

    def selected(self, first: list[Node], second: list[Node], rank: int) -> Node:
        """Find the element of one rank in two sorted lists.

        It is the least of the largest elements of i of the first list and the rest of the second.
        """
        n = rank + 1
        nodes = []
        for i in range(max(0, n - len(second)), min(len(first), n) + 1):
            ends = first[i - 1 : i] if i else [], second[n - i - 1 : n - i] if n > i else []
            some = [*ends[0], *ends[1]]
            nodes.append(self.compare(*some)[1] if len(some) > 1 else some[0])
        while len(nodes) > 1:
            pairs = [nodes[i : i + 2] for i in range(0, len(nodes), 2)]
            nodes = [self.compare(*pair)[0] if len(pair) > 1 else pair[0] for pair in pairs]
        return nodes[0]

    def needed(self, answers: Iterable[Node]) -> list[Step]:
        """List comparisons that answers depend on, with their results, -1 for what none needs."""
        needed, steps = {number for number, _ in answers}, list[Step]()
        for key, number in reversed(self._numbers.items()):
            low, high = (each if each in needed else -1 for each in (number, number + 1))
            if (low, high) != (-1, -1):
                needed |= {key[0], key[2]}
                steps.append((*key, low, high))
        return steps[::-1]


def _half(parts: Sequence[Any]) -> int:
    """Return the largest power of two that is less than the number of parts."""
    return 1 << max(len(parts) - 1, 1).bit_length() - 1
