"""Lines of a bill: quantity, unit price, and the date of the price.

Amounts are Decimal. A line without a known price is named, and left out of the sum.
"""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Decimal
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from planner.cost.service_table import watch_rows, zone_traffic
from planner.cost.usage import usage_value
from planner.facts.private_endpoint import (
    LOGS,
    endpoint_services,
)
from planner.units import HOURS_PER_MONTH

if TYPE_CHECKING:
    from collections.abc import Sequence

    from planner.cost.service_price import PriceBook, ServicePrice
    from planner.facts.private_endpoint import EndpointNeed

CENT: Final = Decimal("0.01")
QUANTITY_STEP: Final = Decimal("0.0001")
# Kind of the line of machines.
MACHINE_KIND: Final = "accelerators"
SUPPORT_KIND: Final = "support plan"
TAX_KIND: Final = "tax"
# What comes on top of all other lines.
SURCHARGE_KINDS: Final = (SUPPORT_KIND, TAX_KIND)
KEPT_DISK: Final = "kept_disk"
ENDPOINT_KIND: Final = "private_endpoint"
ENDPOINT_DATA: Final = "private_endpoint_data"
CROSS_ZONE: Final = "cross_zone"
CROSS_REGION: Final = "cross_region"
ADDRESS_KIND: Final = "machine_address"
# What stays when all machines of a stack are stopped.
STANDING_KINDS: Final = frozenset(
    {
        KEPT_DISK,
        "alarm",
        "alert",
        "bastion",
        "dashboard",
        "file_system",
        "load_balancer",
        "nat",
        "object_storage",
        ENDPOINT_KIND,
        "public_ip",
        "scheduler_job",
        "workflow_action",
        "workflow_step",
    }
)
EGRESS_KIND: Final = "egress"
ROLE_LABELS: Final = {
    "bastion": ("way in to the machines", "hour"),
    CROSS_REGION: ("traffic between regions", "GB"),
    CROSS_ZONE: ("traffic between zones", "GB"),
    "disk": ("boot disks", "GB-month"),
    "load_balancer": ("load balancer", "hour"),
    "load_balancer_data": ("load balancer data", "GB"),
    "load_balancer_unit": ("load balancer data", "unit-hour"),
    "logs": ("logs", "GB"),
    "nat": ("NAT gateway", "hour"),
    "nat_data": ("NAT data", "GB"),
    "object_storage": ("object storage", "GB-month"),
    ENDPOINT_KIND: ("private endpoints", "hour"),
    ENDPOINT_DATA: ("private endpoint data", "GB"),
    "public_ip": ("public address", "hour"),
}


class BillLine(Struct, frozen=True, kw_only=True):
    """One line of a bill.

    `quantity`  amount over the period of the bill, in `unit`
    `unit_price`  USD per `unit`, None when no price is known
    `usd`  quantity * unit price, USD; None when no price is known
    `source`, `as_of`  where the price is from, and its date
    `row`  row of the catalog that has the price; empty where no row of it does
    `pool`  pool whose machines the line pays for, empty for the whole stack
    `purchase`  how these machines are bought, empty for everything else
    """

    name: str
    kind: str
    unit: str
    quantity: Decimal
    unit_price: Decimal | None
    usd: Decimal | None
    source: str
    as_of: str
    row: str = ""
    pool: str = ""
    purchase: str = ""

    @property
    def is_priced(self) -> bool:
        """Whether a price is known."""
        return self.usd is not None


class Usage(Struct, frozen=True, kw_only=True):
    """What a fleet uses over the period of a bill, besides its machines.

    `node_hours`  hours of running nodes, summed over nodes
    `cache_gb`  disk for weights and data on each node, GB
    `stored_gb_months`  weights, checkpoints and data in object storage, GB-month
    `sent_gb`, `received_gb`  traffic with clients, GB
    `serves_traffic`  whether there is a load balancer
    `network_hours`  hours in which the network exists
    `has_people`  whether people work on the machines, and need a way in
    `kept_gb`  disks that stay when machines go, GB
    `scheduled_starts`  starts of machines that the hours of the week cause
    `fetched_gb`  weights that each start of a node fetches from outside the cloud, GB
    `nat_gateways`  how many there are, each with an address; none beside addresses of machines
    `has_machine_addresses`  whether each machine goes out by a public address of its own
    `spot_hours`  those of `node_hours` that are on spot
    `public_addresses`  of a balancer that faces the internet, which answers then leave for
    `has_own_network`  whether the way out is its own; that of a given network is its owner's
    `endpoint_needs`  what machines reach by private endpoints, empty without them
    `zones`  how many zones the machines are spread over, each with an interface of an endpoint
    `proxied_zones`  zones of the machines among which one of them spreads all requests
    """

    provider: str
    node_hours: Decimal
    cache_gb: Decimal
    stored_gb_months: Decimal
    sent_gb: Decimal
    received_gb: Decimal
    serves_traffic: bool
    network_hours: Decimal = HOURS_PER_MONTH
    scheduled_starts: Decimal = Decimal(0)
    fetched_gb: Decimal = Decimal(0)
    kept_gb: Decimal = Decimal(0)
    has_people: bool = False
    has_own_network: bool = True
    nat_gateways: int = 1
    has_machine_addresses: bool = False
    spot_hours: Decimal = Decimal(0)
    public_addresses: int = 0
    endpoint_needs: frozenset[EndpointNeed] = frozenset()
    zones: int = 1
    proxied_zones: int = 1


def priced_line(
    name: str,
    kind: str,
    unit: str,
    quantity: Decimal,
    service_price: ServicePrice | None,
) -> BillLine:
    """Return the line of a quantity at a price, rounded to the cent.

    Without a price `unit_price` and `usd` are None.
    """
    # The rounded quantity is priced: quantity * price gives the amount.
    rounded_quantity = quantity.quantize(QUANTITY_STEP, ROUND_HALF_UP)
    if service_price is None:
        return BillLine(
            name=name,
            kind=kind,
            unit=unit,
            quantity=rounded_quantity,
            unit_price=None,
            usd=None,
            source="",
            as_of="",
        )
    return BillLine(
        name=name,
        kind=kind,
        unit=unit,
        quantity=rounded_quantity,
        unit_price=service_price.usd,
        usd=(rounded_quantity * service_price.usd).quantize(
            CENT, ROUND_HALF_UP
        ),
        source=service_price.source,
        as_of=service_price.as_of,
        row=service_price.row,
    )


def service_lines(usage: Usage, price_book: PriceBook) -> list[BillLine]:
    """Return all lines except the machines, in the order of the bill."""
    # Disks exist while nodes run: node-hours / 730 = disk-months.
    months = usage.node_hours / HOURS_PER_MONTH
    bill_lines = [_disk_line(usage, price_book, months)]
    # No cache disk when local NVMe holds the weights.
    if usage.cache_gb:
        bill_lines.append(
            _disk_space_line(
                "model and data disks",
                "disk",
                usage,
                price_book,
                usage.cache_gb * months,
            )
        )
    if usage.kept_gb:
        bill_lines.append(
            _disk_space_line(
                "disks that are kept",
                KEPT_DISK,
                usage,
                price_book,
                usage.kept_gb * usage.network_hours / HOURS_PER_MONTH,
            )
        )
    # Logs grow with node-hours, an assumption of data/usage.csv.
    logged_gb = usage.node_hours * price_book.used("log_gb_per_node_hour")
    needs = _endpoint_needs(usage, price_book, logged_gb)
    if usage.has_own_network:
        bill_lines += _network_lines(usage, price_book, needs, logged_gb)
    if usage.serves_traffic:
        bill_lines += _balancer_lines(usage, price_book)
    # Answers of a private endpoint do not leave the cloud.
    if usage.public_addresses:
        bill_lines += egress_lines(usage.provider, usage.sent_gb, price_book)
    bill_lines += _endpoint_lines(usage, price_book, needs, logged_gb)
    if usage.stored_gb_months:
        bill_lines.append(
            _role_line(
                usage, price_book, "object_storage", usage.stored_gb_months
            )
        )
    # No address says the region of a bucket: only a spec can.
    crossing_gb = price_book.used("cross_region_gb")
    if crossing_gb:
        bill_lines.append(
            _role_line(usage, price_book, CROSS_REGION, crossing_gb)
        )
    return [
        *bill_lines,
        _role_line(usage, price_book, "logs", logged_gb),
        *_watch_lines(usage, price_book),
    ]


def sum_lines(bill_lines: Sequence[BillLine]) -> tuple[Decimal, list[str]]:
    """Return the sum of the priced lines in USD, and the names of the others."""
    total_usd = sum(
        (
            bill_line.usd
            for bill_line in bill_lines
            if bill_line.usd is not None
        ),
        Decimal(0),
    )
    return total_usd, [
        bill_line.name for bill_line in bill_lines if not bill_line.is_priced
    ]


def _role_line(
    usage: Usage, price_book: PriceBook, role: str, quantity: Decimal
) -> BillLine:
    """Return the line of a role with one price; `ROLE_LABELS` has its name and unit."""
    line_name, default_unit = ROLE_LABELS[role]
    role_prices = price_book.find(usage.provider, role)
    return priced_line(
        line_name,
        role,
        role_prices[0].unit if role_prices else default_unit,
        quantity,
        # The first price, or None when the provider has none.
        (*role_prices, None)[0],
    )


def _disk_line(
    usage: Usage, price_book: PriceBook, months: Decimal
) -> BillLine:
    """Return the boot disks, by the GB, or by the disk where sizes are fixed."""
    # Azure sells fixed sizes: one Premium SSD P10 of 128 GiB a node.
    fixed_prices = price_book.find(usage.provider, "disk_p10")
    if fixed_prices:
        return priced_line(
            "boot disks", "disk", fixed_prices[0].unit, months, fixed_prices[0]
        )
    return _role_line(
        usage, price_book, "disk", usage_value("boot_disk_gb") * months
    )


def _disk_space_line(
    line_name: str,
    line_kind: str,
    usage: Usage,
    price_book: PriceBook,
    gb_months: Decimal,
) -> BillLine:
    # Without a price of its own a cache disk costs as a boot disk.
    disk_prices = price_book.find(
        usage.provider, "cache_disk"
    ) or price_book.find(usage.provider, "disk")
    service_price = disk_prices[0] if disk_prices else None
    price_unit = service_price.unit if service_price else "GB-month"
    return priced_line(
        line_name, line_kind, price_unit, gb_months, service_price
    )


def _network_lines(
    usage: Usage,
    price_book: PriceBook,
    needs: frozenset[EndpointNeed],
    logged_gb: Decimal,
) -> list[BillLine]:
    """Return the lines of the way out of the machines, of public addresses, and of the way in."""
    # On other clouds the way in costs nothing.
    has_bastion = usage.has_people and price_book.find(
        usage.provider, "bastion"
    )
    nat_gateways = 0 if usage.has_machine_addresses else usage.nat_gateways
    addresses = nat_gateways + usage.public_addresses + bool(has_bastion)
    bill_lines = (
        _address_lines(usage, price_book)
        if usage.has_machine_addresses
        else _nat_lines(usage, price_book, needs, logged_gb)
    )
    if addresses:
        bill_lines.append(
            _role_line(
                usage, price_book, "public_ip", addresses * usage.network_hours
            )
        )
    if has_bastion:
        bill_lines.append(
            _role_line(usage, price_book, "bastion", usage.network_hours)
        )
    return bill_lines


def _address_lines(usage: Usage, price_book: PriceBook) -> list[BillLine]:
    """Return the lines of addresses of machines: USD = hours of running machines * USD an hour.

    What comes in by them costs nothing, and little goes out: the service has a way of its own.
    """
    standard_prices = price_book.find(usage.provider, "public_ip")
    # Google Cloud takes less for that of a spot machine.
    spot_prices = (
        price_book.find(usage.provider, "public_ip_spot") or standard_prices
    )
    return [
        priced_line(line_name, ADDRESS_KIND, "hour", hours, (*prices, None)[0])
        for line_name, hours, prices in (
            (
                "machine addresses",
                usage.node_hours - usage.spot_hours,
                standard_prices,
            ),
            ("spot machine addresses", usage.spot_hours, spot_prices),
        )
        # Hours on spot are those of lines, which are rounded.
        if hours.quantize(QUANTITY_STEP)
    ]


def _nat_lines(
    usage: Usage,
    price_book: PriceBook,
    needs: frozenset[EndpointNeed],
    logged_gb: Decimal,
) -> list[BillLine]:
    """Return the lines of the NAT gateway and of its traffic.

    The gateway is paid by the hour or by the node-hour. Object storage has a private
    endpoint, so container images and weights from elsewhere pass the NAT, and logs without an
    endpoint of theirs.
    """
    passes_logs = not _way_of_logs(usage.provider, needs)
    node_starts = (
        # Starts a month of an always-on node * mean running nodes.
        price_book.used("node_starts_per_month")
        * usage.node_hours
        / HOURS_PER_MONTH
        + usage.scheduled_starts
    )
    # Google Cloud charges NAT for each VM and hour.
    node_prices = price_book.find(usage.provider, "nat_per_node")
    if node_prices:
        nat_line = priced_line(
            "NAT gateway",
            "nat_per_node",
            node_prices[0].unit,
            usage.node_hours,
            node_prices[0],
        )
    else:
        nat_line = _role_line(
            usage, price_book, "nat", usage.nat_gateways * usage.network_hours
        )
    data_line = _role_line(
        usage,
        price_book,
        "nat_data",
        # Each node start pulls the container image once, and weights from a hub.
        (price_book.used("container_image_gb") + usage.fetched_gb) * node_starts
        + (logged_gb if passes_logs else 0),
    )
    return [nat_line, data_line]


def _way_of_logs(
    provider: str, needs: frozenset[EndpointNeed]
) -> tuple[str, ...]:
    """Return what brings logs past the NAT: an endpoint, or what each network has."""
    return (
        *endpoint_services(provider, "interface", needs & LOGS),
        *endpoint_services(provider, "network", LOGS),
    )


def _endpoint_needs(
    usage: Usage, price_book: PriceBook, logged_gb: Decimal
) -> frozenset[EndpointNeed]:
    """Return what machines reach by private endpoints: what is asked for, or what pays.

    That of logs pays when GB * (GB through a NAT - GB through it) > hours * zones * USD an hour.
    In a network of others there is no NAT that the bill knows of, nor where each machine has an
    address.
    """
    has_nat = usage.has_own_network and not usage.has_machine_addresses
    if usage.endpoint_needs or not has_nat:
        return usage.endpoint_needs
    prices = [
        price_book.find(usage.provider, role)
        for role in ("nat_data", ENDPOINT_DATA, ENDPOINT_KIND)
    ]
    if not all(prices):
        return frozenset()
    nat_usd, data_usd, hour_usd = (price.usd for price, *_ in prices)
    saved_usd = logged_gb * (nat_usd - data_usd)
    pays = saved_usd > usage.network_hours * usage.zones * hour_usd
    return LOGS if pays else frozenset()


def _endpoint_lines(
    usage: Usage,
    price_book: PriceBook,
    needs: frozenset[EndpointNeed],
    logged_gb: Decimal,
) -> list[BillLine]:
    """Return the lines of private endpoints: of each one in each zone, and of what passes them.

    That is logs. Images come from the internet, a bucket has a way of its own, and nobody has
    measured what metrics and other calls add.
    """
    services = endpoint_services(usage.provider, "interface", needs)
    if not services:
        return []
    return [
        _role_line(
            usage,
            price_book,
            ENDPOINT_KIND,
            len(services) * usage.zones * usage.network_hours,
        ),
        _role_line(usage, price_book, ENDPOINT_DATA, logged_gb),
    ]


def _watch_lines(usage: Usage, price_book: PriceBook) -> list[BillLine]:
    """Return the lines of what looks at the machines from outside, of data/watch.csv.

    quantity = quantity of a month * hours of the stack / hours of a month
    """
    return [
        priced_line(
            watch_row["name"],
            watch_row["role"],
            watch_row["unit"],
            watch_row["per_month"] * usage.network_hours / HOURS_PER_MONTH,
            (*price_book.find(usage.provider, watch_row["role"]), None)[0],
        )
        for watch_row in watch_rows()
        if watch_row["provider"] == usage.provider
    ]


def _balancer_lines(usage: Usage, price_book: PriceBook) -> list[BillLine]:
    """Return the lines of the load balancer and of the traffic that it processes.

    Traffic is paid by the GB, or by units of 1 GB an hour.
    """
    unit_prices = price_book.find(usage.provider, "load_balancer_unit")
    data_role = "load_balancer_unit" if unit_prices else "load_balancer_data"
    data_line = _role_line(
        usage,
        price_book,
        data_role,
        # The balancer processes both directions.
        usage.sent_gb + usage.received_gb,
    )
    return [
        # It exists as long as the network, also while no node runs.
        _role_line(usage, price_book, "load_balancer", usage.network_hours),
        data_line,
        *_cross_zone_lines(usage, price_book),
    ]


def _cross_zone_lines(usage: Usage, price_book: PriceBook) -> list[BillLine]:
    """Return the line of what clients and machines send each other from zone to zone.

    GB = (sent + received) * (share across by the balancer + share across by a proxy) * sides
    share = (zones - 1) / zones, as each of both spreads requests evenly
    Which of them a cloud bills, and whether both sides of a border, are rows of
    data/zone_traffic.csv.
    """
    rule = zone_traffic().get((usage.provider,))
    if rule is None:
        return []
    zones = (
        usage.zones if rule["balancer"] else 1,
        usage.proxied_zones if rule["proxy"] else 1,
    )
    crossing = sum((Decimal(count - 1) / count for count in zones), Decimal(0))
    line = _role_line(
        usage,
        price_book,
        CROSS_ZONE,
        (usage.sent_gb + usage.received_gb) * crossing * rule["sides"],
    )
    # What costs nothing has no line.
    return [line] if crossing and line.usd != 0 else []


def egress_lines(
    provider: str,
    egress_gb: Decimal,
    price_book: PriceBook,
    line_name: str = "egress",
) -> list[BillLine]:
    """Return the internet egress, one line for each price tier that is reached.

    quantity of a tier = min(egress, end of the tier) - start of the tier, GB
    """
    price_tiers = price_book.find(provider, "egress")
    if not price_tiers:
        return [priced_line(line_name, EGRESS_KIND, "GB", egress_gb, None)]
    bill_lines = []
    for price_tier in price_tiers:
        tier_start_gb = price_tier.from_gb or Decimal(0)
        tier_end_gb = (
            egress_gb
            # None: the tier has no upper end.
            if price_tier.to_gb is None
            else min(egress_gb, price_tier.to_gb)
        )
        # Free tiers get no line.
        if tier_end_gb > tier_start_gb and price_tier.usd:
            bill_lines.append(
                priced_line(
                    f"{line_name} above {tier_start_gb:f} GB",
                    EGRESS_KIND,
                    "GB",
                    tier_end_gb - tier_start_gb,
                    price_tier,
                )
            )
    last_tier_gb = price_tiers[-1].to_gb
    # Beyond the last tier the price is not known.
    if last_tier_gb is not None and egress_gb > last_tier_gb:
        bill_lines.append(
            priced_line(
                f"{line_name} above {last_tier_gb:f} GB",
                EGRESS_KIND,
                "GB",
                egress_gb - last_tier_gb,
                None,
            )
        )
    return bill_lines


def cache_disk_gb(nvme_gb: float, stored_gb: Decimal) -> Decimal:
    """Return the GB of the disk that caches the weights of a node.

    disk = stored_gb * headroom, to the next whole GB above it; 0 when local NVMe has that room
    """
    # Cache size relative to the weights, a row of data/usage.csv.
    required_gb = stored_gb * usage_value("cache_headroom")
    if Decimal(nvme_gb) >= required_gb:
        return Decimal(0)
    # Next whole GB above the need.
    return Decimal(int(required_gb) + 1)
