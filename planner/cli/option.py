"""Options that several commands share, and output of results."""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar
from urllib.parse import urlsplit

import click

from planner.cli import complete
from planner.cli.answer import current
from planner.cli.compose import DEFAULT_WORLD, PlanningOptions

if TYPE_CHECKING:
    from collections.abc import Callable

    from planner.render.listing import Rows
    from planner.render.page import Page

# Flags by name, as click has read them.
OptionValues: TypeAlias = dict[str, Any]
CommandT = TypeVar("CommandT", bound="Callable[..., Any]")
catalog = click.option(
    "--catalog",
    shell_complete=complete.file_names,
    metavar="FILE",
    help="Use the catalog of this manifest.json.",
)
simulate = click.option(
    "--simulate",
    shell_complete=complete.file_names,
    metavar="WORLD.yaml",
    is_flag=False,
    flag_value=DEFAULT_WORLD,
    help="Work on simulated clouds, optionally those of a world file.",
)
engine = click.option(
    "--engine",
    type=click.Choice(["pulumi", "simulated"]),
    help="What carries the plan out; simulated is the default with --simulate.",
)
# Services that keep Pulumi's states have addresses of the web.
BACKEND_SCHEMES = ("file", "s3", "gs", "azblob", "https")


def check_backend(
    _context: click.Context, _parameter: click.Parameter, url_text: str | None
) -> Any:
    """Return the URL of a backend; raises BadParameter for one that no state can be kept at.

    A URL with a password is refused: it would be in every command that is suggested.
    """
    if url_text is None:
        return None
    from planner.render.clean import without_secrets

    url = urlsplit(url_text)
    if url.scheme not in BACKEND_SCHEMES:
        schemes = ", ".join(f"{scheme}://" for scheme in BACKEND_SCHEMES)
        raise click.BadParameter(f"begin it with one of {schemes}")
    if "@" in url.netloc or without_secrets(url_text) != url_text:
        raise click.BadParameter(
            "it has a password: sign in with the tools of the cloud instead"
        )
    if url.scheme != "file" and not url.netloc:
        raise click.BadParameter(f"name a bucket: {url.scheme}://BUCKET")
    return url_text


backend = click.option(
    "--backend",
    metavar="URL",
    callback=check_backend,
    help="Where Pulumi keeps its state: file://, s3://, gs://, azblob://; default .tonnage.",
)


def check_stack_name(
    _context: click.Context, _parameter: click.Parameter, name_text: str | None
) -> Any:
    """Return a stack name; raises BadParameter when it is invalid.

    A stack name becomes a file name and a tag, so the rules are those of a spec's name.
    """
    from planner.spec.stack_name import STACK_NAME, STACK_NAME_HINT

    if name_text is not None and not STACK_NAME.fullmatch(name_text):
        raise click.BadParameter(f"use {STACK_NAME_HINT}")
    return name_text


stack_argument = click.argument(
    "stack", callback=check_stack_name, shell_complete=complete.stack_names
)
stack = click.option(
    "--stack",
    shell_complete=complete.stack_names,
    metavar="NAME",
    callback=check_stack_name,
    help="Plan on this stack; default the spec's name.",
)
alternatives = click.option(
    "--alternatives",
    type=click.IntRange(0, 20),
    default=3,
    metavar="N",
    help="Show N alternatives of each sort (3).",
)
confidence = click.option(
    "--confidence",
    type=click.IntRange(50, 99),
    default=90,
    metavar="PERCENT",
    help="Meet the SLA with this confidence in the predictions (90).",
)
calibration = click.option(
    "--calibration",
    shell_complete=complete.file_names,
    metavar="FILE",
    help="Use what your own benchmark taught: see calibrate.",
)


def parse_months(
    _context: click.Context, _parameter: click.Parameter, span_text: str | None
) -> Any:
    """Return a span of time in months; raises BadParameter for another text."""
    from planner.spec.unit import parse_months as months_of

    try:
        return None if span_text is None else months_of(span_text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


stops_after = click.option(
    "--stops-after",
    metavar="SPAN",
    callback=parse_months,
    help="Say what commitments lose when the workload ends then: 4 months, 120d, 1 year.",
)
prices = click.option(
    "--prices",
    shell_complete=complete.file_names,
    metavar="FILE",
    help="Plan at prices of your own: discounts, rates, support, tax, credits.",
)


def parse_overrides(
    _context: click.Context,
    _parameter: click.Parameter,
    texts: tuple[str, ...],
) -> Any:
    """Return keys of a spec that say something else; raises BadParameter for no KEY=VALUE."""
    from planner.spec.override import parse_override

    try:
        return tuple(map(parse_override, texts))
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


overrides = click.option(
    "--set",
    metavar="KEY=VALUE",
    multiple=True,
    callback=parse_overrides,
    help="Plan as if a key of the specs said this: traffic.peak_rps=12. May be repeated. Such a "
    "plan can be compared; to apply it, write it into the spec.",
)
output = click.option(
    "-o",
    "--output",
    shell_complete=complete.file_names,
    metavar="FILE",
    help="Write the result to FILE.",
)
color = click.option(
    "--color",
    type=click.Choice(["auto", "always", "never"]),
    default="auto",
    help="Color the output; auto colors terminals and honors NO_COLOR.",
)
no_input = click.option(
    "--no-input", is_flag=True, help="Never ask; refuse where one would."
)
full_rows = click.option(
    "--full",
    is_flag=True,
    help="Show every column as text, too: lines are longer than a terminal.",
)
PERMISSIONS = ("delete-data", "drift", "outage", "production")


def can_ask(option_values: OptionValues) -> bool:
    """Whether a person sits there who may be asked."""
    return sys.stdin.isatty() and not option_values["no_input"]


def parse_permissions(
    _context: click.Context, _parameter: click.Parameter, names_text: str
) -> Any:
    """Return the permissions of a list with commas; raises BadParameter for another word."""
    names = frozenset(filter(None, names_text.split(",")))
    for name in sorted(names):
        if name not in PERMISSIONS:
            raise click.BadParameter(
                f"'{name}' is none of {', '.join(PERMISSIONS)}"
            )
    return names


allow = click.option(
    "--allow",
    metavar="WHAT,...",
    default="",
    callback=parse_permissions,
    help="Allow delete-data, outage, changes in production, and to undo drift: changes by others. "
    "Each by its word.",
)
exit_code = click.option(
    "--exit-code", is_flag=True, help="Exit with 20 when something changes."
)
detailed_exitcode = click.option(
    "--detailed-exitcode",
    is_flag=True,
    help="Exit as Terraform does: 0 no change, 1 error, 2 changes.",
)
CHANGED_EXIT_CODE = 20
TERRAFORM_EXIT_CODE = 2


def format_option(
    *format_names: str, is_stream: bool = False
) -> Callable[[CommandT], CommandT]:
    """Return the --format option of a command; the first format is the default.

    JSON of a stream is lines, each a document.
    """

    def note_format(
        _context: click.Context, _parameter: click.Parameter, name: str
    ) -> str:
        answer = current()
        answer.format, answer.is_stream = name, is_stream
        return name

    return click.option(
        "-f",
        "--format",
        "format",
        type=click.Choice(format_names),
        default=format_names[0],
        callback=note_format,
        # An error of another flag is told in the format, too.
        is_eager=True,
        help=f"Write {', '.join(format_names)} ({format_names[0]}).",
    )


def planning_flags(command: CommandT) -> CommandT:
    """Add the options of commands that plan."""
    # The last decorator is the first option in the help.
    for decorator in (
        engine,
        backend,
        stack,
        alternatives,
        calibration,
        stops_after,
        prices,
        confidence,
        simulate,
        catalog,
    ):
        command = decorator(command)
    return command


def planning_options(option_values: OptionValues) -> PlanningOptions:
    """Return the planning options among the parameters of a command."""
    option_names = (
        "catalog",
        "simulate",
        "stack",
        "alternatives",
        "engine",
        "backend",
        "confidence",
        "calibration",
        "stops_after",
        "prices",
        "is_live",
        "replay",
        "policy_pack",
    )
    return PlanningOptions(
        **{
            option_name: option_values[option_name]
            for option_name in option_names
            # Some commands have only a part of these options.
            if option_name in option_values
        }
    )


def wants_color(color_mode: str) -> bool:
    """Return whether output is colored, from --color and the environment.

    With auto: NO_COLOR and TERM=dumb disable color, FORCE_COLOR enables it. Otherwise only a
    terminal has color.
    """
    if color_mode != "auto":
        return color_mode == "always"
    # NO_COLOR takes precedence over FORCE_COLOR.
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return bool(os.environ.get("FORCE_COLOR")) or sys.stdout.isatty()


def terminal_width() -> int | None:
    """Return the columns of the terminal, at least 60; None without a terminal."""
    if not sys.stdout.isatty():
        return None
    import shutil

    return max(60, shutil.get_terminal_size().columns)


def today() -> str:
    """Return the date in UTC as 2026-07-30, or that of SOURCE_DATE_EPOCH where it is set."""
    epoch_text = os.environ.get("SOURCE_DATE_EPOCH")
    if epoch_text and epoch_text.isdigit():
        return datetime.fromtimestamp(int(epoch_text), UTC).date().isoformat()
    return datetime.now(UTC).date().isoformat()


def print_page(
    page: Page,
    output_format: str,
    color_mode: str = "auto",
    path: str | None = None,
) -> None:
    """Write a page as text or markdown to standard output, or to a file when `path` names one.

    A file has neither color nor the width of the terminal.
    """
    if output_format == "markdown":
        from planner.render import markdown

        write_output(markdown.render(page), path)
        return
    from planner.render import text

    if path:
        write_output(text.render(page), path)
        return
    write_output(
        text.render(page, color=wants_color(color_mode), width=terminal_width())
    )


def write_rows(
    rows: Rows, option_values: OptionValues, *, without: tuple[str, ...] = ()
) -> None:
    """Write rows in the format of a command.

    Text fits a terminal, and leaves out the columns `without`; with --full it does neither.
    """
    from planner.render.listing import render_rows
    from planner.render.page import LINE_WIDTH

    is_full = option_values.get("full", False)
    write_output(
        render_rows(
            rows,
            option_values["format"],
            color=wants_color(option_values["color"]),
            width=None if is_full else terminal_width() or LINE_WIDTH,
            without=() if is_full else without,
        )
    )


def write_output(text: str, path: str | None = None) -> None:
    """Write a result to standard output, or to a file when `path` names one.

    A regular file is replaced as a whole; a pipe or device is written to.
    """
    if path is None or path == "-":
        current().has_result = True
        sys.stdout.write(text)
        sys.stdout.flush()
        return
    target_path = Path(path)
    if target_path.is_dir():
        raise click.UsageError(f"-o {path} is a directory: name a file")
    # A rename would replace the device or pipe by a file.
    if target_path.exists() and not target_path.is_file():
        target_path.write_text(text, encoding="utf-8")
        return
    from providers.files import write_atomically

    # An interrupted write must not leave half of a plan.
    write_atomically(target_path, text, is_private=False)
