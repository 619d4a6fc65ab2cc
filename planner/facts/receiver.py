"""Where alarms may go: mail, webhooks, and topics that an account has already.

receivers.csv has the forms of their addresses. A topic is one of SNS, of Pub/Sub, or an action
group of Azure Monitor.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Literal, TypeAlias, cast

from msgspec import Struct

from planner.facts import table
from planner.facts.cloud import clouds

ReceiverKind: TypeAlias = Literal["mail", "webhook", "topic"]
ANY_CLOUD = "any"


class ReceiverForm(Struct, frozen=True, kw_only=True):
    """A form of addresses.

    cloud    the cloud that knows them; nothing where every cloud does
    pattern  regular expression of the whole address
    """

    kind: ReceiverKind
    cloud: str | None
    pattern: str
    example: str


class Receiver(Struct, frozen=True):
    """Somebody who is told, by the cloud that can tell; nothing where every cloud can."""

    address: str
    kind: ReceiverKind
    cloud: str | None

    @property
    def mail_address(self) -> str:
        """The address of a mail without its scheme."""
        return self.address.removeprefix("mailto:")


@cache
def receiver_forms() -> tuple[ReceiverForm, ...]:
    """Return the forms of addresses. Raises CatalogError for an invalid row."""
    columns: table.Columns = {
        "kind": table.one_of("mail", "webhook", "topic"),
        "cloud": table.one_of(ANY_CLOUD, *clouds()),
        "pattern": table.nonempty_text,
        "example": table.nonempty_text,
        **table.SOURCE_COLUMNS,
    }
    return tuple(
        ReceiverForm(
            kind=cast("ReceiverKind", row["kind"]),
            cloud=None if row["cloud"] == ANY_CLOUD else row["cloud"],
            pattern=row["pattern"],
            example=row["example"],
        )
        for row in table.load_rows("planner.facts", "receivers.csv", columns)
    )


def read_receiver(address: str) -> Receiver:
    """Return who an address means. Raises ValueError when it has no known form."""
    for form in receiver_forms():
        if re.fullmatch(form.pattern, address):
            return Receiver(address, form.kind, form.cloud)
    raise ValueError(address)
