"""Generator of the reference pages in docs from commands, spec and plan types.

Run `python -m planner.cli.reference` in the root of the project, or `make docs`.
"""

from __future__ import annotations

from inspect import cleandoc
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from planner.cli.buying_page import buying_page
from planner.cli.cloud_page import cloud_page
from planner.cli.live_page import live_page
from planner.cli.main import COMMANDS, cli
from planner.facts.cloud import clouds
from planner.plan.canonical import plan_schema
from planner.plan.diff_document import diff_schema
from planner.plan.error_document import error_schema
from planner.plan.own_file import OWN_FILES
from planner.plan.portfolio_document import portfolio_schema
from planner.spec.field import ListOf
from planner.spec.kinds import SPEC_KINDS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from planner.cli.option import OptionValues
    from planner.plan.part import Properties
    from planner.spec.field import Block, Field


COMMANDS_INTRO: Final = (
    "Made from the program by `make docs`. Every flag has a variable: `--format` of `plan` is "
    "`TONNAGE_PLAN_FORMAT`. `TONNAGE_CACHE` is the folder of what one start keeps for the next, "
    "the user's own by default; when it is empty, nothing is kept. `TONNAGE_CATALOGS` is that of "
    "[catalogs with prices of today](catalog.md)."
)
CONVERTED_UNITS: Final = ("seconds", "bytes", "share", "USD a month")
SPEC_INTRO: Final = (
    "Made from the schema by `make docs`; `tonnage schema spec` prints the schema itself. Units "
    "are written as people write them: `70B`, `8k`, `800ms`, `14d`, `4TiB`, `99.9%`, "
    "`60000/month`."
)


FILES_INTRO: Final = (
    "Made from the schema by `make docs`; `tonnage schema prices` prints the schema itself. They "
    "stand beside specs. `plan --prices prices.yaml` takes prices of your own, and `buy.owned` of "
    "a spec names what is paid for already: a plan is stale when one of them has changed. `plan` "
    "and `apply` refuse what exceeds a budget of `--budgets budgets.yaml`, and with `diff` what a "
    "rule of a [policy](policy.md) denies."
)
PLAN_INTRO: Final = (
    "Made from the types by `make docs`; `tonnage schema plan` prints the JSON Schema. "
    "`tonnage plan -o FILE` writes this document: JSON with sorted keys, snake_case, money as "
    "decimal text. Equal inputs give equal bytes. `apply` carries out exactly this document, or "
    "refuses it. An unknown key, another type or a wrong digest is refused."
)


DIFF_INTRO: Final = (
    "Made from the types by `make docs`; `tonnage schema diff` prints the JSON Schema. "
    "`tonnage diff -f json` writes this document, in the manner of "
    "[the plan document](plan-document.md)."
)
PORTFOLIO_INTRO: Final = (
    "Made from the types by `make docs`; `tonnage schema portfolio` prints the JSON Schema. "
    "`tonnage plan A.yaml B.yaml --share -f json` writes this document, in the manner of "
    "[the plan document](plan-document.md); the page and the report show the same figures. "
    "`shares` of all places add up to the `saved_usd` of each workload, and `together` of the "
    "workloads that are not left out to `total.together`, both to the cent. `apply` "
    "takes plans, and no portfolio: commitments are bought for the account, and not with a stack."
)
ERROR_INTRO: Final = (
    "Made from the type by `make docs`; `tonnage schema error` prints the JSON Schema. A command "
    "with `-f json` that fails writes this document as one line. It is on standard output, where "
    "scripts look for the answer. Where a result stands there already, such as a plan that a "
    "policy denies, it is the last line of standard error. Sentences for people are on standard "
    "error in any case, and the [exit code](exit-codes.md) is that of the other formats. Events "
    "of `apply`, `destroy` and `logs` are lines, and this one is the last of them."
)


def _all_commands(
    context: click.Context,
) -> Iterator[tuple[str, click.Command]]:
    """Yield all commands by name, each group before what it holds."""
    for command_name in COMMANDS:
        command = cli.get_command(context, command_name)
        if command is None:
            continue
        yield command_name, command
        if isinstance(command, click.Group):
            for part_name, part in sorted(command.commands.items()):
                yield f"{command_name} {part_name}", part


def commands_page() -> str:
    """Return the page of all commands with their flags."""
    context = click.Context(cli, info_name="tonnage")
    page_lines = ["# Commands", "", COMMANDS_INTRO, ""]
    for command_name, command in _all_commands(context):
        argument_usages = [
            _argument_usage(help_entry)
            for help_entry in command.params
            if isinstance(help_entry, click.Argument)
        ]
        # Help is wrapped in the source; a markdown paragraph is one line.
        help_text = "\n\n".join(
            " ".join(help_entry.split())
            for help_entry in (command.help or "").split("\n\n")
        )
        usage_line = " ".join(
            ["tonnage", command_name, *argument_usages, "[FLAGS]"]
        )
        page_lines += [
            f"## {command_name}",
            "",
            f"`{usage_line}`",
            "",
            help_text,
            "",
        ]
        flag_options = [
            help_entry
            for help_entry in command.params
            if isinstance(help_entry, click.Option)
        ]
        if flag_options:
            page_lines += ["| flag | meaning |", "|---|---|"]
        page_lines += [
            f"| `{_flag_usage(help_entry)}` | {help_entry.help} |"
            for help_entry in flag_options
        ]
        page_lines.append("")
    return "\n".join(page_lines)


def _argument_usage(argument: click.Argument) -> str:
    argument_name = argument.metavar or (argument.name or "").upper()
    return argument_name if argument.required else f"[{argument_name}]"


def _flag_usage(option: click.Option) -> str:
    if option.is_flag:
        return ", ".join(option.opts)
    choices = getattr(option.type, "choices", ())
    value_text = (
        option.metavar or ", ".join(str(choice) for choice in choices) or "N"
    )
    return f"{', '.join(option.opts)} {value_text}"


def spec_page() -> str:
    """Return the page of all keys of a spec."""
    return _keys_page("# The spec", SPEC_INTRO, SPEC_KINDS)


def files_page() -> str:
    """Return the page of all keys of the files that stand beside specs."""
    return _keys_page("# Files of your own", FILES_INTRO, OWN_FILES)


def _keys_page(title: str, intro: str, blocks: Mapping[str, Block]) -> str:
    """Return a page with a table of the keys of each block."""
    page_lines = [title, "", intro, ""]
    for name, block in blocks.items():
        page_lines += [
            f"## {name}",
            "",
            block.doc,
            "",
            "| key | takes | default | meaning |",
            "|---|---|---|---|",
        ]
        page_lines += [
            field_row
            for spec_field in block.fields
            for field_row in _field_rows(spec_field, "")
        ]
        page_lines.append("")
    return "\n".join(page_lines)


def _field_rows(spec_field: Field, prefix: str) -> list[str]:
    """Return the table row of a field, and those of the fields in its block."""
    field_path = f"{prefix}{spec_field.name}"
    # A type that accepts a number or a block has the fields of the block.
    field_kind: Any = getattr(
        spec_field.field_type, "block", spec_field.field_type
    )
    if isinstance(field_kind, ListOf):
        field_kind = field_kind.element_type
        inner_prefix = f"{field_path}[]."
    else:
        inner_prefix = f"{field_path}."
    required_mark = " **required**" if spec_field.required else ""
    part_mark = " *(in part)*" if spec_field.status == "partly" else ""
    default_text = spec_field.default_text
    # A block without keys has the defaults of its own rows.
    is_told = default_text and default_text != "defaults"
    cells = (
        f"`{field_path}`",
        _accepted_text(spec_field),
        f"`{default_text}`" if is_told else "",
        f"{spec_field.doc}{required_mark}{part_mark}",
    )
    field_rows = [f"| {' | '.join(cells)} |"]
    for inner_field in getattr(field_kind, "fields", ()):
        field_rows += _field_rows(inner_field, inner_prefix)
    return field_rows


def _accepted_text(spec_field: Field) -> str:
    """Return a short description of the values that a field accepts."""
    field_schema = spec_field.field_type.schema()
    # An example such as 30m or 4TiB says its unit itself.
    counts = spec_field.unit and spec_field.unit not in CONVERTED_UNITS
    unit_text = f" ({spec_field.unit})" if counts else ""
    # A field that accepts several forms has them in anyOf.
    for schema_part in (field_schema, *field_schema.get("anyOf", [])):
        if "enum" in schema_part:
            return ", ".join(
                f"`{enum_word}`" for enum_word in schema_part["enum"]
            )
        if "examples" in schema_part:
            return f"such as `{schema_part['examples'][0]}`{unit_text}"
        if schema_part.get("type") == "array":
            return "a list"
    return "keys" if field_schema.get("type") == "object" else "text"


def plan_page() -> str:
    """Return the page of the plan document: Plan first, then its parts by name."""
    head = ["# The plan document", "", PLAN_INTRO, ""]
    return _document_page(head, plan_schema()["$defs"], "Plan")


def difference_page() -> str:
    """Return the page of the document of a difference, as that of the plan."""
    head = ["# The document of a difference", "", DIFF_INTRO, ""]
    return _document_page(head, diff_schema()["$defs"], "DiffDocument")


def portfolio_document_page() -> str:
    """Return the page of the document of a portfolio, as that of the plan."""
    head = ["# The document of a portfolio", "", PORTFOLIO_INTRO, ""]
    return _document_page(
        head, portfolio_schema()["$defs"], "PortfolioDocument"
    )


def error_page() -> str:
    """Return the page of the document of an error, as that of the plan."""
    head = ["# The document of an error", "", ERROR_INTRO, ""]
    return _document_page(head, error_schema()["$defs"], "ErrorDocument")


def _document_page(
    page_lines: list[str], definitions: Properties, first_name: str
) -> str:
    """Return a page with a table of the fields of each part, of the whole first."""
    part_names = [first_name, *sorted(set(definitions) - {first_name})]
    for part_name in part_names:
        part_schema = definitions[part_name]
        page_lines += [
            f"## {part_name}",
            "",
            # Releases of msgspec differ in whether they keep the margin of a docstring.
            cleandoc(part_schema["description"]),
            "",
            "| field | type | meaning |",
            "|---|---|---|",
        ]
        page_lines += [
            f"| `{field_name}` | {_json_type(field_schema)} | "
            f"{field_schema.get('description', '')} |"
            for field_name, field_schema in part_schema["properties"].items()
        ]
        page_lines.append("")
    return "\n".join(page_lines)


def _json_type(field_schema: OptionValues) -> str:
    """Return a short name of a field's type, with a link to a part of the plan."""
    match field_schema:
        case {"$ref": reference}:
            part_name = reference.rsplit("/", 1)[-1]
            type_text = f"[{part_name}](#{part_name.lower()})"
        case {"anyOf": choices}:
            type_text = " or ".join(_json_type(choice) for choice in choices)
        case {"enum": words}:
            type_text = ", ".join(f"`{word}`" for word in words)
        # Money is text in the document, so that it stays exact.
        case {"format": "decimal"}:
            type_text = "decimal text"
        case {"items": element_schema}:
            type_text = f"list of {_json_type(element_schema)}"
        case {"additionalProperties": dict() as value_schema}:
            type_text = f"map to {_json_type(value_schema)}"
        case _:
            type_text = str(field_schema.get("type", "any"))
    return type_text


if __name__ == "__main__":
    docs_folder = Path("docs")
    (docs_folder / "commands.md").write_text(commands_page(), encoding="utf-8")
    (docs_folder / "spec.md").write_text(spec_page(), encoding="utf-8")
    (docs_folder / "buying.md").write_text(buying_page(), encoding="utf-8")
    (docs_folder / "live.md").write_text(live_page(), encoding="utf-8")
    (docs_folder / "files.md").write_text(files_page(), encoding="utf-8")
    (docs_folder / "plan-document.md").write_text(plan_page(), encoding="utf-8")
    (docs_folder / "diff-document.md").write_text(
        difference_page(), encoding="utf-8"
    )
    (docs_folder / "portfolio-document.md").write_text(
        portfolio_document_page(), encoding="utf-8"
    )
    (docs_folder / "error-document.md").write_text(
        error_page(), encoding="utf-8"
    )
    for cloud in clouds():
        (docs_folder / "clouds" / f"{cloud}.md").write_text(
            cloud_page(cloud), encoding="utf-8"
        )
