"""The questions that are asked of real clouds, and the calls in which each is asked."""

from __future__ import annotations

from datetime import date
from importlib import import_module
from typing import Any, Final, NamedTuple

from planner.market.live import LiveFacts
from planner.plan.actual.charge import StackTags
from providers.gcp import market as gcp_market
from providers.live.place import MISSHAPEN, LivePlace, ask_places
from providers.live.probe import CHANGING_FUNCTION

# A service lists the machine types that its filter names.
GCP_TYPES: Final = ("g2-standard-4", "a3-highgpu-8g")
PLACES: Final = {
    "aws": LivePlace("aws", "us-east-1", ("p5.48xlarge",)),
    "gcp": LivePlace("gcp", "us-central1", GCP_TYPES),
    "azure": LivePlace("azure", "eastus", ("Standard_ND96isr_H100_v5",)),
}
TAGS: Final = StackTags("tonnage-stack", "chat", "tonnage-pool")
TODAY: Final = date(2026, 11, 27)
AWS_TYPES: Final = ("g6.xlarge", "p5.48xlarge", "p4d.24xlarge")
REGIONS: Final = {cloud: place.region for cloud, place in PLACES.items()}
AZURE_RIGHTS: Final = (
    "Microsoft.Compute/virtualMachines/write",
    "Microsoft.Authorization/roleDefinitions/write",
)
# The functions of a market: what a cloud does not answer is left out, and never zero.
LEAVES_OUT: Final = (
    "on_demand_prices",
    "spot_prices",
    "reservations",
    "spot_scores",
    "own_reclaims",
    "block_offers",
    "commitments",
    "commitment_use",
    "commitment_regions",
    "committed_prices",
)
# The rooms of functions that are in no account.
ROOMS: Final = {
    **dict.fromkeys(LEAVES_OUT, "market"),
    "commitments": "commitment",
    "commitment_use": "commitment",
    "commitment_regions": "commitment",
    "committed_prices": "term_price",
    "running_machines": "running",
    "month_cost": "running",
    "profiled_models": "profile",
    "measured_profiles": "profile",
}


class Probe(NamedTuple):
    """A function of a cloud's account or market, and the calls that it makes."""

    cloud: str
    function: str
    rest: tuple[Any, ...]
    calls: tuple[str, ...]

    @property
    def name(self) -> str:
        return f"{self.cloud} {self.function}"

    @property
    def all_calls(self) -> tuple[str, ...]:
        """Its calls, and those that it makes after an answer that is not the ordinary one."""
        later = [
            call
            for call, (first, _) in CALLS_AFTER.items()
            if first in self.calls
        ]
        return (*self.calls, *later)

    @property
    def leaves_out(self) -> bool:
        """Whether what the cloud does not say is left out of the answer."""
        return self.function in LEAVES_OUT

    def ask(self) -> Any:
        """Ask the cloud, as a process does that has not asked before."""
        gcp_market._read_rates.cache_clear()
        room = ROOMS.get(self.function, "account")
        module = import_module(f"providers.{self.cloud}.{room}")
        ask = getattr(module, self.function)
        if self.function == "commitment_regions":
            return ask([REGIONS[self.cloud]])
        if room == "profile":
            return ask(*self.rest)
        return ask(REGIONS[self.cloud], *self.rest)

    def result(self) -> Any:
        """Return the answer, or the error of one of the kinds that callers expect."""
        try:
            return self.ask()
        except (OSError, LookupError, *MISSHAPEN) as error:
            return error


def _probes(
    cloud: str, *rows: tuple[str, tuple[Any, ...], tuple[str, ...]]
) -> list[Probe]:
    return [
        Probe(
            cloud,
            function,
            rest,
            tuple(f"{cloud}/{call}" for call in calls),
        )
        for function, rest, calls in rows
    ]


AZURE_TYPES: Final = PLACES["azure"].machine_types
PROBES: Final = [
    *_probes(
        "aws",
        ("signed_in", (), ("GetCallerIdentity",)),
        ("closed_services", (("ec2",),), ("DescribeRegions",)),
        (
            "quotas",
            (("p5.48xlarge",), "on_demand"),
            (
                "GetServiceQuota",
                "GetMetricStatistics",
                "ListRequestedServiceQuotaChangeHistoryByQuota",
            ),
        ),
        ("offered_zones", (AWS_TYPES,), ("DescribeInstanceTypeOfferings",)),
        ("named_endpoints", ("vpc-1",), ("DescribeVpcEndpoints",)),
        (
            "missing_rights",
            (("ec2:RunInstances", "iam:PassRole"),),
            ("GetCallerIdentity", "SimulatePrincipalPolicy"),
        ),
        ("on_demand_prices", (("g6.xlarge",),), ("GetProducts",)),
        ("committed_prices", (("g6.xlarge",),), ("GetProducts",)),
        ("spot_prices", (AWS_TYPES,), ("DescribeSpotPriceHistory",)),
        ("reservations", (), ("DescribeCapacityReservations",)),
        ("spot_scores", (AWS_TYPES, 2), ("GetSpotPlacementScores",)),
        (
            "own_reclaims",
            (AWS_TYPES,),
            ("GetCapacityManagerAttributes", "GetCapacityManagerMetricData"),
        ),
        (
            "block_offers",
            ("p5.48xlarge", 2, 96),
            ("DescribeCapacityBlockOfferings",),
        ),
        ("running_machines", (TAGS,), ("DescribeInstances",)),
        ("month_cost", (TAGS, TODAY), ("GetCostAndUsage",)),
        (
            "commitment_regions",
            (),
            ("DescribeReservedInstances", "DescribeSavingsPlans"),
        ),
        (
            "commitments",
            (AWS_TYPES,),
            (
                "DescribeReservedInstances",
                "DescribeSavingsPlans",
                "DescribeSavingsPlanRates",
            ),
        ),
        (
            "commitment_use",
            (AWS_TYPES,),
            (
                "DescribeReservedInstances",
                "DescribeInstances",
                "DescribeSavingsPlans",
                "GetSavingsPlansUtilizationDetails",
            ),
        ),
    ),
    *_probes(
        "gcp",
        ("signed_in", (), ("regions.get",)),
        (
            "closed_services",
            (("compute.googleapis.com", "logging.googleapis.com"),),
            ("services.batchGet",),
        ),
        (
            "quotas",
            (GCP_TYPES, "on_demand"),
            ("regions.get", "quotaInfos.list"),
        ),
        ("offered_zones", (GCP_TYPES,), ("machineTypes.aggregatedList",)),
        ("named_endpoints", ("net",), ()),
        (
            "missing_rights",
            (("compute.instances.create", "compute.networks.create"),),
            ("projects.testIamPermissions",),
        ),
        (
            "on_demand_prices",
            (GCP_TYPES,),
            ("machineTypes.aggregatedList", "skus.list"),
        ),
        (
            "spot_prices",
            (GCP_TYPES,),
            ("machineTypes.aggregatedList", "skus.list"),
        ),
        ("reservations", (), ("reservations.aggregatedList",)),
        ("spot_scores", (("g2-standard-4",), 2), ("advice.capacity",)),
        ("running_machines", (TAGS,), ("instances.aggregatedList",)),
        ("commitment_regions", (), ("regionCommitments.aggregatedList",)),
        (
            "commitments",
            (GCP_TYPES,),
            ("regionCommitments.list", "machineTypes.aggregatedList"),
        ),
        (
            "commitment_use",
            (GCP_TYPES,),
            ("regionCommitments.list", "instances.aggregatedList"),
        ),
    ),
    *_probes(
        "azure",
        ("signed_in", (), ("Subscriptions_Get",)),
        (
            "closed_services",
            (("Microsoft.Compute", "Microsoft.Insights"),),
            ("Providers_List",),
        ),
        (
            "quotas",
            (AZURE_TYPES, "on_demand"),
            ("Usage_List", "ResourceSkus_List"),
        ),
        ("offered_zones", (AZURE_TYPES,), ("ResourceSkus_List",)),
        ("named_endpoints", ("net",), ()),
        ("missing_rights", (AZURE_RIGHTS,), ("Permissions_List",)),
        ("on_demand_prices", (AZURE_TYPES,), ("RetailPrices_List",)),
        ("spot_prices", (AZURE_TYPES,), ("RetailPrices_List",)),
        (
            "reservations",
            (),
            (
                "CapacityReservationGroups_ListBySubscription",
                "CapacityReservations_ListByCapacityReservationGroup",
                "CapacityReservations_Get",
            ),
        ),
        ("spot_scores", (AZURE_TYPES, 2), ("SpotPlacementScores_Post",)),
        (
            "running_machines",
            (TAGS,),
            (
                "VirtualMachineScaleSets_ListAll",
                "VirtualMachineScaleSetVMs_List",
            ),
        ),
        ("month_cost", (TAGS, TODAY), ("Query_Usage",)),
        ("commitment_regions", (), ("Reservation_ListAll",)),
        (
            "commitments",
            (AZURE_TYPES,),
            ("Reservation_ListAll", "SavingsPlan_ListAll", "RetailPrices_List"),
        ),
        (
            "commitment_use",
            (AZURE_TYPES,),
            ("Reservation_ListAll", "SavingsPlan_ListAll"),
        ),
    ),
]


# What calibrate asks; no plan does.
PROFILE_PROBES: Final = [
    Probe("gcp", "profiled_models", (), ("gcp/models.fetch",)),
    Probe(
        "gcp",
        "measured_profiles",
        ("meta-llama/Meta-Llama-3-8B",),
        ("gcp/benchmarkingData.fetch",),
    ),
]
# Calls that are made where another one has a case that is not its ordinary one.
CALLS_AFTER: Final = {
    "aws/GetAWSDefaultServiceQuota": ("aws/GetServiceQuota", "none"),
    "azure/VirtualMachines_List": (
        "azure/VirtualMachineScaleSets_ListAll",
        "flexible",
    ),
}
# What changes an account is asked by nobody here.
CHANGING_CALLS: Final = {
    "aws": ("aws/RequestServiceQuotaIncrease",),
    "gcp": ("gcp/quotaInfos.list", "gcp/quotaPreferences.patch"),
    "azure": ("azure/Quota_CreateOrUpdate",),
}


def calls_of(cloud: str, function: str) -> tuple[str, ...]:
    """Return all calls of a function."""
    if function == CHANGING_FUNCTION:
        return CHANGING_CALLS[cloud]
    [calls] = [
        probe.all_calls
        for probe in (*PROBES, *PROFILE_PROBES)
        if (probe.cloud, probe.function) == (cloud, function)
    ] or [()]
    return calls


def ask_cloud(cloud: str, deadline_s: float = 60) -> LiveFacts:
    """Ask a cloud all that a plan wants to know about a region."""
    gcp_market._read_rates.cache_clear()
    return ask_places([PLACES[cloud]], LiveFacts(), deadline_s)
