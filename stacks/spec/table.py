"""Tables of what clouds take, and of the machine types that no stack can be built of."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from msgspec.structs import asdict

from planner.errors import Problem, SpecError
from planner.facts import table
from planner.facts.rule import rules_of
from planner.facts.software import missing_software

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


@cache
def unsupported_reason(instance: Instance) -> str | None:
    """Say why no stack can be built yet for a machine type, with the rule, or nothing."""
    facts = asdict(instance)
    broken = next(
        (
            rule
            for rule in rules_of("machine", instance.provider)
            if rule.is_broken(facts)
        ),
        missing_software(instance.provider, instance.accelerator),
    )
    return None if broken is None else broken.told


def stack_error(message: str, next_step: str) -> SpecError:
    """The error of a stack that cannot be built as asked."""
    return SpecError(
        Problem(code="stack", message=message, next_step=next_step)
    )
