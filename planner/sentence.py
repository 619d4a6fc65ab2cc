"""The English of reasons: one sentence for each code, with the formats of `planner/figures.py`."""

from __future__ import annotations

from string import Formatter
from typing import TYPE_CHECKING, Any, Final

from planner import figures

if TYPE_CHECKING:
    from collections.abc import Callable

    from planner.solve.cause import Cause

# What a format after a colon does with a value: {limit_s:time}.
FORMATS: Final[dict[str, Callable[[Any], str]]] = {
    "time": figures.duration,
    "about": figures.about,
    "at_least": figures.duration_at_least,
    "spec_time": figures.spec_duration,
    "whole_dollars": figures.whole_dollars_up,
}
SENTENCES: Final = {
    # Why a fleet is not chosen.
    "price": "price",
    "knee": "cost x time",
    "infeasible": "infeasible",
    "limit": "{key}",
    "memory": "memory: needs {needed_gib:,.0f} GiB of {limit_gib:,.0f} GiB each",
    "memory-close": "memory: needs {short_mib:,.0f} MiB more than {limit_gib:,.1f} GiB each",
    "memory-each": "memory: {memory_gib:g} GiB each of {needed_gib:g} GiB",
    "memory-total": "memory: {memory_gib:,.0f} GiB of {needed_gib:,.0f} GiB",
    "memory-layout": "memory: no layout fits",
    "no-base": "buy: machines on demand alone do not hold the job in this layout",
    "undivided": "buy: one machine is bought in one way",
    "accelerators": "accelerators: {accelerators} of {needed}",
    "layout": "no layout of the model fits its accelerators",
    "unreachable": "{key}: not met by any number of machines",
    "idle-time": "{key}: {reached_s:time} > {limit_s:time} even when idle",
    "peak-time": "{key}: {reached_s:time} > {limit_s:time} at peak",
    "peak-undecided": "{key}: {reached_s:time} at peak, too close to {limit_s:time} to tell",
    "overload": "{key}: it cannot keep up at peak",
    "starved": "its cores starve it: waits {waiting_share:.0%}",
    "late": "{key}: the run would end too late",
    "earliest-end": "{key}: {best_days:,.1f} days at best",
    "never": "{key}: never",
    "spare-node": "{key}: the loss of one would break the SLA",
    "one-zone": "{key}: its nodes, or their way out, are in one zone",
    "elastic-span": "{key}: a replica over {nodes} machines does not come and go by single ones",
    "engine-span": "{key}: no replica of it spans {nodes} machines",
    "availability": "{key}: {reached:.3%} of the time < {wanted:.3%}",
    "taken-back": "{key}: could be taken back at any time",
    "undecided-spot": "its price on spot is too old or too weak to choose by: buy.spot: only",
    "commitment": "{key}: the commitment is not allowed",
    "quota": "{key}: {reached:,.0f} needed, {machines:,.0f} allowed",
    "capacity": "{key}: at most {machines} of them at once are known to be had",
    "reserved": "{key}: {reached:,.0f} machines are needed, and {machines:,.0f} reserved",
    "excluded": "excluded by {rules}",
    "group-nodes": "its cloud: {reached:,.0f} machines of {allowed:,.0f} that the fabric joins",
    "capacity-profiles": "its cloud: {reached:,.0f} capacity profiles a week of {allowed:,.0f}",
    "told": "{told}",
    # Values to which a constraint is relaxed.
    "any": "any",
    "seconds-at-least": "{value_s:at_least}",
    "run-time": "{value_s:spec_time}",
    "usd": "{value_usd:whole_dollars}",
    "usd-month-at-least": "{value_usd:whole_dollars}/month",
    "count": "{value}",
    "purchase": "{purchase}",
    "routing": "{routing}",
    "reserve": "never: ask for a capacity block or a reservation",
    "reserve-block": "never: ask for a capacity block ({days} days, {block_usd:,.0f} USD) or a "
    "reservation",
    "also-precision": "also {precision}",
    # Warnings.
    "assumed-architecture": "dense, {layers} layers of width {width}, grouped-query attention",
    "assumed-tokens": "tokens are not stated: {tokens:,.0f}, {tokens_per_parameter:g} for each "
    "parameter",
    "edge": "the fleet is close to a limit: a simulation of other requests may not confirm it",
    "other-calibration": "the calibration is of {model} on {accelerator}: it says nothing here",
    "engine-calibration": "the calibration is of {engine}, which serves nothing here",
    "engine": "machines start {engine}",
    "other-engine": "with {engine} the plan costs ${other_usd:,.2f}",
    "no-engine": "with {engine} no machine meets the limits",
    "refused-engine": "{engine} is no choice: {told}",
    "other-guesses": "with guesses by {method} the plan costs ${other_usd:,.2f}",
    "no-guesses": "with guesses by {method} no machine meets the limits",
    "refused-guesses": "guesses by {method} are no choice: {told}",
    "unknown-guesses": "nothing guesses: no draft with a published acceptance is known for these "
    "weights",
    "engine-margins": "machines start {engine}, whose margins nobody has measured: they are those "
    "of vllm, wider by what all engines err more; tonnage bench measures its own",
    "spot": "spot machines can be taken back at short notice, all of them at once",
    "reserved-roll": "a new template takes one machine more than the {machines:,} that are "
    "reserved: write update: recreate, or the roll waits for ever",
    "time-shares": "{engines} engines take turns on each accelerator, and each fills the memory "
    "that it is told of: nothing else keeps them apart, and a fault of the accelerator stops all",
    "slices": "each of {engines} engines has a MIG slice of each accelerator, with memory, "
    "bandwidth and faults of its own",
    "apart": "each service on machines of its own: ${apart_usd:,.2f} for all of them together",
    "apart-one": "{service} on machines of its own: ${alone_usd:,.2f}",
    "none-apart": "{service} has no machines of its own that meet its limits",
    "small-cache": "the KV cache has 8 bits, which may change answers: compare them on questions "
    "of your own, or write model.kv_precision: bf16",
    "default-cache": "the KV cache of 8 bits saves ${saved_usd:,.2f} against "
    "model.kv_precision: bf16",
    "no-default-cache": "with model.kv_precision: bf16 no machine meets the limits",
    "apart-saves": "prompts and answers have machines of their own, which saves "
    "${saved_usd:,.2f} against serving.pools: together",
    "apart-only": "with serving.pools: together no machines meet the limits",
    "hand-over": "the cache of a mean prompt takes {handed_s:time} from the machines that compute "
    "prompts to those that answer, over TCP: nobody has measured it on these machines",
    "draft": "guesses by {method}, {guesses:,} ahead in each step: each is taken as right with "
    "{acceptance_share:.0%} ({told_by}), watch vllm:spec_decode_num_accepted_tokens",
    "no-draft": "without guesses the plan costs ${without_usd:,.2f}",
    "only-draft": "without guesses no machine meets the limits",
    "classes": "requests with bodies above {body:,} bytes, the cheapest of {borders} borders, "
    "go to serve-long, all others to serve-short, whose contexts end at {context:,} tokens: "
    "prompts up to {sure:,} tokens are short and those above {most:,} long, between them their "
    "text decides",
    "one-class": "at none of {borders} borders would machines of their own for long requests "
    "cost less than one pool",
    "asleep": "while nobody asks, no machine runs, and then nothing answers: the hours of the "
    "schedule bring machines back, or tonnage start, in {startup_s:about}",
    "compiles": "engines on {accelerator} compile their programs for {compile_s:about} when they "
    "first start: a new machine answers {startup_s:about} after it is asked for",
    "window": "machines leave {window_s:time} after midnight, by when a run is done with the "
    "confidence of the plan; with shutdown.idle a slower one has until {deadline_s:time}",
    "quiet-hours": "the machines of hours with {load_share:.0%} of the peak miss {key}: "
    "{reached_s:time} > {limit_s:time}, since clumps of requests weigh more on few machines; "
    "traffic.profile: flat keeps all of them",
    "spot-base": "spot machines can be taken back at short notice, all of them at once: "
    "{base_nodes:,} of {nodes:,} machines stay, and meet the limits of as much of the peak",
    "spot-run": "spot machines can be taken back at short notice, all of them at once: "
    "{base_nodes:,} of {nodes:,} machines stay, and alone finish a run in {alone_s:time}",
    "spot-job": "spot machines can be taken back at short notice, all of them at once: "
    "{base_nodes:,} of {nodes:,} machines stay, and train on at {speed_share:.0%} of the speed",
    "spot-promise": "enough machines are up {high_rate_share:.3%} of the time at the highest "
    "published rate of reclaims, {low_rate_share:.3%} at the lowest",
    "spot-promise-less": "enough machines are up {high_rate_share:.3%} of the time at the highest "
    "published rate of reclaims, {low_rate_share:.3%} at the lowest; there {calm_base:,} that "
    "stay of {calm_nodes:,} would do, for ${calm_usd:,.2f}",
    "aged-spot": "no machine is on spot: at the upper end of what old prices may be today none "
    "keeps sla.availability for less",
    "unused-spot": "no machine is on spot: at published rates of reclaims none keeps "
    "sla.availability for less",
    "unknown-reclaims": "no machine is on spot: {cloud} publishes no rate of reclaims, which "
    "sla.availability needs",
    "aged-batch": "no machine is on spot: at the upper end of what old prices may be today none "
    "costs less, and weak prices do not count",
    "aged-batch-type": "no machine is on spot: the price of {machine} there, {found_usd:,.2f} USD "
    "an hour of {as_of}, may be {upper_usd:,.2f} today",
    "refused-spot": "on spot alone sla.availability is at most {most_share:.2%}: no rate of "
    "reclaims is published of {cloud}, and in traces all of a region are away for the rest",
    "unused-prices": "{rows}: of no machine of the catalog in this way to buy, so they change no "
    "price; see names: tonnage offers",
    "idle-network": "the network stands in all {standing} hours of a month, and machines run in "
    "{running}: ${idle_usd:,.0f} of the bill are for hours without one; in a network that there "
    "is already (network.id) they are not paid",
    "idle-network-addresses": "the network stands in all {standing} hours of a month, and "
    "machines run in {running}: ${idle_usd:,.0f} of the bill are for hours without one; in a "
    "network that there is already (network.id) they are not paid; public addresses of the "
    "machines instead of a NAT (network.public_addresses), where your rules allow them, save "
    "${saved_usd:,.0f}",
    "unsure-price": "the {purchase} price of {machine} in {region} is {basis}, of {as_of}, with "
    "{confidence} confidence",
    "old-price": "the {purchase} price of {machine} in {region} is of {as_of}, more than a year "
    "old: {old_usd:,.2f} USD an hour",
    "old-spot-price": "the {purchase} price of {machine} in {region} is of {as_of}, more than a "
    "year old: {old_usd:,.2f} USD an hour then, {fresh_usd:,.2f} at the ratio to on demand of "
    "{ratio_as_of}; planned with {planned_usd:,.2f}",
    "moved-spot-price": "spot of {machine} is planned with {planned_usd:,.2f} USD an hour, the "
    "upper end of {found_usd:,.2f} of {as_of}",
    "price-range": "the {purchase} price of {machine} in {region} was seen from {low_usd:,.2f} to "
    "{high_usd:,.2f} USD an hour",
    "reclaim-band": "{low_share:.0%} to {high_share:.0%} of {machine} on spot in {region} are "
    "taken back in a month, by its cloud's figures of {as_of}",
    "low-confidence": "the price of {machine} has low confidence",
    "no-price": "no price is known of {lines}: not in the total",
    "no-price-budget": "no price is known of {lines}: not in the total, so it may be more than "
    "the budget",
    "disk": "what is not in /work goes with its machine; the disk at /work stays until somebody "
    "deletes it",
    "block-size": "{nodes:,} machines are more than blocks hold ({block_nodes}): agree on the "
    "capacity before you apply",
    "beyond-quota": "{nodes:,} {machine} on demand are more than the {machines} that an account "
    "starts with ({strength} evidence of {as_of}): ask for quota, a capacity block or a "
    "reservation",
    "ask-block": "a capacity block of {days} days costs {block_usd:,.0f} USD, price of {as_of}, "
    "quoted when bought",
    "ask-hourly": "{purchase} costs {hour_usd:,.2f} USD an hour and machine, price of {as_of}",
    "ask-commitment": "{purchase} costs {hour_usd:,.2f} USD an hour and machine, price of "
    "{as_of}; a commitment alone keeps no capacity",
    "ask-reservation": "no price of a capacity block or a reservation is known here",
    "unbuilt-cloud": "nothing is built at {cloud}: the price is that of machines alone, and their "
    "hosts are taken to be like those of larger clouds",
    "unbuilt-accelerator": "nothing is built with {accelerator}: {lacks}; the plan compares "
    "it alone",
    "rows-apart": "speeds of {accelerator} rest on formulas; how far they are off is known from "
    "{rows:,} published measurements, which no fit of its hardware has",
    "no-rows": "no measurement of {accelerator} is among those that predictions of services are "
    "judged by: speeds rest on its data sheet, with the errors that other makers had",
    "moved-data": "the data lie on {data_cloud}: bring them to {cloud} before, or reading them "
    "across the internet may starve the job",
    "slow-data": "reading the dataset is slower than training: accelerators wait "
    "{waiting_share:.0%} of the time; compress the data, or take more machines",
    "slow-data-files": "reading the dataset is slower than training: accelerators wait "
    "{waiting_share:.0%} of the time; compress the data, take data.storage: parallel "
    "({saved_hours:,.1f} h sooner, {extra_usd:+,.0f} USD), or take more machines",
    "staging": "host memory holds no copy of a checkpoint: each one stops the job for "
    "{stall_s:,.0f} s; more machines hold smaller parts",
    "slow-text": "tokenizing text is slower than training: accelerators wait "
    "{waiting_share:.0%} of the time: {cores:,.0f} cores of a machine give {given_s:,.0f} of "
    "{wanted_s:,.0f} tokens/s; tokenize and pack the data beforehand, and write data.form: tokens "
    "({saved_hours:,.1f} h sooner, {extra_usd:+,.0f} USD)",
    "slow-images": "decoding images is slower than training: accelerators wait "
    "{waiting_share:.0%} of the time: {cores:,.0f} cores of a machine give {given_s:,.0f} of "
    "{wanted_s:,.0f} images/s; store smaller images, and write data.image_pixels (fed in time it "
    "ends {saved_hours:,.1f} h sooner, {extra_usd:+,.0f} USD)",
    "slow-read": "cores read the dataset more slowly than it is trained on: accelerators wait "
    "{waiting_share:.0%} of the time; compress the data, or take more machines",
    "repeated-work": "{framework} prepares each sample on {copies:,} ranks of its replica, and "
    "that takes {needed_share:,.1f} times the cores that there are: load it on one rank and "
    "broadcast it, as this plan counts",
    "image-encoder": "an image counts as {image_tokens:,} tokens of the language model: what an "
    "encoder of images computes is not in the time of a step",
    "assumed-pixels": "the size of images is not stated: {pixels:,.0f} pixels, as in ImageNet",
    # What to know of another way to run a job.
    "half-spot": "buy.on_demand_base: 50%",
    "never-in-time": "never in time",
    "never-at-high-rate": "never ends at the highest published reclaim rate",
    "reclaim-hours": "{earliest_hours:,.1f} to {latest_hours:,.1f} h at published reclaim rates",
    "reclaim-days": "{earliest_days:,.1f} to {latest_days:,.1f} days at published reclaim rates",
    "beyond-spot": "at most {machines} at once are known to be had on spot: ask for a capacity "
    "block or a reservation",
    "spot-by-name": "more than {machines} go on spot only with buy.spot: only",
    "not-sold": "not sold, or without a known price",
    "old-ratio": "at the ratio to on demand of {ratio_as_of}; its own price is of {as_of}, more "
    "than a year old",
    "upper-spot": "at the upper end of its price of {as_of}, {found_usd:,.2f} USD an hour",
    "unsure": "its price has low confidence",
    "old": "price of {as_of}, more than a year old",
    "quoted": "price of {as_of}, quoted when bought",
}


class _SentenceFormatter(Formatter):
    """Formats as str.format does, and by the names of `FORMATS`."""

    def format_field(self, value: Any, format_spec: str) -> str:
        if format_spec in FORMATS:
            return FORMATS[format_spec](value)
        return str(super().format_field(value, format_spec))


def describe(reason: Cause) -> str:
    """Return the sentence of a reason. Raises KeyError for a code or a value that is not there."""
    return _SentenceFormatter().vformat(
        SENTENCES[reason.code], (), {"key": reason.key, **reason.values}
    )
