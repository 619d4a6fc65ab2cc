"""What a type of cloud resource does to its updates, whoever carries them out."""

from __future__ import annotations

from functools import cache

from planner.facts import table


@cache
def name_properties() -> dict[str, str]:
    """Return by type the property that holds a name for good.

    Two resources of such a type cannot have one name at the same time, so the old one must go
    before its replacement comes.
    """
    columns = {"type": table.nonempty_text, "property": table.nonempty_text}
    return {
        name_row["type"]: name_row["property"]
        for name_row in table.load_rows("providers", "names.csv", columns)
    }
