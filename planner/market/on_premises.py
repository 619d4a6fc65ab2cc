"""Machines of one's own: what they cost a month, over the years in which they are used."""

from __future__ import annotations

from decimal import Decimal
from functools import cache
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from planner.facts import table
from planner.spec.field import Block, read_document
from planner.spec.field_table import block_fields
from planner.units import HOURS_PER_MONTH, MONTHS_PER_YEAR

if TYPE_CHECKING:
    from planner.errors import Place


# Units of plain numbers, which nobody writes behind them.
PLAIN_UNITS: Final = ("share", "ratio")


class OwnMachine(Struct, frozen=True, kw_only=True):
    """A kind of machine: its accelerators, how many there are, price in USD and power in kW.

    `network_gbps` is None where the file does not say it.
    """

    place: Place
    name: str
    accelerator: str
    accelerators_per_node: int
    nodes: int
    price: Decimal
    power: Decimal
    network_gbps: Decimal | None


class DataCenter(Struct, frozen=True, kw_only=True):
    """Machines of one's own, and what it takes to run them.

    years            of use
    electricity      USD a kWh
    pue              power of the site over that of its machines
    space            USD a machine and month, or None: `kw_usd` a month for each kW of it
    staff            USD a month for all machines
    utilization      share of the hours in which they draw their power
    residual         share of the price that is left at the end
    cost_of_capital  what money costs a year, as a share
    assumed          keys that the file leaves out, with the source of what stands for them
    """

    place: Place
    machines: tuple[OwnMachine, ...]
    years: Decimal | None
    electricity: Decimal | None
    pue: Decimal | None
    space: Decimal | None
    staff: Decimal | None
    utilization: Decimal | None
    residual: Decimal | None
    cost_of_capital: Decimal | None
    kw_usd: Decimal = Decimal(0)
    assumed: tuple[tuple[str, str], ...] = ()

    def running_usd(self, machine: OwnMachine) -> Decimal:
        """Return what one machine costs a month besides its price, USD.

        power * PUE * 730 * utilization * electricity + space + staff / all machines
        with space = power * USD a kW and month where the file does not state it
        """
        energy_kwh = (
            machine.power * self.value_of("pue") * HOURS_PER_MONTH
        ) * self.value_of("utilization")
        all_machines = sum(each.nodes for each in self.machines)
        space_usd = self.space
        if space_usd is None:
            space_usd = machine.power * self.kw_usd
        return (
            energy_kwh * self.value_of("electricity")
            + space_usd
            + self.value_of("staff") / all_machines
        )

    def capital_usd(self, machine: OwnMachine, years: Decimal) -> Decimal:
        """Return what the price of one machine costs a month over some years, USD.

        left    = price * residual, whenever the years are over
        r = (1 + cost of capital) ** (1 / 12) - 1, n = 12 * years
        annuity = (price - left / (1 + r) ** n) * r / (1 - (1 + r) ** -n)
        Without cost of capital it is (price - left) / n.
        """
        months = years * MONTHS_PER_YEAR
        left_usd = machine.price * self.value_of("residual")
        rate = (1 + self.value_of("cost_of_capital")) ** (
            Decimal(1) / MONTHS_PER_YEAR
        ) - 1
        if rate == 0:
            return (machine.price - left_usd) / months
        growth = (1 + rate) ** months
        return (machine.price - left_usd / growth) * rate / (1 - 1 / growth)

    def month_usd(self, machine: OwnMachine, years: Decimal) -> Decimal:
        """Return what one machine costs a month over some years, USD."""
        return self.running_usd(machine) + self.capital_usd(machine, years)

    def value_of(self, key: str) -> Decimal:
        """Return a number of the file, or what stands for it."""
        value: Decimal = getattr(self, key)
        return value


class _Assumption(Struct, frozen=True):
    """What stands for a key that is left out, with its unit and its source."""

    value: Decimal
    unit: str
    source: str

    def text(self, key: str) -> str:
        """Return it for people: a share has no unit, and years have said theirs."""
        unit = "" if self.unit in (*PLAIN_UNITS, key) else f" {self.unit}"
        return f"{key} {self.value:f}{unit}"


@cache
def _assumptions() -> dict[str, _Assumption]:
    """Return what stands for keys that are left out."""
    columns: table.Columns = {
        "key": table.nonempty_text,
        "value": table.finite_decimal,
        "unit": table.nonempty_text,
        **table.SOURCE_COLUMNS,
    }
    return {
        row["key"]: _Assumption(
            row["value"], row["unit"], f"{row['source']}, {row['as_of']}"
        )
        for row in table.load_rows("planner.market", "on_premises.csv", columns)
    }


ON_PREMISES_FILE: Final = Block(
    "on_premises",
    DataCenter,
    block_fields(
        "on_premises",
        "on_premises",
        {
            "machine": Block(
                "machine", OwnMachine, block_fields("on_premises", "machine")
            )
        },
    ),
    doc="Machines of your own, which a plan is compared with: what is left out is assumed.",
)


def read_data_center(file_bytes: bytes, path: str) -> DataCenter:
    """Return the machines of a file. Raises SpecError with all of its problems."""
    stated: DataCenter = read_document(ON_PREMISES_FILE, file_bytes, path)
    assumed = {
        key: assumption
        for key, assumption in _assumptions().items()
        if getattr(stated, key) is None
    }
    return replace(
        stated,
        **{
            # A machine takes as much room as its power does.
            "kw_usd" if key == "space" else key: assumption.value
            for key, assumption in assumed.items()
        },
        assumed=tuple(
            (assumption.text(key), assumption.source)
            for key, assumption in assumed.items()
        ),
    )
