"""plan --share --live: several specs that fit into the quotas of one account together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from planner.cli.compose import spec_folder_reader
from planner.errors import InfeasibleError, Problem
from planner.market.live import LiveFacts, raise_text
from planner.plan.change import LiveInputs
from planner.plan.portfolio import quota_entry
from planner.render.portfolio import quota_text
from planner.workload.quota_share import (
    FleetChoice,
    QuotaQuestion,
    SharedChoice,
    WorkloadHours,
    choose_together,
    joint_needs,
)
from planner.workload.quota_use import fleet_choice, workload_hours
from planner.workload.sharing import SharingService, member_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from planner.cli.compose import SpecFile
    from planner.cli.planning import FoundPlan
    from planner.plan.types import Plan
    from planner.workload.quota_share import QuotaNeed
    from planner.workload.sharing import MinutesAhead


class SharedPlan(Struct, frozen=True, kw_only=True):
    """What leaves the process of a plan: its document, and what it brings into a portfolio.

    member  None for what shares no commitments
    choice  None for what has no fleet, or where nobody asked the account
    """

    plan: Plan
    member: SharingService | None
    hours: WorkloadHours
    choice: FleetChoice | None


def shared_plan(
    spec_file: SpecFile, folder: str, search: Callable[[], FoundPlan]
) -> SharedPlan:
    """Make a plan, and return what it brings into a portfolio."""
    # A solution does not leave its process: what it brings into the portfolio does.
    found = search()
    solution, live = found.solution, found.plan.inputs.live
    hours = workload_hours(spec_file.spec, solution)
    return SharedPlan(
        plan=found.plan,
        member=member_of(
            spec_file.spec,
            solution,
            spec_folder_reader(spec_file.path),
            folder,
        ),
        hours=hours,
        choice=fleet_choice(solution, hours, live.facts, live.standing_counts)
        if live is not None
        else None,
    )


class PlanUse(Struct, frozen=True):
    """What the fleet of a plan adds to the quotas of its account, and when."""

    stack: str
    hours: WorkloadHours
    choice: FleetChoice


def plan_use(found: FoundPlan) -> PlanUse | None:
    """Return what a plan adds to quotas; None without a fleet, or an account that was asked."""
    live = found.plan.inputs.live
    if live is None:
        return None
    hours = workload_hours(found.spec, found.solution)
    choice = fleet_choice(
        found.solution, hours, live.facts, live.standing_counts
    )
    if choice is None:
        return None
    return PlanUse(found.plan.stack.name, hours, choice)


def joint_quota_problems(
    uses: Iterable[PlanUse | None], command: str, minutes_ahead: MinutesAhead
) -> list[Problem]:
    """Return the quotas that plans fit into each alone, and not together.

    `command` plans them together.
    """
    # A stack that is planned twice is there once.
    stacks = {use.stack: use for use in uses if use is not None}
    needs = joint_needs(
        [use.hours for use in stacks.values()],
        [use.choice for use in stacks.values()],
        minutes_ahead,
    )
    return [
        Problem(
            code="shared-quota",
            message="each of these plans fits into the quota of the account, and all of them do "
            "not",
            cause=quota_text(quota),
            next_step=quota.next_step,
        )
        for quota in (
            quota_entry(need, f"plan them together: {command}")
            for need in needs
        )
    ]


class QuotaSharing:
    """Plans of several specs, made again with what each may add to quotas."""

    def __init__(
        self,
        plans: Sequence[SharedPlan],
        plan_again: Callable[[int, LiveInputs], SharedPlan],
    ) -> None:
        self._plan_again = plan_again
        # What has no fleet by itself has none with others. In the order of their names: that of
        # the files decides nothing between choices that cost the same.
        self._numbers = sorted(
            (
                number
                for number, shared in enumerate(plans)
                if shared.choice is not None
            ),
            key=lambda number: plans[number].plan.workload.name,
        )
        self._plans = [*plans]
        self._facts = _merged(plans)
        self._answers: dict[QuotaQuestion, SharedPlan] = {}

    def together(
        self, minutes_ahead: MinutesAhead
    ) -> tuple[list[SharedPlan], SharedChoice | None]:
        """Return the plans that fit into the quotas together, and how they were chosen.

        Raises InfeasibleError where none do.
        """
        first = [self._plans[number] for number in self._numbers]
        choices = [
            shared.choice for shared in first if shared.choice is not None
        ]
        if not choices:
            return self._plans, None
        chosen = choose_together(
            [shared.hours for shared in first],
            choices,
            self._asked,
            minutes_ahead,
        )
        if chosen.caps is None:
            raise InfeasibleError(*_problems(chosen, self._facts))
        for number, caps in enumerate(chosen.caps):
            if caps:
                self._plans[self._numbers[number]] = self._answers[
                    QuotaQuestion(number, caps)
                ]
        return self._plans, chosen

    @property
    def facts(self) -> LiveFacts:
        """What clouds answered, to all of the plans."""
        return self._facts

    def _asked(
        self, questions: Sequence[QuotaQuestion]
    ) -> list[FleetChoice | None]:
        """Plan what is asked for; what clouds answer meanwhile is known from then on.

        One after the other: what is simulated for one is remembered for the next, in one process.
        """
        answers = [
            self._plan_again(
                self._numbers[question.number],
                LiveInputs(facts=self._facts, caps=question.caps),
            )
            for question in questions
        ]
        self._answers.update(zip(questions, answers, strict=True))
        self._facts = _merged(answers, self._facts)
        return [answer.choice for answer in answers]


def joint_inputs(
    plans: Sequence[SharedPlan], facts: LiveFacts
) -> LiveInputs | None:
    """Return what the account may have for all plans together; None where nobody asked it.

    The machines of all of their stacks are there for them.
    """
    known = [
        shared.plan.inputs.live
        for shared in plans
        if shared.plan.inputs.live is not None
    ]
    if not known:
        return None
    return LiveInputs(
        facts=facts,
        standing=tuple(
            machines for live in known for machines in live.standing
        ),
    )


def _merged(
    plans: Iterable[SharedPlan], known: LiveFacts | None = None
) -> LiveFacts:
    """Return all that clouds answered; of a region the first answer."""
    facts = known or LiveFacts()
    callers = {**facts.callers}
    chances = dict.fromkeys(facts.spot_chances)
    regions = {**facts.commitment_regions}
    places = {(place.cloud, place.region): place for place in facts.places}
    for shared in plans:
        live = shared.plan.inputs.live
        if live is None:
            continue
        callers = {**live.facts.callers, **callers}
        regions = {**live.facts.commitment_regions, **regions}
        chances.update(dict.fromkeys(live.facts.spot_chances))
        for place in live.facts.places:
            places.setdefault((place.cloud, place.region), place)
    return LiveFacts(
        callers=callers,
        places=tuple(places.values()),
        commitment_regions=regions,
        spot_chances=tuple(chances),
    )


def remedy(need: QuotaNeed, facts: LiveFacts) -> str:
    """Return how a quota is raised so far that the cheapest fleets of all fit into it."""
    key = need.key
    place = facts.place(key.cloud, key.region)
    answer = place.quotas.get(key.purchase) if place is not None else None
    quota = next(
        quota
        for quota in (answer.value if answer is not None else None) or ()
        if quota.id == key.quota
    )
    wanted = (quota.used or 0.0) + need.units
    return raise_text(key.cloud, key.region, quota, wanted)


def _problems(chosen: SharedChoice, facts: LiveFacts) -> list[Problem]:
    verb = "fit" if chosen.bound_usd is None else "were found that fit"
    return [
        Problem(
            code="quota",
            message=f"no fleets of these workloads {verb} into the quotas of the account "
            "together",
            cause=quota_text(quota),
            next_step=quota.next_step,
        )
        for quota in (
            quota_entry(need, remedy(need, facts)) for need in chosen.needs
        )
    ]
