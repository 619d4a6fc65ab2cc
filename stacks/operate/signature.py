"""Signatures of plans, made and checked with the user's own ssh-keygen.

A digest tells that a document is whole, and anybody can make one. A signature tells who approved.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Final

from planner.errors import PolicyError, Problem, UsageError

TOOL: Final = "ssh-keygen"
# What signatures are for, so that those of other documents are not taken.
NAMESPACE: Final = "tonnage-plan"
SUFFIX: Final = ".sig"
TIMEOUT_S: Final = 120


def sign(document_path: Path, key_path: Path) -> Path:
    """Sign a file with a private key, and return the file of the signature beside it.

    A key with a passphrase is asked for by the tool, or taken from the agent of the user. Raises
    UsageError without the tool, or with a key that it cannot use.
    """
    signature_path = Path(f"{document_path}{SUFFIX}")
    signature_path.unlink(missing_ok=True)
    _run(
        ["-Y", "sign", "-f", str(key_path), "-n", NAMESPACE, str(document_path)]
    )
    return signature_path


def verify(document_path: Path, document: bytes, signers_path: Path) -> str:
    """Return who signed a document, of those in a file of allowed signers.

    Raises PolicyError without a signature, or with that of somebody else.
    """
    signature_path = Path(f"{document_path}{SUFFIX}")
    if not signature_path.is_file():
        raise _unapproved(document_path, f"there is no {signature_path.name}")
    signers = ["-f", str(signers_path)]
    signature = ["-s", str(signature_path)]
    try:
        principals = _run(["-Y", "find-principals", *signature, *signers])
        principal = principals.split()[0]
        _run(
            [
                "-Y",
                "verify",
                *signers,
                "-I",
                principal,
                "-n",
                NAMESPACE,
                *signature,
            ],
            document,
        )
    except (UsageError, IndexError) as error:
        raise _unapproved(
            document_path,
            f"{signature_path.name} is of nobody in {signers_path}",
        ) from error
    return principal


def _run(arguments: list[str], stdin: bytes | None = None) -> str:
    tool_path = shutil.which(TOOL)
    if tool_path is None:
        raise UsageError(
            Problem(
                code="signature",
                message=f"{TOOL} was not found",
                next_step="install OpenSSH, which has it",
            )
        )
    result = subprocess.run(  # noqa: S603 - the tool that the user has installed
        [tool_path, *arguments],
        input=stdin,
        capture_output=True,
        check=False,
        timeout=TIMEOUT_S,
    )
    if result.returncode:
        raise UsageError(
            Problem(
                code="signature",
                message="the signature cannot be made or checked",
                cause=result.stderr.decode(errors="replace").strip(),
                next_step="check the files of the keys",
            )
        )
    return result.stdout.decode(errors="replace")


def _unapproved(document_path: Path, cause: str) -> PolicyError:
    return PolicyError(
        Problem(
            code="approval",
            message=f"{document_path} is not approved",
            cause=cause,
            next_step=f"review and sign it: tonnage approve {document_path} --key KEY",
        )
    )
