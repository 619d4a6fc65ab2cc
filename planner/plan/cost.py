"""The bill in the plan document: of a month, of a run, or of the life of what stands."""

from __future__ import annotations

from decimal import Decimal  # noqa: TC003 - msgspec reads the annotations
from typing import Annotated, Literal

from msgspec import Meta

from planner.plan.part import DocumentPart, Number, Period


class CostLine(DocumentPart, frozen=True, kw_only=True):
    """One line of the bill; without a price, `usd` is none and `price_found` false."""

    name: Annotated[str, Meta(description="what is paid for")]
    kind: Annotated[str, Meta(description="sort of line")]
    unit: Annotated[str, Meta(description="unit of the quantity")]
    quantity: Annotated[Decimal, Meta(description="units of the period")]
    unit_price: Annotated[Decimal | None, Meta(description="USD of one unit")]
    usd: Annotated[Decimal | None, Meta(description="of the period")]
    pool: Annotated[
        str | None, Meta(description="the pool whose machines it pays for")
    ] = None
    price_source: Annotated[
        str | None, Meta(description="id of the price's source")
    ]
    price_as_of: Annotated[str | None, Meta(description="date of the price")]
    price_row: Annotated[
        str | None,
        Meta(
            description="row of the catalog that has the price; none for a price from elsewhere"
        ),
    ] = None
    price_is_old: Annotated[
        bool,
        Meta(description="whether the catalog is more than a year younger"),
    ]
    price_found: Annotated[bool, Meta(description="whether a price is known")]


class PriceOrigin(DocumentPart, frozen=True, kw_only=True):
    """A source that prices of the bill name, as the catalog describes it."""

    name: Annotated[str, Meta(description="as price_source names it")]
    what: Annotated[str, Meta(description="what it is")]
    as_of: Annotated[
        str, Meta(description="date of what it says, as far as it is known")
    ]
    url: Annotated[
        str | None, Meta(description="its address; none where none is noted")
    ] = None


class Life(DocumentPart, frozen=True, kw_only=True):
    """What each machine is billed for from its launch to its release, hours."""

    hours: Annotated[Number, Meta(description="boot, work and tail together")]
    boot_hours: Annotated[Number, Meta(description="until it works")]
    work_hours: Annotated[Number, Meta(description="of work")]
    tail_hours: Annotated[
        Number, Meta(description="from the end of the work to the release")
    ]
    ended_by: Annotated[
        Literal["done", "idle", "window", "ttl"],
        Meta(
            description="done: the job says so; idle: the idle limit; window: the end of its "
            "day; ttl: the time to live"
        ),
    ]


class CostCause(DocumentPart, frozen=True, kw_only=True):
    """What the bill would be if only one thing were other than planned."""

    cause: Annotated[
        Literal["work", "prices", "months", "traffic", "reclaims"],
        Meta(
            description="work: speed, failures and reclaims of what ends; prices: what they are "
            "since their dates; months: their days; traffic: that of a service, of which a month "
            "has more or less than its spec says; reclaims: how often a cloud takes back its "
            "machines on spot, at both ends of what is published"
        ),
    ]
    low: Annotated[Decimal, Meta(description="one in 20 is less, USD")]
    high: Annotated[Decimal, Meta(description="one in 20 is more, USD")]


class CostBand(DocumentPart, frozen=True, kw_only=True):
    """Between which amounts 90 % of such bills are, of the lines whose price is known."""

    low: Annotated[Decimal, Meta(description="one in 20 is less, USD")]
    high: Annotated[Decimal, Meta(description="one in 20 is more, USD")]
    causes: Annotated[
        tuple[CostCause, ...],
        Meta(
            description="what moves it, the most first; their distances from the total add up as "
            "those of independent errors do, by their squares"
        ),
    ]
    dearest_month_usd: Annotated[
        Decimal | None,
        Meta(
            description="the dearest month of four years, with all else as planned; none of what "
            "is not billed by the month"
        ),
    ] = None


class TokenCost(DocumentPart, frozen=True, kw_only=True):
    """What tokens and requests cost: the total over those of its period.

    A lower bound where the total is: where a line has no price.
    """

    prompt_tokens: Annotated[
        Number, Meta(description="read in the period; 0 for training")
    ]
    output_tokens: Annotated[
        Number, Meta(description="written in the period; 0 for training")
    ]
    trained_tokens: Annotated[
        Number, Meta(description="trained on in the run; 0 for serving")
    ]
    usd_per_million_output: Annotated[
        Decimal | None,
        Meta(description="all cost over output tokens; none for training"),
    ]
    usd_per_million: Annotated[
        Decimal, Meta(description="all cost over all tokens, blended")
    ]
    requests: Annotated[
        Number, Meta(description="answered in the period; 0 for training")
    ] = 0
    usd_per_thousand_requests: Annotated[
        Decimal | None,
        Meta(description="all cost over requests; none for training"),
    ] = None


class CommitmentRegret(DocumentPart, frozen=True, kw_only=True):
    """What a commitment loses against on demand in a future that was not planned."""

    scenario: Annotated[str, Meta(description="ends, traffic or price")]
    meaning: Annotated[str, Meta(description="what happens then")]
    usd: Annotated[
        Decimal,
        Meta(
            description="what its term costs more than on demand would have; 0 where it still "
            "saves something"
        ),
    ]


class CommitmentOption(DocumentPart, frozen=True, kw_only=True):
    """A commitment to some of the machines, against all of them on demand."""

    purchase: Annotated[str, Meta(description="how they would be bought")]
    form: Annotated[
        str | None,
        Meta(
            description="reserved_instance, savings_plan, reservation, …; null where it is not "
            "known, or machines of two types have two"
        ),
    ] = None
    nodes: Annotated[int, Meta(description="for how many it saves the most")]
    saved_usd_month: Annotated[
        Decimal, Meta(description="what the bill of a month is less")
    ]
    committed_usd: Annotated[
        Decimal, Meta(description="cost of its whole term, used or not")
    ]
    pays_after_months: Annotated[
        Number,
        Meta(
            description="a workload that ends earlier would have cost less on demand"
        ),
    ]
    pays_above_hours: Annotated[
        Number,
        Meta(
            description="hours a month above which a machine costs less committed than on demand"
        ),
    ]
    regrets: Annotated[
        tuple[CommitmentRegret, ...],
        Meta(description="what it loses in each of some futures"),
    ]


class HostedCost(DocumentPart, frozen=True, kw_only=True):
    """The same tokens at a service that sells the model by the token."""

    provider: Annotated[str, Meta(description="who sells it")]
    name: Annotated[str, Meta(description="what the model is called there")]
    usd: Annotated[
        Decimal, Meta(description="of the tokens of the period of the bill")
    ]
    input_usd: Annotated[
        Decimal, Meta(description="a million tokens of prompts")
    ]
    cached_usd: Annotated[
        Decimal | None,
        Meta(
            description="a million tokens of prompts that were read before; none: as the others"
        ),
    ]
    output_usd: Annotated[
        Decimal, Meta(description="a million tokens of answers")
    ]
    price_source: Annotated[str, Meta(description="where the price is from")]
    price_as_of: Annotated[str, Meta(description="its date")]


class ElsewhereCost(DocumentPart, frozen=True, kw_only=True):
    """The same machine-hours at a cloud on which nothing is built here, machines alone."""

    cloud: Annotated[str, Meta(description="who rents them out")]
    machine: Annotated[
        str, Meta(description="with as many of the same accelerator")
    ]
    usd: Annotated[
        Decimal, Meta(description="of the node-hours of the bill, on demand")
    ]
    usd_hour: Annotated[Decimal, Meta(description="of one machine")]
    price_source: Annotated[str, Meta(description="where the price is from")]
    price_as_of: Annotated[str, Meta(description="its date")]


class OwnedCost(DocumentPart, frozen=True, kw_only=True):
    """Machines that are paid for already, and what of them the plan uses."""

    cloud: Annotated[str, Meta(description="where they are")]
    region: Annotated[str, Meta(description="or a pattern of regions")]
    machine: Annotated[str, Meta(description="their type")]
    count: Annotated[int, Meta(description="how many")]
    usd_month: Annotated[
        Decimal | None,
        Meta(
            description="what they cost anyway, not in the total; none where nobody says"
        ),
    ]
    source: Annotated[
        str, Meta(description="who says so: buy.owned, or what was bought")
    ] = "buy.owned"
    used_share: Annotated[
        Number,
        Meta(description="of their hours, in which the plan has work for them"),
    ]


class UsedAmount(DocumentPart, frozen=True, kw_only=True):
    """How much the bill counts of something that nothing in the spec decides."""

    name: Annotated[str, Meta(description="key of the block usage of a spec")]
    amount: Annotated[Decimal, Meta(description="in the unit")]
    unit: Annotated[str, Meta(description="such as GB")]
    meaning: Annotated[str, Meta(description="of what")]
    source: Annotated[
        str, Meta(description="spec where it states it, or who assumes it")
    ]


class Cost(DocumentPart, frozen=True, kw_only=True):
    """The bill of a month, of a run, or of the time to live of what stands."""

    currency: Annotated[Literal["USD"], Meta(description="always USD")] = "USD"
    period: Annotated[
        Period,
        Meta(
            description="what the total is for: a month of what does not end, the run of a job, "
            "or the life that a ttl gives"
        ),
    ]
    life: Annotated[
        Life | None, Meta(description="of each machine; none for a month")
    ]
    total: Annotated[
        Decimal,
        Meta(
            description="sum of the lines whose price is known; a month has 730 hours"
        ),
    ]
    band: Annotated[
        CostBand | None,
        Meta(description="around the total; none where nothing can move it"),
    ] = None
    tokens: Annotated[
        TokenCost | None,
        Meta(description="cost of a million tokens; none for workspaces"),
    ]
    usd_hour: Annotated[Decimal, Meta(description="with all machines running")]
    usd_month: Annotated[
        Decimal | None,
        Meta(description="the total, when the period is a month"),
    ]
    lines: Annotated[tuple[CostLine, ...], Meta(description="machines first")]
    sources: Annotated[
        tuple[PriceOrigin, ...],
        Meta(
            description="what price_source stands for, of lines and of elsewhere"
        ),
    ] = ()
    excludes: Annotated[
        tuple[str, ...], Meta(description="what the total leaves out")
    ]
    credits_usd: Annotated[
        Decimal | None,
        Meta(
            description="what credits pay of the total; none without prices of one's own"
        ),
    ] = None
    commitments: Annotated[
        tuple[CommitmentOption, ...],
        Meta(description="those that would save something, by their term"),
    ] = ()
    hosted: Annotated[
        tuple[HostedCost, ...],
        Meta(
            description="the same tokens at services that sell the model by the token, the "
            "cheapest first; empty where no price is known"
        ),
    ] = ()
    owned: Annotated[
        tuple[OwnedCost, ...],
        Meta(
            description="what is paid for already, by buy.owned or by the account"
        ),
    ] = ()
    usage: Annotated[
        tuple[UsedAmount, ...],
        Meta(description="what is stated or assumed of use"),
    ] = ()
    elsewhere: Annotated[
        tuple[ElsewhereCost, ...],
        Meta(
            description="the same machine-hours at small clouds, the cheapest first; empty where "
            "none is known to have such machines"
        ),
    ] = ()

    @property
    def is_partial(self) -> bool:
        """Whether a line has no known price, so that the total is a lower bound."""
        return bool(self.unpriced)

    @property
    def unpriced(self) -> tuple[str, ...]:
        """Names of the lines without a known price."""
        return tuple(line.name for line in self.lines if not line.price_found)
