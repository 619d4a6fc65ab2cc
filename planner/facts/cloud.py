"""The clouds, and what differs between them beside machines and prices.

A row of clouds.csv registers a cloud, whose rooms are `providers/<cloud>` and `stacks/<cloud>`;
routings.csv has the routers that are built on it.
"""

from __future__ import annotations

from functools import cache
from typing import Literal

from msgspec import Struct

from planner.facts import table


class CloudFacts(Struct, frozen=True, kw_only=True):
    """One cloud.

    cloud            its name in specs
    title            how people write it
    package          its package of Pulumi
    region_property  what that package calls the region
    url_schemes      schemes of addresses of its object storage
    state_scheme     scheme of buckets in which states are kept, as Pulumi writes it
    secret_form      how a secret of its store is named
    door             where a port that people reach from outside listens: loopback or address
    mixes_on_fabric  whether machines on InfiniBand may be bought in several ways
    spread_zones     most zones of a region that the nodes of a pool are spread over
    zones_together   whether a group is refused when one of its zones has no such machine
    network_form     how a network is named, as a pattern
    subnet_place     whether a subnet is in one zone, or in all of a region
    reservation_form how a reservation of capacity is named, as a pattern
    certificate_form how a certificate is named that its balancers take, as a pattern with a
                     group region; (?!) where they take none
    account_form     how an account is named to which a service is opened, as a pattern
    key_form         how a key of a customer is named, as a pattern with a group region where the
                     name says it
    vault_key_form   how a key is named that its storage accounts take beside that of disks, as a
                     pattern; (?!) where the key of disks is that of all
    block_form       how a capacity block is named, as a pattern; (?!) where there are none
    dashboard_page   address of a dashboard, with its {id}, the {name} at the end, and {region}
    way_out          what the NAT of a stack outlives: zone, as each zone may have one; region,
                     as it is in none; nothing, as it is in one zone
    capacity_code    error code of a request that finds no machine
    quota_code       error code of a request above a quota
    """

    cloud: str
    title: str
    package: str
    region_property: str
    url_schemes: tuple[str, ...]
    state_scheme: str
    secret_form: str
    door: Literal["loopback", "address"]
    mixes_on_fabric: bool
    spread_zones: int
    zones_together: bool
    network_form: str
    subnet_place: Literal["zone", "region"]
    reservation_form: str
    certificate_form: str
    account_form: str
    key_form: str
    vault_key_form: str
    block_form: str
    dashboard_page: str
    way_out: Literal["zone", "region", "nothing"]
    capacity_code: str
    quota_code: str
    source: str
    as_of: str


@cache
def clouds() -> dict[str, CloudFacts]:
    """Return all clouds by name. Raises CatalogError for an invalid row."""
    columns = {
        "cloud": table.nonempty_text,
        "title": table.nonempty_text,
        "package": table.nonempty_text,
        "region_property": table.nonempty_text,
        "url_schemes": lambda cell: tuple(cell.split("|")),
        "state_scheme": table.nonempty_text,
        "secret_form": table.nonempty_text,
        "door": table.one_of("loopback", "address"),
        "mixes_on_fabric": table.yes_or_no,
        "spread_zones": table.integer_between(1, 9),
        "zones_together": table.yes_or_no,
        "network_form": table.nonempty_text,
        "subnet_place": table.one_of("zone", "region"),
        "reservation_form": table.nonempty_text,
        "certificate_form": table.nonempty_text,
        "account_form": table.nonempty_text,
        "key_form": table.nonempty_text,
        "vault_key_form": table.nonempty_text,
        "block_form": table.nonempty_text,
        "dashboard_page": table.nonempty_text,
        "way_out": table.one_of("zone", "region", "nothing"),
        "capacity_code": table.nonempty_text,
        "quota_code": table.nonempty_text,
        **table.SOURCE_COLUMNS,
    }
    cloud_rows = table.rows_by_key(
        table.load_rows("planner.facts", "clouds.csv", columns), "cloud"
    )
    return {
        name: CloudFacts(**cloud_row.cells)
        for (name,), cloud_row in cloud_rows.items()
    }


def way_out(cloud: str) -> str:
    """Return what the NAT of a stack outlives; nothing on a cloud where nothing is built."""
    facts = clouds().get(cloud)
    return "nothing" if facts is None else facts.way_out


def spread_zones(cloud: str) -> int:
    """Return over how many zones nodes are spread at most; one where nothing is built."""
    facts = clouds().get(cloud)
    return 1 if facts is None else facts.spread_zones


@cache
def _routing_rows() -> dict[tuple[str, ...], table.TableRow]:
    columns: table.Columns = {
        "cloud": table.one_of(*clouds()),
        "routing": table.nonempty_text,
        "balancer": table.nonempty_text,
        **table.SOURCE_COLUMNS,
    }
    rows = table.load_rows("planner.facts", "routings.csv", columns)
    return table.rows_by_key(rows, "cloud", "routing")


def built_routings(cloud: str) -> tuple[str, ...]:
    """Return how requests can be spread on a cloud, sorted.

    Balancers spread connections at random, so that holds for requests with connections of their
    own. The other ways are those of a router on the machines.
    """
    return tuple(
        sorted(
            routing
            for row_cloud, routing in _routing_rows()
            if row_cloud == cloud
        )
    )


def cloud_of_address(address: str) -> str | None:
    """Return the cloud of an object's address by its scheme, or nothing."""
    scheme = address.partition("://")[0]
    for name, facts in clouds().items():
        if scheme in facts.url_schemes:
            return name
    return None
