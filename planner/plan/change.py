"""What a plan does to a stack that stands, and what it was made from."""

from __future__ import annotations

import json
from collections import Counter
from decimal import Decimal  # noqa: TC003 - msgspec reads the annotations
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta, field

from planner.market.live import (
    LiveFacts,  # noqa: TC001 - msgspec reads the annotations
    QuotaCap,  # noqa: TC001 - msgspec reads the annotations
)
from planner.plan.part import (
    DocumentPart,
    Number,
    Period,
    Properties,
)
from planner.plan.pool import (  # noqa: TC001 - msgspec reads the annotations
    FleetRef,
    OfferRef,
)
from planner.spec.model import OWN_RANGE

if TYPE_CHECKING:
    from planner.market.offer_key import OfferKey


class ResourceChange(DocumentPart, frozen=True, kw_only=True):
    """One resource that changes."""

    type: Annotated[str, Meta(description="Pulumi type token")]
    name: Annotated[str, Meta(description="unique in the stack")]
    reason: Annotated[
        str, Meta(description="properties that change; empty without any")
    ]


class SpecChange(DocumentPart, frozen=True, kw_only=True):
    """A key of the spec that is not as it was applied."""

    key: Annotated[str, Meta(description="its path, as traffic.peak_rps")]
    before: Annotated[
        str, Meta(description="as it was applied; empty where it was not there")
    ]
    after: Annotated[
        str, Meta(description="as it is planned; empty where it is left out")
    ]


def spec_changes(
    before: Properties, after: Properties
) -> tuple[SpecChange, ...]:
    """Return the keys in which two specs with their defaults differ, by name."""
    old_values, new_values = _leaves(before), _leaves(after)
    return tuple(
        SpecChange(
            key=key,
            before=old_values.get(key, ""),
            after=new_values.get(key, ""),
        )
        for key in sorted(old_values.keys() | new_values.keys())
        if old_values.get(key, "") != new_values.get(key, "")
    )


def _leaves(block: Properties, path: str = "") -> dict[str, str]:
    """Return every value of a block as text, by its path; items of lists are numbered from 0."""
    leaves: dict[str, str] = {}
    for key, value in block.items():
        if isinstance(value, dict):
            leaves |= _leaves(value, f"{path}{key}.")
        elif value and isinstance(value, list) and isinstance(value[0], dict):
            items = {f"{key}[{i}]": item for i, item in enumerate(value)}
            leaves |= _leaves(items, path)
        else:
            leaves[f"{path}{key}"] = (
                value if isinstance(value, str) else json.dumps(value)
            )
    return leaves


class Rolling(DocumentPart, frozen=True, kw_only=True):
    """Running machines of a pool that are made anew, some at a time."""

    pool: Annotated[str, Meta(description="whose machines")]
    nodes: Annotated[int, Meta(description="how many stand")]
    at_once: Annotated[
        int,
        Meta(
            description="how many are away at a time; 0 without `surge`: running machines stay "
            "as they are"
        ),
    ]
    surge: Annotated[
        int, Meta(description="how many come before others go")
    ] = 0
    peak_share: Annotated[
        Number | None,
        Meta(
            description="share of the peak up to which the others meet the limits; "
            "none for what serves nobody"
        ),
    ]


class Changes(DocumentPart, frozen=True, kw_only=True):
    """What happens to a stack that stands. It starts from the state that `stack` names."""

    create: Annotated[
        tuple[ResourceChange, ...], Meta(description="what is new")
    ]
    update: Annotated[
        tuple[ResourceChange, ...], Meta(description="changed in place")
    ]
    replace: Annotated[
        tuple[ResourceChange, ...],
        Meta(description="made anew: the new comes before the old goes"),
    ]
    replace_first: Annotated[
        tuple[ResourceChange, ...],
        Meta(description="made anew: the old goes before the new comes"),
    ]
    delete: Annotated[tuple[ResourceChange, ...], Meta(description="what goes")]
    keep: Annotated[
        tuple[ResourceChange, ...],
        Meta(
            description="left in the cloud for its data; deleted with --allow delete-data"
        ),
    ]
    unchanged: Annotated[int, Meta(description="resources that stay")]
    outage_s: Annotated[
        Number,
        Meta(
            description="seconds in which nothing answers, about; 0: none. Without uploads, "
            "which `empty_data` may need"
        ),
    ]
    new_address: Annotated[
        bool,
        Meta(
            description="clients of a service must learn another address; the old one answers "
            "for some minutes more, unless there is an outage"
        ),
    ] = False
    rolling: Annotated[
        tuple[Rolling, ...],
        Meta(description="machines that are made anew while others serve"),
    ] = ()
    deletes_data: Annotated[
        tuple[str, ...],
        Meta(description="what would be deleted with its data, each named"),
    ]
    empty_data: Annotated[
        tuple[str, ...],
        Meta(
            description="what holds data and is made anew, empty; the old one is kept"
        ),
    ] = ()
    usd_before: Annotated[
        Decimal | None, Meta(description="total of what stands, as planned")
    ]
    period_before: Annotated[
        Period | None, Meta(description="what that total is for")
    ]
    is_partial_before: Annotated[
        bool,
        Meta(
            description="whether a price of what stands is unknown, so that its total is the "
            "least that it costs"
        ),
    ] = False
    since: Annotated[
        str, Meta(description="when it was applied first; empty: unknown")
    ] = ""
    because: Annotated[
        tuple[SpecChange, ...],
        Meta(description="keys of the spec that are not as they were applied"),
    ] = ()

    @property
    def count(self) -> int:
        """How many resources change."""
        return sum(
            map(
                len,
                (
                    self.create,
                    self.update,
                    self.replace,
                    self.replace_first,
                    self.delete,
                    self.keep,
                ),
            )
        )

    @property
    def disturbs(self) -> bool:
        """Whether clients notice: nothing answers for a while, or not where it did."""
        return bool(self.outage_s) or self.new_address

    @property
    def is_empty(self) -> bool:
        """Whether an apply changes nothing."""
        return self.count == 0


class Stay(DocumentPart, frozen=True, kw_only=True):
    """A cheaper fleet that what stands is not moved to: moving costs more than it saves."""

    fleet: Annotated[FleetRef, Meta(description="the cheaper fleet")]
    saves_usd_month: Annotated[
        Decimal, Meta(description="what it would save a month")
    ]
    moving_usd: Annotated[
        Decimal, Meta(description="what moving to it costs once")
    ]


class StandingMachines(DocumentPart, frozen=True, kw_only=True):
    """Machines of the stack that stood."""

    offer: Annotated[OfferRef, Meta(description="what they were bought as")]
    nodes: Annotated[int, Meta(description="how many")]


class LiveInputs(DocumentPart, frozen=True, kw_only=True):
    """What an account may have, asked of its clouds."""

    facts: Annotated[LiveFacts, Meta(description="what they answered")]
    standing: Annotated[
        tuple[StandingMachines, ...],
        Meta(description="what stood, and is used of a quota for that"),
    ] = ()
    caps: Annotated[
        tuple[QuotaCap, ...],
        Meta(
            description="what it may add to quotas that others share which are planned with it"
        ),
    ] = ()

    @property
    def standing_counts(self) -> dict[OfferKey, int]:
        """How many machines stood, by what they were bought as."""
        counts: Counter[OfferKey] = Counter()
        for machines in self.standing:
            counts[machines.offer.key] += machines.nodes
        return dict(counts)


class PlanInputs(DocumentPart, frozen=True, kw_only=True):
    """What was read for a plan beside its spec and the catalog.

    With the spec and the catalog they settle the plan: the same inputs give the same bytes.
    """

    files: Annotated[
        dict[str, str],
        Meta(description="SHA-256 of each file that the spec names"),
    ] = field(default_factory=dict)
    standing: Annotated[
        tuple[OfferRef, ...],
        Meta(description="what was bought for what stood"),
    ] = ()
    calibration: Annotated[
        str | None, Meta(description="file of a calibration")
    ] = None
    calibration_sha256: Annotated[
        str | None, Meta(description="SHA-256 of that file")
    ] = None
    prices: Annotated[
        str | None, Meta(description="file with prices of one's own")
    ] = None
    prices_sha256: Annotated[
        str | None, Meta(description="SHA-256 of that file")
    ] = None
    alternatives: Annotated[
        int, Meta(description="alternatives of each sort")
    ] = 3
    confidence: Annotated[
        int, Meta(description="confidence that limits are met, percent")
    ] = 90
    stops_after_months: Annotated[
        Decimal | None,
        Meta(description="after how many the workload may end"),
    ] = None
    plugins: Annotated[
        dict[str, str],
        Meta(description="version of each provider that the graph needs"),
    ] = field(default_factory=dict)
    network_range: Annotated[
        str,
        Meta(
            pattern=r"^[0-9]{1,3}\.[0-9]{1,3}\.0\.0/16$",
            description="addresses of an own network, where the spec leaves them open",
        ),
    ] = OWN_RANGE
    live: Annotated[
        LiveInputs | None,
        Meta(description="what the account may have, where it was asked"),
    ] = None
