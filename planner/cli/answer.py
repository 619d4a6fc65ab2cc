"""What a command has been asked for, and whether standard output has a result already.

It is the `obj` of click's context, so that whoever reports an error knows both.
"""

from __future__ import annotations

import click


class CommandAnswer:
    """The answer of one run of the program.

    format      that of the command, as far as its command line could be read
    is_stream   whether its JSON is lines, to which another may be added
    has_result  whether standard output has one already
    """

    def __init__(self) -> None:
        self.format = ""
        self.is_stream = False
        self.has_result = False


def current() -> CommandAnswer:
    """Return the answer of the command that runs; outside of one, an answer that nobody reads."""
    context = click.get_current_context(silent=True)
    answer = context.find_root().obj if context is not None else None
    return answer if isinstance(answer, CommandAnswer) else CommandAnswer()
