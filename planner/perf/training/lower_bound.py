"""Lower bound of the step time of any layout of a training job.

Over A accelerators and M micro-batches of a layout:

step time >= (t * (M + b) + once) * scale
t         >= ((W / (A * M) + R)^q + (H / pp)^q)^(1 / q)

W      work that no layout avoids, accelerator-seconds of a step (`layout_free_s` and more)
R      reading of weights in a micro-batch, s
H      host time of all layers for a micro-batch, s
q      exponent `host_power`
b      bubble * (pp - 1) / vpp, in micro-batches
once   reduction of gradients, optimizer and constant of a step, s
scale  1 + doubling * log2(A / 8), at least 1

Proof: FLOP, element-wise bytes and activations of all ranks sum to at least those of one
accelerator. Every micro-batch reads the weights of its rank again. With FSDP the gather and t
overlap as in the step time. Transfers between stages and forced recomputation are left out.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from msgspec import Struct, field
from msgspec.structs import replace

from planner.perf.common.ring import ring_network_share
from planner.perf.training.coefficients import training_coefficients
from planner.perf.training.enumeration import MICRO_BATCHES, least_bubbles
from planner.perf.training.experts import remote_machines, sent_times
from planner.perf.training.sharding import sharding_traffic
from planner.perf.training.single_accelerator import single_accelerator
from planner.perf.training.step import overlapped_s, sharding_time

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from planner.perf.training.coefficients import TrainingCoefficients
    from planner.perf.training.enumeration import CutFamily
    from planner.perf.training.job import Job, ParallelLayout
    from planner.perf.training.sharding import ShardingTraffic


class CommBound(Struct, frozen=True):
    """Lower bounds of the communication of every layout of one partition.

    gather_s  time to gather in a micro-batch >= `gather_s`, s
    once_s    time once in a step >= `once_s`, s
    sent_s    exposed network time of a step, summed over accelerators >= `sent_s`, s
    ring_s    the same of context parallelism, which recomputation does not repeat, s
    """

    gather_s: float
    once_s: float
    sent_s: float
    ring_s: float


# Communication time >= 0: holds for every partition and network.
NO_COMM: Final = CommBound(0.0, 0.0, 0.0, 0.0)


class _CutTerms(Struct, frozen=True):
    """What the bound of a partition has beside its communication.

    work_s            work of a step, summed over all accelerators, s
    passes            how often the exchange of a step is sent: 1 without recomputation
    rings_on_network  whether context parallelism is part of the communication
    weight_read_s     reading of weights in a micro-batch, s
    host_term         host time of a micro-batch in a stage, to the power `host_power`
    """

    work_s: float
    passes: float
    rings_on_network: bool
    weight_read_s: float
    host_term: float


class _Round(Struct, frozen=True):
    """A step in micro-batches of one size.

    micro_batch     sequences of a micro-batch
    micro_batches   micro-batches of the step
    filled_batches  these, and the bubble as micro-batches
    """

    micro_batch: float
    micro_batches: float
    filled_batches: float


class _CutRounds(Struct, frozen=True):
    """How the ranks of a partition go through a step.

    rank_count  accelerators
    scale       factor that the step time has by their number
    rounds      those of each micro-batch with its most chunks
    """

    rank_count: int
    scale: float
    rounds: tuple[_Round, ...]


class StepLowerBound(Struct, frozen=True, kw_only=True):
    """Terms of the lower bound of the step time of a job.

    Seconds of a step, summed over all accelerators and micro-batches:
    layout_free_s      products, attention, element-wise traffic, loss, reference, permutation
    extra_forward_s    one more forward pass without communication
    tensor_rank_s      tensor parallelism over the link, for each rank beyond the first
    exchange_s         all-to-all over the link when each token goes to one other rank
    gather_rank_s      tokens of experts that tp shards, for each rank beyond the first
    context_shard_s    context parallelism, for each rank beyond the first

    Bytes of a step that the network sends exposed, summed in the same manner:
    tensor_rank_bytes  tensor parallelism, for each rank beyond the first
    exchange_bytes     all-to-all when each token goes to one other machine
    context_bytes      context parallelism, for each rank beyond the first

    Seconds of a micro-batch:
    weight_read_s      reading of all dense weights in all passes
    expert_read_s      reading of all experts in all passes
    host_s             host time of all layers
    expert_host_s      host time of all experts

    Others:
    pass_count         passes over the products: 3, or 2 with frozen weights
    reference_passes   forward passes of a reference: 0 or 1
    repeated_share     share of a recomputed forward pass that is repeated, at least
    link_ranks         ranks that share a link
    coefficients       coefficients of the job without a pipeline
    pipelined_share    `exchange_network` with a pipeline
    link_bytes_s       link bandwidth that collectives reach, bytes/s
    network_bytes_s    network bandwidth that collectives reach, bytes/s
    memory_bytes_s     memory bandwidth, bytes/s
    known_terms        terms of partitions by tp, pp, cp, ep and recomputed share: they depend on
                       neither network nor the number of replicas
    known_rounds       rounds of partitions by tp, pp, cp and dp, which all networks share
    known_micro_s      least times of a micro-batch of each size by tp, pp, cp and the ranks that
                       share the experts, which all networks and numbers of replicas share, s
    """

    layout_free_s: float
    extra_forward_s: float
    pass_count: float
    tensor_rank_s: float
    tensor_rank_bytes: float
    link_ranks: int
    exchange_s: float
    gather_rank_s: float
    context_shard_s: float
    reference_passes: float
    repeated_share: float
    weight_read_s: float
    expert_read_s: float
    host_s: float
    expert_host_s: float
    exchange_bytes: float
    context_bytes: float
    coefficients: TrainingCoefficients
    pipelined_share: float
    link_bytes_s: float
    network_bytes_s: float
    memory_bytes_s: float
    known_terms: dict[tuple[float, ...], _CutTerms] = field(
        default_factory=dict
    )
    known_rounds: dict[tuple[int, ...], _CutRounds] = field(
        default_factory=dict
    )
    known_micro_s: dict[
        tuple[int | tuple[int, ...], ...], dict[float, float]
    ] = field(default_factory=dict)

    def sent_bound(self, job: Job, layout: ParallelLayout) -> CommBound:
        """Return the time in which every layout of a partition sends activations at least.

        network time of all accelerators >= token bytes / network_bytes_s + tensor
                                            + context bytes / network_bytes_s

        token bytes   `exchange_bytes` * exposed share * expected other machines of a token
        tensor        max(b / l / network_bytes_s, b / link_bytes_s) when tp exceeds the l ranks
                      of a link, else 0
        b             `tensor_rank_bytes` * (tp - 1)
        context bytes `context_bytes` * (cp - 1) when tp * cp exceeds the link, else 0

        None of the terms depends on micro-batch, chunks, recomputation or sharding. States that
        are sharded add to them: see `comm_bound`.
        """
        sent_bytes = 0.0
        # Within a link no token is sent to another machine.
        if self.exchange_bytes and layout.ep > self.link_ranks:
            # Other stages hide a part of the all-to-all over the network.
            exchange_share = (
                self.pipelined_share
                if layout.pp > 1
                else self.coefficients.exchange_network
            )
            # A token is sent once to each other machine with its experts.
            sent_bytes = (
                self.exchange_bytes
                * exchange_share
                * remote_machines(job.with_layout(layout))
            )
        ring_bytes = (
            self.context_bytes * (layout.cp - 1)
            if self._context_on_network(layout)
            else 0.0
        )
        return CommBound(
            0.0,
            0.0,
            sent_bytes / self.network_bytes_s + self._tensor_bound(layout),
            ring_bytes / self.network_bytes_s,
        )

    def _tensor_bound(self, layout: ParallelLayout) -> float:
        """Return the collectives of tensor parallelism beyond a link, in seconds."""
        if layout.tp <= self.link_ranks:
            return 0.0
        # All tp ranks together send (tp - 1) times the activations.
        tensor_bytes = self.tensor_rank_bytes * (layout.tp - 1)
        nic_bytes = tensor_bytes * ring_network_share(self.link_ranks)
        return max(
            nic_bytes / self.network_bytes_s, tensor_bytes / self.link_bytes_s
        )

    def sent_bounds(
        self, job: Job, family: CutFamily
    ) -> Iterator[tuple[ParallelLayout, float, CommBound]]:
        """Yield the partitions of a family with `bound_cut` by `sent_bound`, and the latter.

        Neither depends on the sharding.
        """
        known: dict[int, tuple[float, CommBound]] = {}
        for cut_layout in family.cut_layouts:
            ep = cut_layout.ep
            if ep not in known:
                sent = self.sent_bound(job, cut_layout)
                known[ep] = self.bound_cut(job, cut_layout, sent), sent
            yield cut_layout, *known[ep]

    def comm_bound(
        self, job: Job, unit_traffic: ShardingTraffic | None = None
    ) -> CommBound:
        """Return the communication that every layout of a partition needs at least.

        time to gather in a micro-batch   >= `gather_s`
        time once in a step               >= `once_s`
        network time of all accelerators  >= that of `sent_bound`

        None of the terms depends on micro-batch, chunks or recomputation. `unit_traffic` is
        `sharding_traffic` of the partition at a latency of 1 s, where it is known already.
        """
        traffic = (
            sharding_traffic(job)
            if unit_traffic is None
            else unit_traffic.at_latency(job.network_latency_s)
        )
        sharding = sharding_time(
            traffic,
            self.coefficients,
            self.link_bytes_s,
            self.network_bytes_s,
            self.memory_bytes_s,
        )
        # With a pipeline FSDP gathers once a step, outside micro-batches.
        gathers_once = traffic.gathers_once
        sent = self.sent_bound(job, job.layout)
        return CommBound(
            (1 - gathers_once) * sharding.gather_s,
            sharding.once_s + gathers_once * sharding.gather_s,
            sent.sent_s,
            sent.ring_s,
        )

    def bound_ranks(self, rank_count: int) -> float:
        """Return a lower bound of the step time over some accelerators, in seconds.

        step time(layout) >= layout_free_s / accelerators * scale
        """
        return self.layout_free_s / rank_count * self._scale(rank_count)

    def bound_layout(
        self, job: Job, layout: ParallelLayout, comm_bound: CommBound = NO_COMM
    ) -> float:
        """Return a lower bound of the step time of one layout, in seconds.

        step time(layout) >= bound, with the bubble and the recomputation of the layout
        """
        return self._minimum_s(
            job,
            layout,
            comm_bound,
            (self._round(job, layout, layout.micro, layout.vpp),),
        )

    def bound_cut(
        self,
        job: Job,
        cut_layout: ParallelLayout,
        comm_bound: CommBound = NO_COMM,
    ) -> float:
        """Return a lower bound of the step time in a partition, in seconds.

        step time(layout) >= bound, for every layout of the partition

        This covers every micro-batch, every number of chunks, and every level of recomputation
        at or above that of `cut_layout`. Each micro-batch counts with its most chunks, where
        the bubble is least.
        """
        return self._minimum_s(
            job,
            cut_layout,
            comm_bound,
            self._cut_rounds(job, cut_layout).rounds,
        )

    def bound_family(self, job: Job, family: CutFamily) -> float:
        """Return a lower bound of the step time in several partitions, in seconds.

        step time(layout) >= min over them of `bound_cut` without communication = bound
        """
        cut_layout = family.cut_layouts[0]
        key = (
            cut_layout.tp,
            cut_layout.pp,
            cut_layout.cp,
            family.expert_ranks,
        )
        micro_s = self.known_micro_s.get(key)
        if micro_s is None:
            micro_s = self._micro_s(job, family)
            self.known_micro_s[key] = micro_s
        cut_rounds = self._cut_rounds(job, cut_layout)
        steps_s = [
            micro_s[step_round.micro_batch] * step_round.filled_batches
            for step_round in cut_rounds.rounds
        ]
        return min(steps_s, default=math.inf) * cut_rounds.scale

    def _micro_s(self, job: Job, family: CutFamily) -> dict[float, float]:
        """Return the least time of a micro-batch of each size in several partitions, in seconds.

        t >= ((W / (A * M) + R)^q + (H / pp)^q)^(1 / q)

        As in `_minimum_s`, where A * M = tp * pp * cp * sequences of a step / those of a
        micro-batch: it is the same for any number of replicas.
        """
        host_power = self.coefficients.host_power
        first = family.cut_layouts[0]
        model_sequences = first.tp * first.pp * first.cp * job.global_batch
        terms_by_ranks = {
            layout.ep: self._cut_terms(job, layout)
            for layout in family.cut_layouts
        }
        sequence_terms = [
            (
                terms.work_s / model_sequences,
                terms.weight_read_s,
                terms.host_term,
            )
            for terms in terms_by_ranks.values()
        ]
        return {
            micro_batch: min(
                [
                    (sequence_s * micro_batch + weight_read_s) ** host_power
                    + host_term
                    for sequence_s, weight_read_s, host_term in sequence_terms
                ]
            )
            ** (1 / host_power)
            for micro_batch in MICRO_BATCHES
        }

    def with_network(self, network_bytes_s: float) -> StepLowerBound:
        """Return the bound of the same job over another network of nominal bytes/s.

        step time over that network >= the bounds of the result

        reached bandwidth = `network_bytes_s` * the coefficient `network`
        """
        return replace(
            self, network_bytes_s=network_bytes_s * self.coefficients.network
        )

    def _minimum_s(
        self,
        job: Job,
        layout: ParallelLayout,
        comm_bound: CommBound,
        rounds: Iterable[_Round],
    ) -> float:
        """Return the least bound over the rounds of some micro-batches, in seconds.

        step time >= (min over rounds of t * (M + bubble * (pp - 1) / vpp) + once) * scale
        t         >= ((W / (A * M) + R)^q + (H / pp)^q)^(1 / q), overlapped with the gather

        W     work of a step summed over all accelerators, from `_cut_terms`, and what it sends
        R     reading of weights in a micro-batch, from `_weight_read_bound`
        H     host_s + expert_host_s / ep
        A, M  accelerators, and micro-batches of a step
        """
        cut_rounds = self._cut_rounds(job, layout)
        host_power = self.coefficients.host_power
        host_root = 1 / host_power
        terms = self._cut_terms(job, layout)
        work_s = terms.work_s + terms.passes * comm_bound.sent_s
        if terms.rings_on_network:
            work_s += comm_bound.ring_s
        weight_read_s, host_term = terms.weight_read_s, terms.host_term
        rank_work_s = work_s / cut_rounds.rank_count
        gather_s = comm_bound.gather_s
        minimum_s = math.inf
        # A search asks this of a hundred thousand rounds, so one call less in each counts.
        for step_round in rounds:
            busy_s = (
                # The head is inside the norm: it adds less there than outside.
                (rank_work_s / step_round.micro_batches + weight_read_s)
                ** host_power
                + host_term
            ) ** host_root
            # The overlapped time grows with both of its arguments.
            if gather_s:
                busy_s = overlapped_s(busy_s, gather_s, self.coefficients)
            minimum_s = min(minimum_s, busy_s * step_round.filled_batches)
        return (minimum_s + comm_bound.once_s) * cut_rounds.scale

    def _cut_rounds(self, job: Job, layout: ParallelLayout) -> _CutRounds:
        """Return the rounds of a partition, each micro-batch with its most chunks."""
        key = (layout.tp, layout.pp, layout.cp, layout.dp)
        cut_rounds = self.known_rounds.get(key)
        if cut_rounds is None:
            rank_count = layout.accelerators
            rounds = [
                self._round(job, layout, micro_batch, chunk_count)
                for micro_batch, chunk_count in least_bubbles(job, layout)
            ]
            cut_rounds = _CutRounds(
                rank_count, self._scale(rank_count), tuple(rounds)
            )
            self.known_rounds[key] = cut_rounds
        return cut_rounds

    def _round(
        self,
        job: Job,
        layout: ParallelLayout,
        micro_batch: float,
        chunk_count: int,
    ) -> _Round:
        micro_batches = max(1.0, job.global_batch / layout.dp / micro_batch)
        bubble = self.coefficients.bubble * (layout.pp - 1) / chunk_count
        return _Round(micro_batch, micro_batches, micro_batches + bubble)

    def _scale(self, rank_count: int) -> float:
        """Return the factor that the step time has too: it depends on ranks only."""
        doublings = max(0.0, math.log2(rank_count / 8))
        return 1 + self.coefficients.doubling * doublings

    def _cut_terms(self, job: Job, layout: ParallelLayout) -> _CutTerms:
        """Return what the bound of a partition has beside its communication, each once.

        W = layout_free_s + r * extra_forward_s + (1 + (r + ref) / 2) * exchange
            + gathered + ring

        r         recomputed share of a forward pass
        ref       forward passes of a reference
        exchange  exposed exchange over the link, from `_exchange_bound`
        gathered  gather_rank_s * (tp - 1) when ep is 1, else 0
        ring      context_shard_s * (cp - 1) within the link
        """
        share = layout.recomputed_share
        key = (layout.tp, layout.pp, layout.cp, layout.ep, share)
        terms = self.known_terms.get(key)
        if terms is not None:
            return terms
        # Recomputation and a reference each repeat the communication.
        extra_forwards = self.repeated_share * share + self.reference_passes
        # The exchange is forward and backward: one pass more is a half.
        passes = 1 + extra_forwards / 2
        rings_on_network = self._context_on_network(layout)
        work_s = (
            self.layout_free_s
            + share * self.extra_forward_s
            + passes * self._exchange_bound(job, layout)
        )
        if layout.ep == 1:
            # Experts that tp shards see every token on each of the tp ranks.
            work_s += self.gather_rank_s * (layout.tp - 1)
        if not rings_on_network:
            work_s += self.context_shard_s * (layout.cp - 1)
        host_s = self.host_s + self.expert_host_s / layout.ep
        terms = _CutTerms(
            work_s=work_s,
            passes=passes,
            rings_on_network=rings_on_network,
            weight_read_s=self._weight_read_bound(layout, extra_forwards),
            host_term=(host_s / layout.pp) ** self.coefficients.host_power,
        )
        self.known_terms[key] = terms
        return terms

    def _context_on_network(self, layout: ParallelLayout) -> bool:
        return layout.cp > 1 and layout.tp * layout.cp > self.link_ranks

    def _exchange_bound(self, job: Job, layout: ParallelLayout) -> float:
        """Return the exchange of a step over the link, summed over all accelerators, in seconds.

        exchange = exchange_s * times that a token is sent to other ranks
                   + tensor_rank_s * (tp - 1) within the link
        """
        exchange_s = 0.0
        if self.exchange_s:
            exchange_s = self.exchange_s * sent_times(job, layout.ep)
        # Beyond the link the communication has the bytes of tensor parallelism.
        if layout.tp <= self.link_ranks:
            exchange_s += self.tensor_rank_s * (layout.tp - 1)
        return exchange_s

    def _weight_read_bound(
        self, layout: ParallelLayout, extra_forwards: float
    ) -> float:
        """Return the reading of weights in a micro-batch, in seconds.

        R = (weight_read_s / tp + expert_read_s / e) / pp * (1 + (r + ref) / pass_count)

        r + ref  recomputed share of a forward pass, and passes of a reference
        e        ep, or tp when ep is 1
        """
        weight_read_s = (
            self.weight_read_s / layout.tp
            + self.expert_read_s / (layout.tp if layout.ep == 1 else layout.ep)
        ) / layout.pp
        # One pass more reads the weights once more.
        weight_read_s *= 1 + extra_forwards / self.pass_count
        return weight_read_s


@lru_cache(maxsize=512)
def step_lower_bound(job: Job) -> StepLowerBound:
    """Return the lower bound of the step time of a job, whatever its layout.

    step time(layout) >= bound_layout(layout) >= bound_cut(partition of the layout)

    Proof: the work of all ranks and micro-batches sums to at least that of one accelerator. A
    split leaves the sum of products, attention, element-wise traffic and loss equal. Work that
    is repeated on ranks adds to it. Weights are counted apart, because every micro-batch reads
    them again.
    """
    single = single_accelerator(job)
    return StepLowerBound(
        layout_free_s=single.layout_free_s,
        extra_forward_s=single.extra_forward_s,
        pass_count=single.work.pass_count,
        tensor_rank_s=single.tensor_bytes / single.link_bytes_s,
        tensor_rank_bytes=single.tensor_bytes,
        link_ranks=job.chip.link_domain,
        # An all-to-all has its own share of the nominal bandwidth.
        exchange_s=single.exchange_bytes
        / max(1, job.llm.experts_per_token)
        / single.work.link_bytes_s,
        gather_rank_s=single.gather_rank_s,
        context_shard_s=single.context_shard_s,
        reference_passes=float(job.reference != "none"),
        repeated_share=single.repeated_share,
        weight_read_s=single.weight_read_s,
        expert_read_s=single.expert_read_s,
        host_s=single.host_s,
        expert_host_s=single.expert_host_s,
        exchange_bytes=single.exchange_bytes
        # Cancels `network` in `network_bytes_s`: an all-to-all has its own.
        * single.coefficients.network
        # Permuted bytes have a copy for each expert; the network has one.
        / max(1, job.llm.experts_per_token),
        context_bytes=single.context_shard_s * single.link_bytes_s,
        coefficients=single.coefficients,
        pipelined_share=training_coefficients(
            single.job, "pipelined"
        ).exchange_network,
        link_bytes_s=single.link_bytes_s,
        network_bytes_s=single.work.network_bytes_s
        * single.coefficients.network,
        memory_bytes_s=single.work.memory_bytes_s,
    )
