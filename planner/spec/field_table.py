"""The fields of a spec as data: a row for each key, and the types that rows name.

The tables are planner/spec/data/<kind>.csv; what several kinds share is in shared.csv. A default,
a minimum and a maximum are written as a spec writes them. From the tables come the reader, the
JSON Schema and the reference page.

    one of: a | b       a word
    some of: a | b      words, or a single one
    list of TYPE        values of a type, or a single one
    auto or TYPE        a value of a type, or the word auto, which is read as none
    block NAME          a mapping with the fields of that block
    count, seconds, …   a quantity, read by planner/spec/unit.py
    anything else       a type of `FIELD_TYPES`
"""

from __future__ import annotations

from decimal import Decimal
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from planner.facts import table
from planner.facts.cloud import clouds
from planner.facts.receiver import receiver_forms
from planner.spec import unit
from planner.spec.field import (
    Block,
    Choice,
    Field,
    LabelTable,
    ListOf,
    ProblemReport,
    Quantity,
    TextPattern,
)
from planner.spec.field_types import (
    AcceleratorName,
    AutomaticType,
    CloudName,
    GlobalBatchType,
    ProfileType,
    ScheduleType,
    TruthType,
)
from planner.spec.model import SECRET_SCHEME
from planner.spec.source import ScalarNode
from planner.spec.stack_name import (
    LONGEST_NAME,
    STACK_NAME_HINT,
    STACK_NAME_PATTERN,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from planner.spec.field import FieldType

# RFC 1918, and the range that providers share (RFC 6598).
PRIVATE_RANGE_PATTERN: Final = (
    r"(10\.\d{1,3}|172\.(1[6-9]|2\d|3[01])|192\.168|100\.(6[4-9]|[7-9]\d|1[01]\d|12[0-7]))"
    r"\.\d{1,3}\.\d{1,3}/([89]|[12]\d|3[0-2])"
)
WAIVER_PATTERN: Final = (
    r"sec-[a-z0-9-]+ until 20\d\d-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])"
    r": [ -~]{3,200}"
)
SECRET_PATTERN: Final = (
    rf"{SECRET_SCHEME}[A-Za-z0-9][A-Za-z0-9_+=.@-]*(/[A-Za-z0-9-]+)?"
)
# Ids of Azure have those of a subscription and a group in them.
LONGEST_ID: Final = 400
FIELD_TYPES: Final[dict[str, FieldType]] = {
    "stack name": TextPattern(
        STACK_NAME_PATTERN, STACK_NAME_HINT, LONGEST_NAME
    ),
    "pattern": TextPattern(r"[A-Za-z0-9*?._-]+", "a name or a pattern with *"),
    "file": TextPattern(
        r"(?!/)(?!.*\.\.)[A-Za-z0-9_./ -]+",
        "a path beside the spec, without ..",
    ),
    "model name": TextPattern(r"[A-Za-z0-9][A-Za-z0-9._/-]*", "a model name"),
    "address": TextPattern(
        r"(s3|gs|abfss?|https)://[A-Za-z0-9._~/@%+-]+",
        "an address such as s3://bucket/folder",
    ),
    "receiver": TextPattern(
        "|".join(form.pattern for form in receiver_forms()),
        "mailto:name@example.com, an https address, or the name of a topic",
    ),
    "weights": TextPattern(
        r"bucket|hf(:[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9._-]+)?(@[A-Za-z0-9._/-]+)?"
        r"|(s3://[a-z0-9][a-z0-9-]+|gs://[a-z0-9][a-z0-9._-]+)(/[A-Za-z0-9._~+%=-]+)*/?"
        r"|abfss://[a-z0-9-]+@[a-z0-9]+\.dfs\.core\.windows\.net(/[A-Za-z0-9._~+%=-]+)*/?",
        "bucket, hf, hf:owner/name@revision, or an address such as s3://bucket/folder",
    ),
    "secret": TextPattern(
        SECRET_PATTERN,
        "secret://NAME, or on Azure secret://VAULT/NAME",
    ),
    "waiver": TextPattern(
        WAIVER_PATTERN,
        "a rule, a last day and a reason: sec-gcp-login until 2027-03-01: it comes in spring",
    ),
    "network id": TextPattern(
        "|".join(facts.network_form for facts in clouds().values()),
        "a network as its cloud names it: vpc-0a1b2c3d4e5f60718, "
        "projects/PROJECT/global/networks/NAME, /subscriptions/…/virtualNetworks/NAME",
        LONGEST_ID,
    ),
    "reservation": TextPattern(
        "({})@[a-z][a-z0-9-]{{2,30}}:[1-9][0-9]{{0,4}}x[A-Za-z][A-Za-z0-9._-]{{1,60}}".format(
            "|".join(facts.reservation_form for facts in clouds().values())
        ),
        "a reservation: cr-0a1b2c3d4e5f60718@us-east-1a:4xp5.48xlarge",
        LONGEST_ID,
    ),
    "capacity block": TextPattern(
        "|".join(facts.block_form for facts in clouds().values()),
        "an offering or a reservation: cb-0a1b2c3d4e5f60718, cr-0a1b2c3d4e5f60718, "
        "projects/PROJECT/reservations/NAME",
        LONGEST_ID,
    ),
    "zone": TextPattern(
        r"[a-z]{2}(-[a-z]+)+-\d[a-z]|[a-z]+-[a-z]+\d+-[a-z]",
        "a zone such as us-east-1a or us-central1-a",
        30,
    ),
    "machine type": TextPattern(
        r"[a-z][a-z0-9-]*\.[0-9a-z-]+|a[0-9]+[a-z]?-[a-z]+-[0-9]+g",
        "a machine type such as p5.48xlarge or a3-ultragpu-8g",
        40,
    ),
    "moment": TextPattern(
        r"20\d\d-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])T([01]\d|2[0-3]):[0-5]\dZ",
        "a time such as 2026-12-01T11:30Z",
    ),
    "host name": TextPattern(
        r"(?=.{4,253}$)([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z]{2,63}",
        "a host name such as chat.example.com",
        253,
    ),
    "certificate": TextPattern(
        # The groups of patterns have one name, which a pattern of all may not have.
        "|".join(
            facts.certificate_form.replace("?P<region>", "")
            for facts in clouds().values()
        )
        + f"|{SECRET_PATTERN}",
        "secret://NAME with a key and its certificates in PEM, on Azure secret://VAULT/NAME; or a "
        "certificate of AWS: arn:aws:acm:REGION:ACCOUNT:certificate/ID",
    ),
    "vault key": TextPattern(
        "|".join(facts.vault_key_form for facts in clouds().values()),
        "a key of a vault: https://VAULT.vault.azure.net/keys/NAME",
        LONGEST_ID,
    ),
    "identity": TextPattern(
        r"/subscriptions/[0-9a-f-]{36}/resourceGroups/[A-Za-z0-9._()-]{1,90}/providers/"
        r"Microsoft\.ManagedIdentity/userAssignedIdentities/[A-Za-z0-9_-]{3,128}",
        "an identity: /subscriptions/…/userAssignedIdentities/NAME",
        LONGEST_ID,
    ),
    "key": TextPattern(
        "|".join(
            facts.key_form.replace("?P<region>", "")
            for facts in clouds().values()
        ),
        "a key: arn:aws:kms:REGION:ACCOUNT:key/ID, "
        "projects/PROJECT/locations/REGION/keyRings/RING/cryptoKeys/KEY, or "
        "/subscriptions/…/diskEncryptionSets/NAME",
        LONGEST_ID,
    ),
    "account": TextPattern(
        "|".join(facts.account_form for facts in clouds().values()),
        "an account of AWS (123456789012), a project of Google Cloud (chat-clients), or a "
        "subscription of Azure",
    ),
    "subnet": TextPattern(
        r"[A-Za-z0-9]([A-Za-z0-9._-]{0,78}[A-Za-z0-9_])?@[a-z][a-z0-9-]{2,30}",
        "a subnet and where it is: subnet-0a1b2c3d4e5f60718@us-east-1a",
    ),
    "private range": TextPattern(
        PRIVATE_RANGE_PATTERN,
        "a range of private addresses such as 10.20.0.0/16",
    ),
    "labels": LabelTable(
        TextPattern(r"[a-z][a-z0-9_-]{0,30}", "a key of a-z, 0-9, _ and -", 31),
        TextPattern(
            r"[A-Za-z0-9_.@ -]{0,63}", "letters, digits and . _ @ -", 63
        ),
    ),
    "truth": TruthType(),
    "cloud": CloudName(),
    "renting cloud": CloudName(rents_out=True),
    "accelerator": AcceleratorName(),
    "schedule": ScheduleType(),
    "profile": ProfileType(),
    "global batch": GlobalBatchType(),
}


def _decimal_count(text: str) -> Decimal:
    return Decimal(unit.parse_count(text))


QUANTITIES: Final[dict[str, Callable[[str], Any]]] = {
    "number": unit.parse_number,
    "count": unit.parse_count,
    "decimal count": _decimal_count,
    "context": unit.parse_context,
    "seconds": unit.parse_seconds,
    "bytes": unit.parse_bytes,
    "percent": unit.parse_percent,
    "money": unit.parse_money,
    "spending": unit.parse_spending,
    "power": unit.parse_kilowatts,
}
STATUSES: Final = ("used", "partly")


def block_fields(
    table_name: str,
    block_name: str,
    own_types: Mapping[str, FieldType] | None = None,
) -> tuple[Field, ...]:
    """Return the fields of a block in the order of their rows.

    `own_types` are the blocks that its rows name, and types that are no others'. Raises
    CatalogError for a row that names no type, and for a default that its type does not take.
    """
    field_types = {**FIELD_TYPES, **(own_types or {})}
    return tuple(
        _field(row, field_types)
        for row in _table_rows(table_name)
        if row["block"] == block_name
    )


@cache
def _table_rows(table_name: str) -> tuple[table.TableRow, ...]:
    columns = {
        "block": table.nonempty_text,
        "key": table.nonempty_text,
        "type": table.nonempty_text,
        "unit": table.any_text,
        "example": table.any_text,
        "minimum": table.any_text,
        "maximum": table.any_text,
        "default": table.any_text,
        "required": table.yes_or_no,
        "status": table.one_of(*STATUSES),
        "meaning": table.nonempty_text,
    }
    return tuple(table.load_rows("planner.spec", f"{table_name}.csv", columns))


def _field(row: table.TableRow, field_types: Mapping[str, FieldType]) -> Field:
    field_type = _field_type(row, row["type"], field_types)
    return Field(
        row["key"],
        field_type,
        row["meaning"],
        required=row["required"],
        default=_default(row, field_type),
        default_text=row["default"],
        unit=row["unit"],
        status=row["status"],
    )


def _field_type(
    row: table.TableRow, type_text: str, field_types: Mapping[str, FieldType]
) -> FieldType:
    form, _, rest = type_text.partition(": ")
    if form == "one of":
        return Choice(tuple(rest.split(" | ")))
    if form == "some of":
        return ListOf(Choice(tuple(rest.split(" | "))), allows_single=True)
    if type_text.startswith("list of "):
        element_text = type_text.removeprefix("list of ")
        element_type = _field_type(row, element_text, field_types)
        return ListOf(element_type, allows_single=True)
    # An absent key is nothing: auto is a word of its own where both may be.
    for stated_text, automatic_value in (
        (type_text.removeprefix("auto or "), None),
        (type_text.removesuffix(" or auto"), "auto"),
    ):
        if stated_text != type_text:
            stated_type = _field_type(row, stated_text, field_types)
            return AutomaticType(stated_type, automatic_value)
    if type_text in QUANTITIES:
        return Quantity(
            QUANTITIES[type_text],
            row["example"],
            minimum=row["minimum"],
            maximum=row["maximum"],
        )
    known_type = field_types.get(type_text.removeprefix("block "))
    if known_type is None:
        table.refuse_row(row.place, f"type: nothing is named '{type_text}'")
    return known_type


def _default(row: table.TableRow, field_type: FieldType) -> Any:
    """The value of an absent key, or a function that returns it."""
    default_text = row["default"]
    if default_text == "defaults" and isinstance(field_type, Block):
        return field_type.default_object
    if default_text == "*":
        return lambda: tuple(clouds())
    empty_values: dict[str, Any] = {"": None, "[]": (), "{}": {}}
    if default_text in empty_values:
        return empty_values[default_text]
    report = ProblemReport()
    value = field_type.read(
        ScalarNode(row.place, default_text, is_plain=True), row["key"], report
    )
    if report.problems:
        table.refuse_row(row.place, report.problems[0].message)
    return value
