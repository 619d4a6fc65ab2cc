"""Parsers with the published arguments of programs, from files of tests/data."""

from __future__ import annotations

import argparse
import csv
from functools import cache
from typing import Any

from tests.conftest import ROOT

TYPES = {"int": int, "float": float, "": str}


class StrictParser(argparse.ArgumentParser):
    def error(self, message: str) -> Any:
        raise ValueError(message)


@cache
def parser_of(file_name: str) -> StrictParser:
    """A parser with the arguments of a file; it takes no other, and no other value."""
    made = StrictParser(allow_abbrev=False)
    path = ROOT / "tests" / "data" / file_name
    with path.open(encoding="utf-8") as stream:
        for row in csv.DictReader(stream):
            if row["kind"] == "flag":
                made.add_argument(row["argument"], action="store_true")
                continue
            made.add_argument(
                row["argument"],
                type=TYPES[row["type"]],
                nargs="*" if row["kind"] == "values" else None,
                choices=row["choices"].split("|") if row["choices"] else None,
            )
    return made
