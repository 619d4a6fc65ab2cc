"""Tables of what clouds take, and of the machine types that no stack can be built of."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from planner.errors import Problem, SpecError
from planner.facts import table

if TYPE_CHECKING:
    from planner.market.offer import Instance


@cache
def lookup_table(
    file_name: str, key_column: str, value_column: str
) -> dict[str, str]:
    """Return two columns of a table of stacks/data as key to value."""
    header = table.data_text("stacks", file_name).partition("\n")[0]
    columns = dict.fromkeys(header.split(","), table.any_text)
    return {
        table_row[key_column]: table_row[value_column]
        for table_row in table.load_rows("stacks", file_name, columns)
    }


def unsupported_reason(instance: Instance) -> str | None:
    """Say why no stack can be built yet for a machine type, or nothing."""
    reasons = lookup_table("unsupported.csv", "value", "reason")
    if instance.fraction < 1:
        return reasons["shared"]
    return reasons.get(instance.accelerator) or reasons.get(
        instance.instance_type
    )


def stack_error(message: str, next_step: str) -> SpecError:
    """The error of a stack that cannot be built as asked."""
    return SpecError(
        Problem(code="stack", message=message, next_step=next_step)
    )
