"""Field types of single keys: lengths, batches, schedules, load profiles and renamed keys."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from msgspec import Struct
from msgspec.structs import replace

from planner.facts.accelerator import accelerators, is_named
from planner.facts.cloud import clouds
from planner.facts.small_cloud import small_clouds
from planner.spec import model, unit
from planner.spec.field import (
    MISSING,
    Block,
    Choice,
    ListOf,
    Quantity,
    TextPattern,
    suggest_word,
)
from planner.spec.schedule import parse_schedule
from planner.spec.source import Node, ScalarNode

if TYPE_CHECKING:
    from planner.spec.field import FieldType, JsonSchema, ProblemReport

_WEEKDAY: Final = "(mon|tue|wed|thu|fri|sat|sun)"
DAYS_PATTERN: Final = rf"(weekdays|weekends|daily|{_WEEKDAY}([-,]{_WEEKDAY})*)"
SCHEDULE_TEXT: Final = TextPattern(
    DAYS_PATTERN + r" \d{2}:\d{2}-\d{2}:\d{2}( [A-Za-z]+(/[A-Za-z_+-]+){0,2})?",
    "a schedule such as 'weekdays 07:00-20:00 Europe/Berlin'",
)


class CloudName(Struct, frozen=True):
    """A cloud that the table of clouds names.

    rents_out  whether small ones are meant too, on which nothing is built
    """

    rents_out: bool = False

    def read(self, node: Node, field_path: str, report: ProblemReport) -> Any:
        """Return the name, or `MISSING` when no cloud has it."""
        return Choice(self._names).read(node, field_path, report)

    def schema(self) -> JsonSchema:
        """Describe as one of the clouds."""
        return Choice(self._names).schema()

    @property
    def _names(self) -> tuple[str, ...]:
        return (*clouds(), *(small_clouds() if self.rents_out else ()))


class AcceleratorName(Struct, frozen=True):
    """An accelerator, a family of them such as h100, or a pattern with *."""

    name_text = TextPattern(
        r"[A-Za-z0-9*?._-]+",
        "an accelerator, a family such as h100, or a pattern",
    )

    def read(self, node: Node, field_path: str, report: ProblemReport) -> Any:
        """Return the word; report one that means no accelerator, with the closest that does."""
        word = self.name_text.read(node, field_path, report)
        if word is MISSING or any(
            is_named(accelerator, word) for accelerator in accelerators()
        ):
            return word
        # A family is suggested before its members: h100 for h10O.
        families = {name.partition("-")[0]: None for name in accelerators()}
        next_step = (
            suggest_word(word.lower(), [*families, *accelerators()])
            or "see all of them: tonnage catalog accelerators"
        )
        return report.add(
            node.place,
            "accelerator",
            f"{field_path}: nothing is named '{word}'",
            next_step,
        )

    def schema(self) -> JsonSchema:
        """Describe the form."""
        return self.name_text.schema()


class TruthType(Struct, frozen=True):
    """True or false, as YAML writes them."""

    def read(self, node: Node, field_path: str, report: ProblemReport) -> Any:
        """Return the value."""
        word = Choice(("false", "true")).read(node, field_path, report)
        return word if word is MISSING else word == "true"

    def schema(self) -> JsonSchema:
        """Describe as a truth value."""
        return {"type": "boolean"}


class AutomaticType(Struct, frozen=True):
    """A value, or the word auto for the one that the planner finds best.

    `automatic_value`  what stands for auto: None, unless nothing stands for an absent key
    """

    stated_type: FieldType
    automatic_value: Any = None

    def read(self, node: Node, field_path: str, report: ProblemReport) -> Any:
        """Return the value, or what stands for auto."""
        if isinstance(node, ScalarNode) and node.text == "auto":
            return self.automatic_value
        return self.stated_type.read(node, field_path, report)

    def schema(self) -> JsonSchema:
        """Describe both forms."""
        return {"anyOf": [self.stated_type.schema(), {"const": "auto"}]}


class LengthsType(Struct, frozen=True):
    """Token lengths: one number, or a mapping of mean and p95, the first field of `block`."""

    block: Block

    def read(self, node: Node, field_path: str, report: ProblemReport) -> Any:
        """Return a fixed length for a number, and a distribution for a mapping."""
        if not isinstance(node, ScalarNode):
            token_lengths = self.block.read(node, field_path, report)
            if (
                token_lengths is not MISSING
                # A p95 below the mean has no length distribution in the model.
                and token_lengths.p95 < token_lengths.mean
            ):
                return report.add(
                    node.place,
                    "range",
                    f"{field_path}: p95 is below the mean",
                    "write a p95 of at least the mean",
                )
            return token_lengths
        mean_tokens = self.block.fields[0].field_type.read(
            node, field_path, report
        )
        return (
            MISSING
            if mean_tokens is MISSING
            else model.TokenLengths(mean=mean_tokens, p95=mean_tokens)
        )

    def schema(self) -> JsonSchema:
        """Describe both forms."""
        return {
            "anyOf": [
                self.block.fields[0].field_type.schema(),
                self.block.schema(),
            ]
        }


class GlobalBatchType:
    """Global batch of a step: 4M tokens, 512 sequences, or 512."""

    batch_text = TextPattern(
        r"[0-9.]+ ?[kKmMbB]?( ?(tokens|sequences))?",
        "a batch such as 4M tokens or 512",
    )

    def read(self, node: Node, field_path: str, report: ProblemReport) -> Any:
        """Return the count, and whether it counts tokens instead of sequences."""
        batch_text = self.batch_text.read(node, field_path, report)
        if batch_text is MISSING:
            return MISSING
        try:
            batch_size = unit.parse_count(batch_text.removesuffix("sequences"))
        except ValueError as count_error:
            return report.add(
                node.place,
                "value",
                f"{field_path}: {count_error}",
                "write 4M tokens, or 512",
            )
        if not 1 <= batch_size <= 10**10:
            return report.add(
                node.place,
                "range",
                f"{field_path} is {batch_size:,}",
                "write 1 to 10 billion",
            )
        # A plain number counts sequences.
        return batch_size, "tokens" in batch_text

    def schema(self) -> JsonSchema:
        """Describe the text form and the plain number."""
        return {
            "anyOf": [
                self.batch_text.schema(),
                {"type": "integer", "minimum": 1},
            ]
        }


class ScheduleType:
    """Hours of the week in a known time zone."""

    def read(self, node: Node, field_path: str, report: ProblemReport) -> Any:
        """Return the text after a check of its days, times and zone."""
        schedule_text = SCHEDULE_TEXT.read(node, field_path, report)
        if schedule_text is MISSING:
            return MISSING
        try:
            # The pattern checks the form only; times may be out of range.
            zone_name = parse_schedule(schedule_text)[3]
            ZoneInfo(zone_name)
        except ValueError as time_error:
            return report.add(
                node.place,
                "value",
                f"{field_path}: {time_error}",
                "write times from 00:00 to 24:00",
            )
        except (ZoneInfoNotFoundError, OSError):
            return report.add(
                node.place,
                "value",
                f"{field_path}: no time zone is named '{zone_name}'",
                "write a zone such as Europe/Berlin or UTC",
            )
        return schedule_text

    def schema(self) -> JsonSchema:
        """Describe the form."""
        return SCHEDULE_TEXT.schema()


class ProfileType:
    """Shape of the load over a week: a name, or 24 or 168 hourly weights."""

    shape_names = Choice(("flat", "business-hours", "diurnal"))
    hourly_weights = ListOf(
        Quantity(unit.parse_number, "0.4", maximum="1000000")
    )

    def read(self, node: Node, field_path: str, report: ProblemReport) -> Any:
        """Return a name, or a tuple of weights."""
        if isinstance(node, ScalarNode):
            return self.shape_names.read(node, field_path, report)
        hourly_weights = self.hourly_weights.read(node, field_path, report)
        if hourly_weights is MISSING:
            return MISSING
        if len(hourly_weights) not in (24, 168) or not any(hourly_weights):
            return report.add(
                node.place,
                "length",
                f"{field_path} has {len(hourly_weights)} weights",
                "give 24 or 168 hourly weights, not all zero",
            )
        return hourly_weights

    def schema(self) -> JsonSchema:
        """Describe both forms."""
        return {
            "anyOf": [self.shape_names.schema(), self.hourly_weights.schema()]
        }


class RenamedBlock:
    """A block with keys that cannot be argument names in Python.

    argument_names  argument of `build_object` by key, such as `for` to `use`
    """

    def __init__(self, block: Block, argument_names: dict[str, str]) -> None:
        self.block = block
        self.argument_names = argument_names

    def read(self, node: Node, field_path: str, report: ProblemReport) -> Any:
        """Read the block, and build the object with the renamed arguments."""
        build_object = self.block.build_object
        renamed_block = replace(
            self.block,
            build_object=lambda **field_values: build_object(
                **{
                    self.argument_names.get(field_key, field_key): field_value
                    for field_key, field_value in field_values.items()
                }
            ),
        )
        return renamed_block.read(node, field_path, report)

    def schema(self) -> JsonSchema:
        """Describe the block."""
        return self.block.schema()
