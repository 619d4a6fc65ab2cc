"""The machines of a plan: pools, what is bought of them, and fleets that are only named."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Literal

from msgspec import UNSET, Meta, UnsetType

from planner.market.offer import RESERVED_PURCHASE
from planner.plan.layout import (
    Layout,  # noqa: TC001 - msgspec reads the annotations
)
from planner.plan.part import DocumentPart, Number, Role
from planner.plan.prediction import (  # noqa: TC001 - msgspec reads the annotations
    Prediction,
    Verification,
)
from planner.plan.shared_service import (
    SharedService,  # noqa: TC001 - msgspec reads the annotations
)

if TYPE_CHECKING:
    from planner.market.offer_key import OfferKey


class Purchase(DocumentPart, frozen=True, kw_only=True):
    """Some of a pool's machines, bought in one way."""

    purchase: Annotated[
        str, Meta(description="on_demand, spot, reserved_1y, …")
    ]
    nodes: Annotated[int, Meta(description="nodes bought in this way")]
    usd_per_hour: Annotated[Decimal, Meta(description="of one node")]
    term: Annotated[
        str | None, Meta(description="such as 1y, for a commitment")
    ] = None
    form: Annotated[
        str | None,
        Meta(
            description="of a commitment: reserved_instance, savings_plan, reservation, …"
        ),
    ] = None
    paid_at_start_usd: Annotated[
        Decimal | None,
        Meta(
            description="what is due at once of the term of these nodes: all of it, or its part"
        ),
    ] = None
    reservation: Annotated[
        str | None, Meta(description="id of a reservation that is owned")
    ] = None

    @property
    def running_usd_hour(self) -> Decimal:
        """USD an hour that a node costs only while it runs: none, where the stack reserves it."""
        reserved = self.purchase == RESERVED_PURCHASE
        return Decimal(0) if reserved else self.usd_per_hour

    @property
    def standing_usd_hour(self) -> Decimal:
        """USD an hour that all nodes cost whether they run or not."""
        return self.nodes * (self.usd_per_hour - self.running_usd_hour)


class StandIn(DocumentPart, frozen=True, kw_only=True):
    """A machine type that a group starts while its cloud has none of its own."""

    instance_type: Annotated[str, Meta(description="machine type of the cloud")]
    usd_per_hour: Annotated[Decimal, Meta(description="of one node")]


class Elastic(DocumentPart, frozen=True, kw_only=True):
    """How far the machines of a pool follow what is asked of them."""

    least_share: Annotated[
        Number,
        Meta(
            description="share of the load of an hour for which machines run whatever is asked"
        ),
    ]
    most_share: Annotated[
        Number, Meta(description="machines at most, over those at the peak")
    ]
    most_nodes: Annotated[int, Meta(description="machines at most")]
    target_requests: Annotated[
        Number,
        Meta(
            description="requests that a machine runs or queues, above which another one comes"
        ),
    ]
    linger_s: Annotated[
        int,
        Meta(
            description="seconds for which fewer have to be enough before one leaves"
        ),
    ]


class RequestLengths(DocumentPart, frozen=True, kw_only=True):
    """The requests of one of two pools, between which the length of their bodies decides."""

    length: Annotated[
        Literal["short", "long"],
        Meta(description="short: bodies up to the border; long: all others"),
    ]
    body_bytes: Annotated[
        int, Meta(description="longest body of a short request, in bytes")
    ]
    sure_tokens: Annotated[
        int,
        Meta(
            description="a prompt of so many tokens is short whatever its text"
        ),
    ]
    most_tokens: Annotated[
        int,
        Meta(description="a longer prompt is long whatever its text, tokens"),
    ]
    share: Annotated[
        Number,
        Meta(description="share of all requests that may come, at most"),
    ]
    context_tokens: Annotated[
        int, Meta(description="longest prompt and answer together, tokens")
    ]
    predicted: Annotated[
        dict[str, Prediction],
        Meta(description="what the pool alone is predicted to do"),
    ]
    verified: Annotated[
        Verification | None,
        Meta(description="its own simulation; none without limits"),
    ]


class Pool(DocumentPart, frozen=True, kw_only=True):
    """Machines of one type in one region that do the same work."""

    name: Annotated[str, Meta(description="unique in the plan")]
    provider: Annotated[str, Meta(description="cloud")]
    region: Annotated[str, Meta(description="region of the cloud")]
    zones: Annotated[
        tuple[str, ...],
        Meta(description="zones that may be used, in their order"),
    ]
    instance_type: Annotated[str, Meta(description="machine type of the cloud")]
    accelerator: Annotated[
        str, Meta(description="name among the known accelerators")
    ]
    accelerators_per_node: Annotated[
        int, Meta(description="accelerators of one node")
    ]
    nodes: Annotated[int, Meta(description="at the peak, over all purchases")]
    min_nodes: Annotated[int, Meta(description="in the quietest running hour")]
    spare_groups: Annotated[
        int,
        Meta(
            description="groups of nodes beyond the load, for those that fail"
        ),
    ]
    spare_hours: Annotated[
        int,
        Meta(
            description="hours of a week in which so many are spare; in others it is one fewer"
        ),
    ]
    purchase: Annotated[str, Meta(description="the one there is, or mixed")]
    purchases: Annotated[
        tuple[Purchase, ...], Meta(description="how the nodes are bought")
    ]
    role: Annotated[Role, Meta(description="what the machines do")]
    replicas: Annotated[
        int, Meta(description="copies of the model at the peak")
    ]
    startup_s: Annotated[
        Number,
        Meta(
            description="seconds until a new node serves; 0 where nothing does"
        ),
    ] = 0
    run_window_s: Annotated[
        int,
        Meta(
            description="seconds from midnight in which a daily batch has its machines; 0 of all "
            "else"
        ),
    ] = 0
    layout: Annotated[
        Layout | None,
        Meta(description="how one replica is spread; none for workspaces"),
    ]
    usd_per_hour: Annotated[Decimal, Meta(description="mean of a node")]
    elastic: Annotated[
        Elastic | None,
        Meta(description="how far the nodes follow the load; none: the hours"),
    ] = None
    stand_ins: Annotated[
        tuple[StandIn, ...],
        Meta(
            description="what is started where there is none of the type, the first first"
        ),
    ] = ()
    weight: Annotated[
        int,
        Meta(
            description="requests that a router sends to a machine, against those of other "
            "pools; 0 with one pool"
        ),
    ] = 0
    requests: Annotated[
        RequestLengths | None,
        Meta(
            description="what the machines take where the lengths of requests decide; none: all"
        ),
    ] = None
    part: Annotated[
        Literal["", "prompts", "answers"],
        Meta(
            description="of a request, where one pool computes prompts and another one answers; "
            "empty: all of it"
        ),
    ] = ""
    services: Annotated[
        tuple[SharedService, ...] | UnsetType,
        Meta(
            description="services with an engine on each accelerator, the first the pool's own; "
            "left out where it has whole accelerators"
        ),
    ] = UNSET
    hourly_nodes: Annotated[
        tuple[int, ...] | UnsetType,
        Meta(
            description="nodes in each of the 168 hours of a week from Monday 00:00, where they "
            "are chosen for each hour; left out where they follow the load"
        ),
    ] = UNSET

    @property
    def shared_services(self) -> tuple[SharedService, ...]:
        """Services that share its accelerators, none where it has whole ones."""
        return self.services or ()

    @property
    def chosen_hours(self) -> int:
        """Hours of a week in which it has nodes, 0 where these follow the load."""
        return sum(1 for nodes in self.hourly_nodes or () if nodes)

    @property
    def stand_in_usd_hour(self) -> Decimal:
        """USD an hour by which all nodes are dearer when each is of the dearest other type."""
        dearest = max(
            (other.usd_per_hour for other in self.stand_ins),
            default=self.usd_per_hour,
        )
        return self.nodes * max(Decimal(0), dearest - self.usd_per_hour)

    @property
    def purchase_text(self) -> str:
        """How the nodes are bought, such as "spot" or "2 on_demand + 1 spot"."""
        if self.purchase != "mixed":
            return self.purchase
        return " + ".join(
            f"{part.nodes} {part.purchase}" for part in self.purchases
        )


class FleetRef(DocumentPart, frozen=True, kw_only=True):
    """A fleet that is named and not bought."""

    provider: Annotated[str, Meta(description="cloud")]
    region: Annotated[str, Meta(description="empty where it is open")]
    instance_type: Annotated[str, Meta(description="machine type")]
    nodes: Annotated[int, Meta(description="0 where it is open")]


class OfferRef(DocumentPart, frozen=True, order=True, kw_only=True):
    """What some machines were bought as."""

    provider: Annotated[str, Meta(description="cloud")]
    region: Annotated[str, Meta(description="region of the cloud")]
    instance_type: Annotated[str, Meta(description="machine type")]
    purchase: Annotated[
        str, Meta(description="on_demand, spot, reserved_1y, …")
    ]
    zone: Annotated[
        str,
        Meta(description="where they were tried first; empty without zones"),
    ] = ""

    @property
    def key(self) -> OfferKey:
        """What identifies the offer."""
        return (
            self.provider,
            self.region,
            self.instance_type,
            self.purchase,
        )


class RivalPool(DocumentPart, frozen=True, kw_only=True):
    """The machines of a fleet that was not chosen."""

    provider: Annotated[str, Meta(description="cloud")]
    region: Annotated[str, Meta(description="region of the cloud")]
    instance_type: Annotated[str, Meta(description="machine type")]
    accelerator: Annotated[
        str, Meta(description="name among the known accelerators")
    ]
    nodes: Annotated[int, Meta(description="nodes at the peak")]
    purchase: Annotated[str, Meta(description="how they would be bought")]
    usd_per_hour: Annotated[Decimal, Meta(description="of one node")]
