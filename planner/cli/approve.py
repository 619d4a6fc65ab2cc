"""tonnage approve: sign a reviewed plan."""

from __future__ import annotations

from pathlib import Path

import click

from planner.cli import complete
from planner.cli.compose import read_file
from providers.files import MAX_DOCUMENT_BYTES


@click.command("approve")
@click.argument("plan", shell_complete=complete.file_names)
@click.option(
    "--key",
    metavar="FILE",
    required=True,
    type=click.Path(exists=True, dir_okay=False),
    help="Private key of SSH, or the public one of a key in the agent.",
)
def command(plan: str, key: str) -> int:
    """Sign a reviewed PLAN with ssh-keygen; apply --require-approval then checks who did.

    Example: tonnage approve chat.plan.json --key ~/.ssh/id_ed25519
    """
    from planner.plan.canonical import parse_plan
    from stacks.operate.signature import sign

    # Only what can be applied is signed.
    document = parse_plan(read_file(plan, MAX_DOCUMENT_BYTES), plan)
    signature_path = sign(Path(plan), Path(key))
    click.echo(f"approved {document.stack.name}: {signature_path}")
    click.echo(f"next: tonnage apply {plan} --require-approval ALLOWED_SIGNERS")
    return 0
