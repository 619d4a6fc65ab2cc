"""tonnage serve: a folder of specs, plans and stacks in a browser, to be read and asked."""

from __future__ import annotations

import asyncio
import errno
import gc
import ipaddress
import os
import signal
import socket
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from planner.cli import option, progress
from planner.cli.compose import (
    load_confidence,
    open_catalog,
    open_world,
    own_catalog,
)
from planner.errors import Problem, UsageError

if TYPE_CHECKING:
    from types import FrameType

    from planner.cli.option import OptionValues
    from planner.cli.served.pool import PlannerPool

PACKAGES: Final = ("starlette", "uvicorn")
# How long an answer that is on its way may take when the server ends.
PATIENCE_S: Final = 1


@click.command("serve")
@click.argument(
    "folder",
    default=".",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
)
@click.option(
    "--host",
    default="127.0.0.1",
    metavar="ADDRESS",
    help="Listen at this address (127.0.0.1); one that others reach takes --expose.",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65_535),
    default=8080,
    metavar="N",
    help="Listen at this port (8080); 0 takes any that is free.",
)
@click.option(
    "--expose",
    is_flag=True,
    help="Let everybody read who reaches the address: there is no sign-in.",
)
@click.option(
    "--name",
    multiple=True,
    metavar="HOST",
    help="Answer to this name of a host too. May be repeated.",
)
@option.calibration
@option.prices
@option.confidence
@option.simulate
@option.engine
@option.backend
@option.catalog
def command(folder: Path, **option_values: Any) -> int:
    """Show FOLDER in a browser: its specs with their plans, saved plans, and stacks.

    Sliders ask what other traffic, limits, confidences and purchases would cost. Pages are only
    read: nothing is written, applied or sent elsewhere. Specs are planned as for new stacks.
    Stacks are those that `tonnage list` shows in the working folder, or in a backend.

    It needs the extra: pip install 'tonnage[serve]'.

    Example: tonnage serve specs --port 8080
    """
    require_packages()
    host = option_values["host"]
    if not is_loopback(host) and not option_values["expose"]:
        raise UsageError(
            Problem(
                code="serve",
                message=f"others may reach {host}, and pages have no sign-in",
                cause="whoever reads them sees specs, prices and stacks",
                next_step="leave out --host, or say --expose behind a proxy that signs people in",
            )
        )
    signal.signal(signal.SIGTERM, _end)
    # This process does not end with what it was asked for.
    gc.enable()
    with (
        open_socket(host, option_values["port"]) as listening,
        suppress(KeyboardInterrupt),
    ):
        asyncio.run(_serve(folder.resolve(), listening, option_values))
    click.echo("stopped", err=True)
    return 0


def require_packages() -> None:
    """Raise UsageError without what serves pages."""
    if all(find_spec(package) for package in PACKAGES):
        return
    raise UsageError(
        Problem(
            code="serve",
            message="pages need the Python packages starlette and uvicorn",
            next_step="install them with: pip install 'tonnage[serve]'",
        )
    )


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def open_socket(host: str, port: int) -> socket.socket:
    """Return a socket that listens. Raises UsageError for an address that cannot be had."""
    try:
        family, *_, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM
        )[0]
        return socket.create_server(address[:2], family=family)
    except OSError as error:
        is_taken = error.errno == errno.EADDRINUSE
        # What is said of a name that leads nowhere has no number.
        cause = (
            str(error.strerror)
            if isinstance(error, socket.gaierror)
            else os.strerror(error.errno or 0)
        )
        raise UsageError(
            Problem(
                code="address",
                message=f"cannot listen at {host}, port {port}: {cause}",
                next_step="take another one: --port 0"
                if is_taken
                else "name an address of this machine: --host 127.0.0.1",
            )
        ) from error


async def _serve(
    folder: Path, listening: socket.socket, option_values: OptionValues
) -> None:
    """Plan what there is, and answer until a signal ends it."""
    from planner.cli.served.pool import PlannerPool

    options = option.planning_options(option_values)
    # What is wrong with a file of a flag is said before anybody asks.
    catalog = open_catalog(options.catalog, open_world(options.simulate))
    own_catalog(catalog, options.prices)
    load_confidence(options)
    pool = PlannerPool(folder, options)
    try:
        await _answer_calls(
            folder, pool, listening, option_values, as_of=catalog.as_of
        )
    finally:
        pool.close()


async def _answer_calls(
    folder: Path,
    pool: PlannerPool,
    listening: socket.socket,
    option_values: OptionValues,
    *,
    as_of: str,
) -> None:
    from uvicorn import Config, Server

    from planner.cli.file_tree import FolderTree
    from planner.cli.served.app import FolderPages
    from planner.cli.served.guard import Guard
    from planner.cli.served.library import Library

    library = Library(FolderTree(folder), pool, option_values["confidence"])
    with progress.counting(len(library.specs())) as count:
        await library.listed_specs(count)
    host, port = listening.getsockname()[:2]
    app = Guard(
        FolderPages(library, folder.name, as_of).app(),
        frozenset({*option_values["name"], option_values["host"]}),
        is_public=not is_loopback(option_values["host"]),
    )
    shown_host = f"[{host}]" if ":" in host else host
    click.echo(
        f"serving {click.format_filename(folder)} at http://{shown_host}:{port}/   "
        "Ctrl-C ends it",
        err=True,
    )
    config = Config(
        app,
        log_config=None,
        log_level="critical",
        access_log=False,
        lifespan="off",
        ws="none",
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=PATIENCE_S,
    )
    await Server(config).serve(sockets=[listening])


def _end(_signal: int, _frame: FrameType | None) -> None:
    # The same end as that of a Ctrl-C, which leaves no worker behind.
    raise KeyboardInterrupt
