"""Keys that exclude each other: each rule refuses a spec, which is one without the other key."""

from __future__ import annotations

import pytest

from planner.errors import SpecError
from planner.facts.rule import EVERY_CLOUD, rules_of
from tests.conftest import chat, present, spec_of
from tests.planner.spec.test_block import rule as block_lines

TRAINING = """\
apiVersion: tonnage/v1
kind: Training
name: tune
model: {name: llama-3.1-8b}
data: {location: s3://sets/chat, tokens: 200M}
train: {method: finetune, deadline: 3d}
"""
WORKSPACE = """\
apiVersion: tonnage/v1
kind: Workspace
name: desk
accelerator: {memory: 24GiB, count: 1}
"""
BLOCK = block_lines()
RESERVED = "reservations: [cr-0a1b2c3d4e5f60718@us-east-1a:2xp5.48xlarge]"
TTL = "shutdown: {ttl: 72h}"
IDLE = "shutdown: {idle: 1h}"
ASLEEP = "elastic: {least: 0, most: 2}"
ELASTIC = "elastic: {least: 0.5, most: 2}"
RESERVE = "update: recreate\nbuy: {reserve: true}"
TWO_TYPES = "buy: {machine_types: 2}"
CLASSES = "serving: {classes: auto}"
BATCH = """
apiVersion: tonnage/v1
kind: Batch
name: summaries
model: {name: llama-3.1-8b}
deadline: 8h
traffic: {total_requests: 1000, input_tokens: 100, output_tokens: 100}
"""
APART = "serving: {pools: auto}"
TRACED = """
apiVersion: tonnage/v1
kind: Inference
name: chat
model: {name: llama-3.1-8b}
sla: {ttft_p95: 2s}
traffic: {trace: requests.csv}
"""
PUBLIC = (
    "endpoint: {public: true, host: chat.example.com, api_key: 'secret://key', "
    "certificate: 'arn:aws:acm:us-east-1:123456789012:certificate/"
    "0a1b2c3d-0a1b-0a1b-0a1b-0a1b2c3d4e5f'}"
)
KEYED = "endpoint: {api_key: 'secret://key'}"
NETWORK = (
    "network: {id: vpc-0a1b2c3d4e5f60718, range: 10.20.0.0/20, "
    "subnets: [subnet-0a1b2c3d4e5f60711@us-east-1a]}"
)
BESIDE = "beside: [rerank.yaml]"
ADDRESSED = "network: {public_addresses: true}"


def training(buy: str, more: str = "") -> str:
    return f"{TRAINING}where: {{clouds: [aws]}}\nbuy: {{{buy}}}\n{more}"


def tokens_of(data: str) -> str:
    return training("").replace("tokens: 200M", f"tokens: 200M, {data}")


def service(more: str) -> str:
    return chat(extra=f"where: {{clouds: [aws]}}\n{more}")


# A spec that breaks the rule, and one that does not, by one key.
EXAMPLES = {
    "beside-kind": (
        chat(extra=f"deadline: 12h\nserving: {{{BESIDE}}}")
        .replace("kind: Inference", "kind: Batch")
        .replace("sla: {ttft_p95: 2s, tpot_p95: 80ms}\n", "")
        .replace("peak_rps: 2", "total_requests: 1000"),
        chat(extra=f"serving: {{{BESIDE}}}"),
    ),
    **{
        f"beside-{name}": (
            service(f"serving: {{{BESIDE}, {other}}}"),
            service(f"serving: {{{other}}}"),
        )
        for name, other in (
            ("engine", "engine: sglang"),
            ("speculation", "speculation: mtp"),
            ("classes", "classes: auto"),
            ("pools", "pools: auto"),
        )
    },
    "beside-elastic": (
        service(f"serving: {{{BESIDE}}}\n{ELASTIC}"),
        service(ELASTIC),
    ),
    "beside-types": (
        service(f"serving: {{{BESIDE}}}\n{TWO_TYPES}"),
        service(TWO_TYPES),
    ),
    "engine-network": (
        service(f"serving: {{engine: tensorrt-llm}}\n{KEYED}\n{NETWORK}"),
        service(f"serving: {{engine: tensorrt-llm}}\n{KEYED}"),
    ),
    "engine-elastic": (
        service(f"serving: {{engine: tensorrt-llm}}\n{ELASTIC}"),
        service(f"serving: {{engine: sglang}}\n{ELASTIC}"),
    ),
    "engine-speculation": (
        service("serving: {engine: sglang, speculation: mtp}"),
        service("serving: {engine: vllm, speculation: mtp}"),
    ),
    "speculation-auto": (
        service("serving: {speculation: auto, acceptance: 40%}"),
        service("serving: {speculation: auto}"),
    ),
    "speculation-acceptance": (
        service("serving: {speculation: ngram}"),
        service("serving: {speculation: ngram, acceptance: 40%}"),
    ),
    "speculation-off": (
        service("serving: {acceptance: 40%}"),
        service("serving: {speculation: ngram, acceptance: 40%}"),
    ),
    "speculation-weights": (
        service("serving: {speculation: eagle3}"),
        service("serving: {speculation: eagle3}").replace(
            "model: {", "model: {weights: 'hf:owner/name', "
        ),
    ),
    "block-kind": (service(f"buy: {{{BLOCK}}}"), service("")),
    "block-reservations": (training(f"{BLOCK}, {RESERVED}"), training(BLOCK)),
    "block-spot": (training(f"{BLOCK}, spot: only"), training(BLOCK)),
    "block-commit": (training(f"{BLOCK}, commit: 1y"), training(BLOCK)),
    "block-ttl": (training(BLOCK, TTL), training(BLOCK)),
    "flex-kind": (service("buy: {flex_start: true}"), service("")),
    "flex-reservations": (
        training(f"flex_start: true, {RESERVED}"),
        training("flex_start: true"),
    ),
    "flex-block": (
        training(f"flex_start: true, {BLOCK}"),
        training("flex_start: true"),
    ),
    "flex-spot": (
        training("flex_start: true, spot: only"),
        training("flex_start: true"),
    ),
    "flex-commit": (
        training("flex_start: true, commit: 1y"),
        training("flex_start: true"),
    ),
    "framework-adapters": (
        training("").replace(
            "method: finetune", "method: lora, framework: megatron"
        ),
        training("").replace("method: finetune", "method: lora"),
    ),
    "experts-framework": (
        training("").replace(
            "method: finetune",
            "method: finetune, framework: hf, expert_precision: nvfp4",
        ),
        training("").replace(
            "method: finetune", "method: finetune, expert_precision: nvfp4"
        ),
    ),
    "experts-method": (
        training("").replace(
            "method: finetune", "method: lora, expert_precision: nvfp4"
        ),
        training("").replace(
            "method: finetune", "method: lora, expert_precision: auto"
        ),
    ),
    "image-form": (tokens_of("image_tokens: 576"), tokens_of("form: tokens")),
    "image-pixels": (tokens_of("image_pixels: 1M"), tokens_of("form: tokens")),
    "image-tokens": (
        tokens_of("form: images"),
        tokens_of("form: images, image_tokens: 576"),
    ),
    "text-packed": (
        tokens_of("form: text"),
        tokens_of("form: text").replace(
            "method: finetune", "method: finetune, framework: torchtitan"
        ),
    ),
    "flex-ttl": (
        training("flex_start: true", TTL),
        training("flex_start: true"),
    ),
    "small-cloud-spot": (
        chat(extra="where: {clouds: [nebius]}\nbuy: {spot: only}"),
        chat(extra="where: {clouds: [nebius]}\nbuy: {spot: never}"),
    ),
    "mix-kind": (
        f"{WORKSPACE}buy: {{on_demand_base: 40%}}\n",
        f"{WORKSPACE}buy: {{spot: never}}\n",
    ),
    "mix-auto": (
        training("on_demand_base: auto"),
        training("on_demand_base: 40%"),
    ),
    **{
        f"mix-{name}": (
            service(f"buy: {{on_demand_base: 40%, {other}}}"),
            service("buy: {on_demand_base: 40%}"),
        )
        for name, other in (
            ("reservations", RESERVED),
            ("reserve", "reserve: true"),
            ("spot", "spot: never"),
            ("commit", "commit: 3y"),
        )
    },
    **{
        f"usage-{name}": (
            training("spot: auto", f"usage: {{{key}: 3}}"),
            training("spot: auto", "usage: {container_image_gb: 3}"),
        )
        for name, key in (
            ("prompt", "prompt_bytes_per_token"),
            ("stream", "stream_bytes_per_token"),
            ("overlap", "overlap_hours"),
        )
    },
    "mix-promise": (
        service("buy: {on_demand_base: auto}"),
        service("buy: {on_demand_base: 40%}"),
    ),
    "owned-kind": (training("owned: o.yaml"), training("spot: auto")),
    **{
        f"owned-{name}": (
            service(f"{more}buy: {{owned: o.yaml, {other}}}"),
            service("buy: {owned: o.yaml}"),
        )
        for name, other, more in (
            ("commit", "commit: 3y", ""),
            ("spot", "spot: only", ""),
            ("reservations", RESERVED, ""),
            ("reserve", "reserve: true", "update: recreate\n"),
        )
    },
    "mix-elastic": (
        service(f"buy: {{on_demand_base: 40%}}\n{ELASTIC}"),
        service(ELASTIC),
    ),
    "reserve-kind": (training("reserve: true"), training("spot: auto")),
    **{
        f"reserve-{name}": (
            service(f"update: recreate\nbuy: {{reserve: true, {other}}}"),
            service(RESERVE),
        )
        for name, other in (
            ("reservations", RESERVED),
            ("spot", "spot: only"),
            ("commit", "commit: 1y"),
        )
    },
    **{
        f"reserve-{name}": (service(f"{RESERVE}\n{other}"), service(RESERVE))
        for name, other in (
            ("ttl", TTL),
            ("idle", IDLE),
            ("elastic", ELASTIC),
        )
    },
    "reserve-survives": (
        chat(
            sla="ttft_p95: 2s, tpot_p95: 80ms, survives: zone",
            extra=f"where: {{clouds: [aws]}}\n{RESERVE}",
        ),
        service(RESERVE),
    ),
    "reserve-update": (service("buy: {reserve: true}"), service(RESERVE)),
    "spot-reservations": (
        service(f"buy: {{spot: only, {RESERVED}}}"),
        service(f"buy: {{{RESERVED}}}"),
    ),
    "spot-commit": (
        service("buy: {spot: only, commit: 1y}"),
        service("buy: {commit: 1y}"),
    ),
    "elastic-none-availability": (
        chat(sla="availability: 99.5%", extra=ASLEEP),
        chat(sla="availability: 99.5%", extra=ELASTIC),
    ),
    "elastic-none-survives": (
        chat(sla="survives: node", extra=ASLEEP),
        chat(sla="survives: node", extra=ELASTIC),
    ),
    "elastic-idle": (service(f"{ELASTIC}\n{IDLE}"), service(ELASTIC)),
    "elastic-reservations": (
        service(f"{ELASTIC}\nbuy: {{{RESERVED}}}"),
        service(ELASTIC),
    ),
    "types-kind": (training("machine_types: 2"), training("spot: auto")),
    **{
        f"types-{name}": (
            chat(traffic=traffic, extra=TWO_TYPES),
            chat(traffic=traffic),
        )
        for name, traffic in (
            ("routing", "peak_rps: 2\n  routing: least-loaded"),
            ("loop", "concurrency: 4"),
        )
    },
    "types-trace": (
        TRACED.replace("traffic:", f"{TWO_TYPES}\ntraffic:"),
        TRACED,
    ),
    "types-elastic": (service(f"{TWO_TYPES}\n{ELASTIC}"), service(ELASTIC)),
    **{
        f"types-{name}": (
            service(f"{more}buy: {{machine_types: 2, {other}}}"),
            service(f"{more}buy: {{machine_types: 1, {other}}}"),
        )
        for name, other, more in (
            ("base", "on_demand_base: 40%", ""),
            ("reservations", RESERVED, ""),
            ("reserve", "reserve: true", "update: recreate\n"),
        )
    },
    "classes-kind": (BATCH + CLASSES, BATCH),
    "classes-loop": (
        chat(traffic="concurrency: 4", extra=CLASSES),
        chat(traffic="concurrency: 4"),
    ),
    "classes-elastic": (service(f"{CLASSES}\n{ELASTIC}"), service(ELASTIC)),
    **{
        f"classes-{name}": (
            service(f"{CLASSES}\n{other}"),
            service(other),
        )
        for name, other in (
            ("base", "buy: {on_demand_base: 40%}"),
            ("reservations", f"buy: {{{RESERVED}}}"),
            ("reserve", RESERVE),
        )
    },
    "pools-kind": (
        BATCH + APART,
        BATCH,
    ),
    **{
        f"pools-{name}": (
            chat(extra=f"serving: {{pools: auto, {other}}}"),
            chat(extra=f"serving: {{pools: together, {other}}}"),
        )
        for name, other in (
            ("engine", "engine: sglang"),
            ("speculation", "speculation: ngram, acceptance: 60%"),
        )
    },
    "pools-classes": (
        service("serving: {pools: auto, classes: auto}"),
        service("serving: {pools: together, classes: auto}"),
    ),
    "pools-types": (
        service(f"{TWO_TYPES}\n{APART}"),
        service(TWO_TYPES),
    ),
    "pools-loop": (
        chat(traffic="concurrency: 4", extra=APART),
        chat(traffic="concurrency: 4"),
    ),
    "pools-trace": (TRACED.replace("traffic:", f"{APART}\ntraffic:"), TRACED),
    "pools-elastic": (service(f"{APART}\n{ELASTIC}"), service(ELASTIC)),
    "pools-zone": (
        chat(sla="survives: zone", extra=APART),
        chat(sla="survives: node", extra=APART),
    ),
    **{
        f"pools-{name}": (
            service(f"{more}buy: {{{other}}}\n{APART}"),
            service(f"{more}buy: {{{other}}}"),
        )
        for name, other, more in (
            ("base", "on_demand_base: 40%", ""),
            ("reservations", RESERVED, ""),
            ("reserve", "reserve: true", "update: recreate\n"),
        )
    },
    "addresses-network": (
        service(NETWORK.replace("{", "{public_addresses: true, ")),
        service(NETWORK),
    ),
    "addresses-public": (
        service(f"{PUBLIC}\n{ADDRESSED}"),
        service(f"{KEYED}\n{ADDRESSED}"),
    ),
    "public-network": (service(f"{PUBLIC}\n{NETWORK}"), service(PUBLIC)),
}


@pytest.mark.parametrize(
    "rule", rules_of("spec", EVERY_CLOUD), ids=lambda r: r.id
)
def test_a_rule_refuses_what_it_is_about(rule) -> None:
    broken, kept = EXAMPLES[rule.id]
    with pytest.raises(SpecError) as refused:
        spec_of(broken)
    found = {problem.code: problem for problem in refused.value.problems}
    problem = found[rule.id]
    assert present(problem.place).line > 1
    assert (problem.message, problem.next_step) == (rule.reason, rule.remedy)
    spec_of(kept)


def test_every_example_is_of_a_rule() -> None:
    assert EXAMPLES.keys() == {r.id for r in rules_of("spec", EVERY_CLOUD)}
