"""tonnage quota: what an account may have in a region, and asking for more."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

import click

from planner.cli import complete, option
from planner.cli.compose import open_catalog
from planner.cli.progress import waiting
from planner.errors import MissingError, Problem
from planner.facts.cloud import clouds
from planner.market.capacity import LIMITED_PURCHASES
from planner.suggest import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Sequence

    from planner.market.live import QuotaFact
    from providers.live.question import AccountModule


@click.command("quota")
@click.argument("what", type=click.Choice(["list", "request"]))
@click.argument("cloud", type=click.Choice(tuple(clouds())))
@click.argument("region", shell_complete=complete.region_names)
@click.argument("quota_id", required=False, metavar="[QUOTA]")
@click.argument("wanted", required=False, type=click.IntRange(1, 1_000_000))
@click.option("--yes", is_flag=True, help="Send the request.")
@option.catalog
@option.format_option("text", "json", "csv", "markdown")
@option.color
def command(what: str, cloud: str, region: str, **option_values: Any) -> int:
    """Show the quotas that count machines with accelerators, or ask for a higher limit of one.

    A request is sent with --yes alone; without it, it is shown. QUOTA is an id of the list.

    Example: tonnage quota request aws us-east-1 L-417A185B 192 --yes
    """
    quota_id, wanted = option_values["quota_id"], option_values["wanted"]
    if what == "list":
        return _show(cloud, region, option_values)
    if not quota_id or wanted is None:
        raise click.UsageError(
            "name the quota and the limit: tonnage quota request CLOUD REGION QUOTA LIMIT"
        )
    quota = _named(_quotas(cloud, region, option_values["catalog"]), quota_id)
    if quota is not None and _is_there(quota, wanted):
        option.write_output(
            f"nothing to ask for: {quota.name} has {_amount(quota.limit)}, and "
            f"{_amount(quota.requested or 0)} are asked for already\n"
        )
        return 0
    name = quota.name if quota is not None else f"{quota_id} in {region}"
    if not option_values["yes"]:
        limit = (
            _amount(quota.limit) if quota is not None else "an unknown limit"
        )
        option.write_output(
            f"{name} has {limit}; this asks {cloud} for {wanted}: "
            f"tonnage quota request {cloud} {region} {quota_id} {wanted} --yes\n"
        )
        return 0
    return _send(cloud, region, quota_id, wanted, name)


def _account(cloud: str) -> AccountModule:
    module: AccountModule = import_module(f"providers.{cloud}.account")
    return module


def _quotas(
    cloud: str, region: str, catalog_path: str | None
) -> list[QuotaFact]:
    """Return the quotas that count the machine types of the catalog in a region."""
    from providers.live.access import cloud_errors

    types_by_region: dict[str, set[str]] = {}
    for offer in open_catalog(catalog_path, None).offers:
        if offer.provider == cloud:
            types_by_region.setdefault(offer.region, set()).add(
                offer.instance.instance_type
            )
    if region not in types_by_region:
        raise MissingError(
            Problem(
                code="region",
                message=f"the catalog has no machines in {cloud} {region}",
                next_step=did_you_mean(
                    region,
                    types_by_region,
                    otherwise=f"see: tonnage offers --cloud {cloud} --limit 1000",
                ),
            )
        )
    machine_types = sorted(types_by_region[region])
    with (
        cloud_errors(cloud, f"the quotas of {cloud} {region} are not known"),
        waiting(f"asking {cloud}"),
    ):
        return [
            quota
            for purchase in LIMITED_PURCHASES
            for quota in _account(cloud).quotas(region, machine_types, purchase)
        ]


def _show(cloud: str, region: str, option_values: dict[str, Any]) -> int:
    from planner.render.listing import quota_rows

    quotas = _quotas(cloud, region, option_values["catalog"])
    option.write_rows(quota_rows(quotas), option_values)
    return 0


def _send(
    cloud: str, region: str, quota_id: str, wanted: int, name: str
) -> int:
    """Ask for a higher limit, and say what has become of that so far."""
    from providers.live.access import cloud_errors

    with (
        cloud_errors(cloud, f"{name} could not be asked for"),
        waiting(f"asking {cloud}"),
    ):
        state = _account(cloud).request_quota(region, quota_id, wanted)
    option.write_output(f"asked for {wanted} of {name}: {state}\n")
    return 0


def _named(quotas: Sequence[QuotaFact], quota_id: str) -> QuotaFact | None:
    return next((quota for quota in quotas if quota.id == quota_id), None)


def _is_there(quota: QuotaFact, wanted: int) -> bool:
    """Whether a limit is as high already, or asked for."""
    return (
        quota.limit is None
        or wanted <= quota.limit
        or wanted <= (quota.requested or 0)
    )


def _amount(limit: float | None) -> str:
    return "no limit" if limit is None else f"{limit:g}"
