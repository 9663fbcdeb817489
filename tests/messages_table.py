"""A table of the messages of the package.

`python -m tests.messages_table` prints the file, the line, the exception and the text of each error
and warning. Read it after changing messages. Each should say what was given, what is allowed and
what to type, in a sentence that begins with its subject.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

PACKAGE = Path(__file__).parents[1] / "dask_gpuselect"


class Message(NamedTuple):
    """An error that is raised or a warning that is given: its place, its class and its text."""

    file: str
    line: int
    exception: str
    text: str


def text_of(node: ast.expr) -> str:
    """Return the text of a message, with the expressions of an f-string in braces."""
    match node:
        case ast.Constant():
            return str(node.value)
        case ast.JoinedStr():
            return "".join(text_of(part) for part in node.values)
        case ast.FormattedValue():
            return "{" + ast.unparse(node.value) + "}"
        case _:
            return "{" + ast.unparse(node) + "}"


def message_of(call: ast.expr | None, file: str, line: int) -> Message | None:
    """Return the message of what is raised, or None if an error is only passed on."""
    if not isinstance(call, ast.Call):
        return None
    text = ", ".join(text_of(argument) for argument in call.args)
    return Message(file, line, ast.unparse(call.func), text)


def messages(path: Path) -> Iterator[Message]:
    """Yield the messages of a Python file, in the order of their lines."""
    file = path.relative_to(PACKAGE.parent).as_posix()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Raise):
            message = message_of(node.exc, file, node.lineno)
            if message is not None:
                yield message
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "warnings.warn":
            category = ast.unparse(node.args[1]) if len(node.args) > 1 else "UserWarning"
            yield Message(file, node.lineno, category, text_of(node.args[0]))


def table(package: Path = PACKAGE) -> list[Message]:
    """Return the messages of all files of the package."""
    return [message for path in sorted(package.rglob("*.py")) for message in sorted(messages(path))]


if __name__ == "__main__":
    for row in table():
        sys.stdout.write(f"{row.file}:{row.line} | {row.exception} | {row.text}\n")
