"""The kinds of specs: the blocks that each is made of.

The reader, the JSON Schema and the reference page are generated from these tables.
"""

from __future__ import annotations

from typing import Final

from planner.spec import model
from planner.spec.field import Block
from planner.spec.field_table import block_fields
from planner.spec.serving_blocks import (
    BATCH_TRAFFIC,
    ELASTIC,
    ENDPOINT,
    SERVING,
    SLA,
    TRAFFIC,
)
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
            *block_fields(
                "inference",
                "Inference",
                {
                    "model": MODEL,
                    "sla": SLA,
                    "traffic": TRAFFIC,
                    "serving": SERVING,
                    "endpoint": ENDPOINT,
                    "elastic": ELASTIC,
                },
            ),
        ),
        doc="A service that answers requests within an SLA.",
    ),
    "Batch": Block(
        "Batch",
        model.Batch,
        (
            *header_fields("Batch"),
            *SHARED_FIELDS,
            *block_fields(
                "batch",
                "Batch",
                {
                    "model": MODEL,
                    "traffic": BATCH_TRAFFIC,
                    "serving": SERVING,
                },
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
            *block_fields(
                "training",
                "Training",
                {"model": MODEL, "data": DATA, "train": TRAINING_METHOD},
            ),
        ),
        doc="A model that is trained on a dataset, perhaps before a deadline.",
    ),
    "Workspace": Block(
        "Workspace",
        model.Workspace,
        (
            *header_fields("Workspace"),
            *SHARED_FIELDS,
            *block_fields(
                "workspace",
                "Workspace",
                {"fits": FITS, "accelerator": WORKSPACE_GPUS},
            ),
        ),
        doc="An interactive machine for each of a few people.",
        exclusive_groups=(("fits", "accelerator"),),
    ),
}


def workload_kind(root_node: MappingNode) -> str:
    """Return the value of `kind`, or an empty text when there is none."""
    kind_node = root_node.nodes.get("kind")
    # The kind selects the table of keys before any field is read.
    return kind_node.text if isinstance(kind_node, ScalarNode) else ""
