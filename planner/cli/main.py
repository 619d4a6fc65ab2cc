"""Entry point: lazily imported commands, and conversion of errors to exit codes."""

from __future__ import annotations

import codecs
import gc
import importlib
import io
import os
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from planner.cli.answer import CommandAnswer
from planner.version import VERSION

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

# Summaries are here, so that help imports no command.
COMMANDS: Final = {
    "init": "write a commented spec from a blueprint",
    "check": "validate specs, offline",
    "plan": "solve a spec: what to buy, what it costs, what is created",
    "show": "render a saved plan again",
    "explain": "why this, why not that, what would more traffic cost",
    "calibrate": "learn from your own benchmark, or say which one to run",
    "bench": "measure the fleet of a spec on one machine, and learn from it",
    "estimate": "what an exactly given fleet, or a table of them, would do",
    "diff": "cost difference of two specs or plans, or of a branch and its base",
    "comment": "post a report to a pull request",
    "doctor": "what stands between a plan and its apply",
    "apply": "create or change what a plan says",
    "approve": "sign a reviewed plan",
    "destroy": "delete everything of a stack but its data",
    "list": "all stacks of a backend",
    "status": "what a stack has and costs now",
    "usage": "what a stack has cost, by cost exports of its cloud",
    "review": "planned beside actual cost, and what a move would save",
    "history": "what was done with a stack, by whom and when",
    "orphans": "what tonnage has made and no stack knows",
    "rename": "give a stack another name",
    "import": "let a stack take over an object that there is already",
    "drift": "what in the cloud is not as the last apply left it",
    "recover": "look up what a run that was cut off had begun",
    "unlock": "free the lock that a dead run has left",
    "upload": "bring weights, or the job of a training, to a stack",
    "batch": "submit requests to a batch, and take its answers",
    "logs": "what the machines of a stack have written",
    "connect": "open a shell on a machine of a stack",
    "start": "let the machines of a stack come back",
    "stop": "give the machines of a stack back, and keep the rest",
    "scale": "another number of machines for a pool of a stack",
    "simulate": "let time pass in the simulated clouds, and see their bill",
    "quota": "what an account may have in a region, and asking for more",
    "catalog": "the dated catalog of offers and prices",
    "models": "models that can be sized",
    "offers": "what can be bought, sorted by price",
    "serve": "show a folder of specs, plans and stacks in a browser",
    "schema": "JSON Schema of a spec, a plan, an error or a file of your own",
    "completion": "completion script for bash, zsh or fish",
}
# A word of Python cannot be the name of a module.
MODULES: Final = {"import": "import_object"}
PLAIN_LETTERS: Final = "tonnage-plain"
PLAIN_FORMS: Final = {
    "·": "-",
    "±": "+-",
    "\u00d7": "x",
    "≤": "<=",
    "→": "->",
    "…": "...",
    "\u2013": "-",
    "█": "#",
    "░": ".",
    "▁": "_",
    "▂": ".",
    "▃": ":",
    "▄": "=",
    "▅": "+",
    "▆": "*",
    "▇": "%",
}
USAGE_EXIT_CODE: Final = 2


class LazyCommandGroup(click.Group):
    """A click group that imports a command only when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """Return the command names in the order of `COMMANDS`."""
        return list(COMMANDS)

    def get_command(
        self,
        ctx: click.Context,  # noqa: ARG002
        name: str,
    ) -> click.Command | None:
        """Import and return a command; None when it does not exist."""
        if name not in COMMANDS:
            return None
        module_name = MODULES.get(name, name)
        command: click.Command = importlib.import_module(
            f"planner.cli.{module_name}"
        ).command
        return command

    def format_commands(
        self,
        ctx: click.Context,  # noqa: ARG002
        formatter: click.HelpFormatter,
    ) -> None:
        """Write the list of commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def shell_complete(
        self, ctx: click.Context, incomplete: str
    ) -> list[CompletionItem]:
        """Offer the commands and the flags of the program, without importing a command."""
        from click.shell_completion import CompletionItem

        return [
            *(
                CompletionItem(name, help=summary)
                for name, summary in COMMANDS.items()
                if name.startswith(incomplete)
            ),
            *click.Command.shell_complete(self, ctx, incomplete),
        ]

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Resolve a command; an unknown name fails with the nearest known one."""
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            from planner.suggest import closest

            close_name = closest(args[0], COMMANDS)
            suggestion = f" Did you mean '{close_name}'?" if close_name else ""
            ctx.fail(f"No such command '{args[0]}'.{suggestion}")
        return super().resolve_command(ctx, args)


@click.group(
    cls=LazyCommandGroup,
    context_settings={
        "help_option_names": ["-h", "--help"],
        "auto_envvar_prefix": "TONNAGE",
        "show_default": False,
        "max_content_width": 100,
    },
)
@click.version_option(
    VERSION,
    "-V",
    "--version",
    message="tonnage %(version)s",
    # TONNAGE_VERSION is what a pipeline installs.
    allow_from_autoenv=False,
)
@click.option(
    "-C",
    "directory",
    metavar="DIR",
    help="Work in DIR.",
    type=click.Path(exists=True, file_okay=False),
)
def cli(directory: str | None) -> None:
    """From a workload spec to the cheapest GPU infrastructure that meets it.

    Example: tonnage init --blueprint chat-8b && tonnage plan chat-8b.yaml
    """
    if directory:
        os.chdir(directory)


def foreign_folders() -> list[str]:
    """Return our top folders that Python would take from elsewhere: another distribution's."""
    home = Path(__file__).resolve().parents[2]
    return [
        name
        for name in ("providers", "stacks", "blueprints")
        if (spec := find_spec(name)) is not None
        and str(home / name)
        not in map(str, spec.submodule_search_locations or ())
    ]


def main(argv: list[str] | None = None) -> None:
    """Run the command line and exit with its code."""
    # Collecting garbage takes a fifth of a command's time and finds little. The process ends with
    # the command, so nobody else is left without a collector.
    gc.disable()
    _open_streams()
    strangers = foreign_folders()
    if strangers:
        click.echo(
            f"error[install]: another distribution owns {', '.join(strangers)}; "
            "install tonnage into an environment of its own: pipx install tonnage",
            err=True,
        )
        sys.exit(USAGE_EXIT_CODE)
    exit_code = run(sys.argv[1:] if argv is None else argv)
    gc.freeze()  # the collection at exit then finds nothing to walk through
    sys.exit(exit_code)


def _plain_letters(error: UnicodeError) -> tuple[str, int]:
    """Return what stands for letters that an output does not have."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    letters = error.object[error.start : error.end]
    plain = "".join(PLAIN_FORMS.get(letter, "?") for letter in letters)
    return plain, error.end


def _open_streams() -> None:
    """Let every write succeed: streams may be closed, or know no letters beyond ASCII."""
    codecs.register_error(PLAIN_LETTERS, _plain_letters)
    for stream_name in ("stdout", "stderr"):
        stream = getattr(sys, stream_name)
        if stream is None:
            # The process owns it until it ends.
            stream = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115
            setattr(sys, stream_name, stream)
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=PLAIN_LETTERS)


def run(argv: list[str]) -> int:
    """Run the command line and return the exit code; no exception leaves it."""
    answer = CommandAnswer()
    try:
        return_value = cli.main(
            args=argv, prog_name="tonnage", standalone_mode=False, obj=answer
        )
    except SystemExit:
        # Only a pipe that was closed ends it so: whoever read it has what they wanted.
        _drop_output()
        return 0
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - the choke point: no traceback reaches a user
        return _reported(error, answer, argv)
    return return_value if isinstance(return_value, int) else 0


def _reported(
    error: BaseException, answer: CommandAnswer, argv: list[str]
) -> int:
    """Report what ended a command, as far as anybody hears it, and return its exit code."""
    from planner.cli import failure

    try:
        return failure.report(error, answer, argv)
    except OSError:
        # Nobody hears it any more.
        _drop_output()
        return failure.exit_code_of(error, argv)


def _drop_output() -> None:
    """Let nobody hear what comes: the flush at exit must not fail again."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        os.dup2(nowhere, stream.fileno())


if __name__ == "__main__":
    main()
