"""The kinds of specs: the blocks that each is made of.

The reader, the JSON Schema and the reference page are generated from these tables.
"""

from __future__ import annotations

import re
from typing import Final

from planner.spec import model, unit
from planner.spec.field import Block, Field, Quantity
from planner.spec.serving_blocks import BATCH_TRAFFIC, SLA, TRAFFIC
from planner.spec.shared_blocks import MODEL, SHARED_FIELDS, header_fields
from planner.spec.source import MappingNode, ScalarNode
from planner.spec.training_blocks import DATA, TRAINING_METHOD
from planner.spec.workspace_blocks import FITS, WORKSPACE_GPUS

SPEC_KINDS: Final = {
    "Inference": Block(
        "Inference",
        model.Inference,
        (
            *header_fields("Inference"),
            *SHARED_FIELDS,
            Field("model", MODEL, "what is served", required=True),
            Field("sla", SLA, "what is promised"),
            Field("traffic", TRAFFIC, "how requests arrive", required=True),
        ),
        doc="A service that answers requests within an SLA.",
    ),
    "Batch": Block(
        "Batch",
        model.Batch,
        (
            *header_fields("Batch"),
            *SHARED_FIELDS,
            Field("model", MODEL, "what is run", required=True),
            Field(
                "traffic",
                BATCH_TRAFFIC,
                "how much there is to do",
                required=True,
            ),
            Field(
                "deadline",
                Quantity(
                    unit.parse_seconds, "12h", minimum=600, maximum=90 * 86400
                ),
                "time a run may take",
                required=True,
            ),
        ),
        doc="Inference without latency: so many requests before a deadline.",
    ),
    "Training": Block(
        "Training",
        model.Training,
        (
            *header_fields("Training"),
            *SHARED_FIELDS,
            Field("model", MODEL, "what is trained", required=True),
            Field("data", DATA, "what is trained on", required=True),
            Field("train", TRAINING_METHOD, "how it is trained", required=True),
        ),
        doc="A model that is trained on a dataset, perhaps before a deadline.",
    ),
    "Workspace": Block(
        "Workspace",
        model.Workspace,
        (
            *header_fields("Workspace"),
            *SHARED_FIELDS,
            Field("fits", FITS, "what the machine must be able to hold"),
            Field("accelerator", WORKSPACE_GPUS, "the accelerators themselves"),
            Field(
                "users",
                Quantity(unit.parse_count, "3", minimum=1, maximum=1000),
                "people, each with a machine",
                default=1,
            ),
            Field(
                "disk",
                Quantity(
                    unit.parse_bytes,
                    "200GiB",
                    minimum=20 * 2**30,
                    maximum=64 * 2**40,
                ),
                "disk of each machine",
                default=200 * 2**30,
            ),
        ),
        doc="An interactive machine for each of a few people.",
        exclusive_groups=(("fits", "accelerator"),),
    ),
}


def workload_kind(root_node: MappingNode) -> str:
    """Return the value of `kind`, or an empty text when there is none."""
    kind_node = root_node.nodes.get("kind")
    return (
        # The kind selects the table of keys before any field is read.
        re.sub(r"\s", "", kind_node.text)
        if isinstance(kind_node, ScalarNode)
        else ""
    )
