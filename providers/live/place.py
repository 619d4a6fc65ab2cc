"""Asks clouds what an account may have, several regions and questions at once."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from functools import partial
from importlib import import_module
from queue import Empty, SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from msgspec.structs import replace

from planner.market.capacity import LIMITED_PURCHASES
from planner.market.live import (
    NO_ZONE,
    BlockAnswer,
    CallerAnswer,
    ChanceAnswer,
    CommitmentAnswer,
    LiveAnswer,
    LiveFacts,
    OfferedBlocks,
    PlaceFacts,
    PriceAnswer,
    QuotaAnswer,
    ReclaimAnswer,
    RegionAnswer,
    ReservationAnswer,
    SpotChance,
    SpotPriceAnswer,
    UsedAnswer,
    ZoneAnswer,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from decimal import Decimal

    from planner.market.live import (
        AnswerState,
        BlockFact,
        CommitmentFact,
        QuotaFact,
        ReclaimFact,
        ReservationFact,
    )
    from providers.live.commitment import CommitmentModule
    from providers.live.kept import KeptAnswers
    from providers.live.market import MarketModule
    from providers.live.question import AccountModule

# An answer of another shape than the one that is documented.
MISSHAPEN: Final = (KeyError, ValueError, TypeError, AttributeError, IndexError)
CALLER: Final = "caller"
CHANCE: Final = "spot_scores"
# A reason is read at once.
REASON_CHARACTERS: Final = 300


class LivePlace(NamedTuple):
    """A region, and the machine types of interest in it."""

    cloud: str
    region: str
    machine_types: tuple[str, ...]


class ZoneChances(LiveAnswer[dict[str, float]], frozen=True, kw_only=True):
    """How likely machines are to be had, by zone."""


class LiveQuestion(NamedTuple):
    """What is asked, of whom, and how the answer is found."""

    place: LivePlace
    request: str
    kind: type[LiveAnswer[Any]]
    find: Callable[[], Any]


def ask_places(
    places: Sequence[LivePlace],
    known: LiveFacts,
    deadline_s: float,
    kept: KeptAnswers | None = None,
) -> LiveFacts:
    """Return what is known, and what clouds answer about more regions.

    Clouds are asked at the same time, and each of its regions and questions too. What is not
    answered after `deadline_s` seconds is unknown. So is all but public prices of a cloud that
    nobody is signed in to. What was answered a short while ago is taken from `kept`.
    """
    end_s = time.monotonic() + deadline_s
    callers = {
        **known.callers,
        **ask_callers(
            [place for place in places if place.cloud not in known.callers],
            end_s,
        ),
    }
    facts = _kept_facts(places, callers, kept)
    new_places = [place for place in places if place not in facts]
    facts |= _asked_facts(new_places, callers, end_s)
    if kept is not None:
        for place in new_places:
            caller = callers[place.cloud]
            if caller.value is not None:
                kept.write(caller.value, place, facts[place])
    return replace(
        known,
        callers=callers,
        places=(*known.places, *(facts[place] for place in places)),
    )


def _kept_facts(
    places: Sequence[LivePlace],
    callers: Mapping[str, LiveAnswer[str]],
    kept: KeptAnswers | None,
) -> dict[LivePlace, PlaceFacts]:
    """Return what is kept of regions, for those who are signed in."""
    facts: dict[LivePlace, PlaceFacts] = {}
    for place in places:
        caller = callers[place.cloud].value
        found = kept.read(caller, place) if kept and caller else None
        if found is not None:
            facts[place] = found
    return facts


def _asked_facts(
    places: Sequence[LivePlace],
    callers: Mapping[str, LiveAnswer[str]],
    end_s: float,
) -> dict[LivePlace, PlaceFacts]:
    """Ask about regions, all questions at once, until a monotonic time."""
    questions = [question for place in places for question in _questions(place)]
    asked = [
        question
        for question in questions
        if may_ask(question, callers[question.place.cloud])
    ]
    found = {
        (question.place, question.request): unasked(
            question, callers[question.place.cloud]
        )
        for question in questions
    } | {
        (question.place, question.request): answer
        for question, answer in zip(asked, ask_all(asked, end_s), strict=True)
    }
    return {place: _place_facts(place, found) for place in places}


def ask_chances(
    wanted: Sequence[tuple[LivePlace, int]], known: LiveFacts, deadline_s: float
) -> LiveFacts:
    """Return what is known, and how likely so many machines on spot are to be had now.

    Each place names one machine type; the answer may have several zones. Clouds that nobody is
    signed in to are not asked.
    """
    end_s = time.monotonic() + deadline_s
    callers = {
        **known.callers,
        **ask_callers(
            [place for place, _ in wanted if place.cloud not in known.callers],
            end_s,
        ),
    }
    asked = [
        (
            machines,
            LiveQuestion(
                place, CHANCE, ZoneChances, partial(_chances, place, machines)
            ),
        )
        for place, machines in wanted
        if callers[place.cloud].state == "value"
    ]
    answers = ask_all([question for _, question in asked], end_s)
    return replace(
        known,
        callers=callers,
        spot_chances=tuple(
            SpotChance(
                cloud=question.place.cloud,
                region=question.place.region,
                machine_type=question.place.machine_types[0],
                machines=machines,
                zone=zone,
                chance=chance,
            )
            for (machines, question), answer in zip(asked, answers, strict=True)
            for zone, chance in _by_zone(answer)
        ),
    )


def _by_zone(answer: ZoneChances) -> Iterator[tuple[str, ChanceAnswer]]:
    """Yield each zone with its chance, in order; one answer for the region where there is none."""
    by_zone: dict[str, float | None] = {**(answer.value or {NO_ZONE: None})}
    for zone, value in sorted(by_zone.items()):
        yield (
            zone,
            ChanceAnswer(
                state=answer.state,
                value=value,
                reason=answer.reason,
                as_of=answer.as_of,
                request=answer.request,
            ),
        )


def _chances(place: LivePlace, machines: int) -> dict[str, float]:
    scores = market_of(place.cloud).spot_scores(
        place.region, place.machine_types, machines
    )
    [machine_type] = place.machine_types
    if not scores.get(machine_type):
        raise LookupError(f"{place.cloud} has no score of {machine_type}")
    return scores[machine_type]


def ask_blocks(
    place: LivePlace,
    machines: int,
    hours: int,
    known: LiveFacts,
    deadline_s: float,
) -> LiveFacts:
    """Return what is known, and the capacity blocks for so many machines of the place's type.

    A cloud that nobody is signed in to is not asked.
    """
    if known.callers[place.cloud].state != "value":
        return known
    [machine_type] = place.machine_types
    question = LiveQuestion(
        place,
        "block_offers",
        BlockAnswer,
        partial(_blocks, place, machines, hours),
    )
    [answer] = ask_all([question], time.monotonic() + deadline_s)
    offered = OfferedBlocks(
        cloud=place.cloud,
        region=place.region,
        machine_type=machine_type,
        machines=machines,
        hours=hours,
        blocks=answer,
    )
    return replace(known, offered_blocks=(*known.offered_blocks, offered))


def _blocks(
    place: LivePlace, machines: int, hours: int
) -> tuple[BlockFact, ...]:
    [machine_type] = place.machine_types
    return tuple(
        market_of(place.cloud).block_offers(
            place.region, machine_type, machines, hours
        )
    )


def ask_commitment_regions(
    regions: Mapping[str, Sequence[str]], known: LiveFacts, deadline_s: float
) -> LiveFacts:
    """Return what is known, and which regions of each cloud have commitments of their own."""
    end_s = time.monotonic() + deadline_s
    places = [
        LivePlace(cloud, names[0], ()) for cloud, names in regions.items()
    ]
    callers = {**known.callers, **ask_callers(places, end_s)}
    questions = [
        LiveQuestion(
            place,
            "commitment_regions",
            RegionAnswer,
            partial(_commitment_regions, place.cloud, regions[place.cloud]),
        )
        for place in places
    ]
    asked = [
        question
        for question in questions
        if may_ask(question, callers[question.place.cloud])
    ]
    answers = ask_all(asked, end_s)
    return replace(
        known,
        callers=callers,
        commitment_regions={
            question.place.cloud: answer
            for question, answer in zip(asked, answers, strict=True)
        },
    )


def _commitment_regions(cloud: str, regions: Sequence[str]) -> tuple[str, ...]:
    return tuple(_commitment_module(cloud).commitment_regions(regions))


def ask_callers(
    places: Iterable[LivePlace], end_s: float
) -> dict[str, CallerAnswer]:
    """Return who is signed in to each cloud of some places, asked until a monotonic time."""
    places_by_cloud = {place.cloud: place for place in places}
    logins = [
        LiveQuestion(place, CALLER, CallerAnswer, partial(_signed_in, place))
        for place in places_by_cloud.values()
    ]
    answers = ask_all(logins, end_s)
    return dict(zip(places_by_cloud, answers, strict=True))


def may_ask(question: LiveQuestion, caller: LiveAnswer[str]) -> bool:
    """Return whether somebody is signed in, or a cloud answers the question to everybody."""
    cloud = question.place.cloud
    return caller.state == "value" or question.request in _public_questions(
        cloud
    )


def unasked(question: LiveQuestion, caller: LiveAnswer[str]) -> LiveAnswer[Any]:
    """Return why nobody knows the answer where nobody is signed in."""
    return question.kind(
        state="unknown",
        reason=caller.reason,
        as_of=caller.as_of,
        request=question.request,
    )


def _signed_in(place: LivePlace) -> str:
    return _account(place.cloud).signed_in(place.region)


def _account(cloud: str) -> AccountModule:
    module: AccountModule = import_module(f"providers.{cloud}.account")
    return module


def market_of(cloud: str) -> MarketModule:
    """Return the module that asks a cloud what it sells."""
    module: MarketModule = import_module(f"providers.{cloud}.market")
    return module


def _public_questions(cloud: str) -> tuple[str, ...]:
    """Return what a cloud tells everybody."""
    try:
        return market_of(cloud).PUBLIC_QUESTIONS
    except ModuleNotFoundError:
        return ()


def _questions(place: LivePlace) -> list[LiveQuestion]:
    """Return all that is asked about a region; most have the name of their field in PlaceFacts."""
    return [
        *(
            LiveQuestion(
                place,
                f"quotas {purchase}",
                QuotaAnswer,
                partial(_quotas, place, purchase),
            )
            for purchase in LIMITED_PURCHASES
        ),
        LiveQuestion(place, "zones", ZoneAnswer, partial(_zones, place)),
        LiveQuestion(
            place, "on_demand_usd", PriceAnswer, partial(_on_demand, place)
        ),
        LiveQuestion(place, "spot_usd", SpotPriceAnswer, partial(_spot, place)),
        LiveQuestion(
            place,
            "reservations",
            ReservationAnswer,
            partial(_reservations, place),
        ),
        LiveQuestion(
            place,
            "commitments",
            CommitmentAnswer,
            partial(find_commitments, place),
        ),
        LiveQuestion(
            place, "reclaims", ReclaimAnswer, partial(_reclaims, place)
        ),
        LiveQuestion(
            place, "commitment_use", UsedAnswer, partial(find_use, place)
        ),
    ]


def _quotas(place: LivePlace, purchase: str) -> tuple[QuotaFact, ...]:
    return tuple(
        _account(place.cloud).quotas(
            place.region, place.machine_types, purchase
        )
    )


def _zones(place: LivePlace) -> dict[str, tuple[str, ...]]:
    found = _account(place.cloud).offered_zones(
        place.region, place.machine_types
    )
    return {name: tuple(sorted(zones)) for name, zones in found.items()}


def _on_demand(place: LivePlace) -> dict[str, Decimal]:
    return market_of(place.cloud).on_demand_prices(
        place.region, place.machine_types
    )


def _spot(place: LivePlace) -> dict[str, dict[str, Decimal]]:
    return market_of(place.cloud).spot_prices(place.region, place.machine_types)


def _reservations(place: LivePlace) -> tuple[ReservationFact, ...]:
    return tuple(market_of(place.cloud).reservations(place.region))


def _reclaims(place: LivePlace) -> dict[str, ReclaimFact]:
    return market_of(place.cloud).own_reclaims(
        place.region, place.machine_types
    )


def find_commitments(place: LivePlace) -> tuple[CommitmentFact, ...]:
    """Return what an account has committed to in a region."""
    return tuple(
        _commitment_module(place.cloud).commitments(
            place.region, place.machine_types
        )
    )


def find_use(place: LivePlace) -> dict[str, Decimal]:
    """Return what is used of the commitments of an account in a region."""
    return _commitment_module(place.cloud).commitment_use(
        place.region, place.machine_types
    )


def _commitment_module(cloud: str) -> CommitmentModule:
    module: CommitmentModule = import_module(f"providers.{cloud}.commitment")
    return module


def _place_facts(
    place: LivePlace, found: Mapping[tuple[LivePlace, str], LiveAnswer[Any]]
) -> PlaceFacts:
    def answer(request: str) -> Any:
        return found[place, request]

    return PlaceFacts(
        cloud=place.cloud,
        region=place.region,
        quotas={
            purchase: answer(f"quotas {purchase}")
            for purchase in LIMITED_PURCHASES
        },
        zones=answer("zones"),
        on_demand_usd=answer("on_demand_usd"),
        spot_usd=answer("spot_usd"),
        reservations=answer("reservations"),
        commitments=answer("commitments"),
        commitment_use=answer("commitment_use"),
        reclaims=answer("reclaims"),
    )


def ask_all(questions: Sequence[LiveQuestion], end_s: float) -> list[Any]:
    """Ask all questions at once; return what is answered until a monotonic time.

    Each answer is of the kind of its question.
    """
    given = dict(arriving_answers(questions, end_s, max(1, len(questions))))
    return [given[number] for number in range(len(questions))]


def arriving_answers(
    questions: Sequence[LiveQuestion], end_s: float, at_once: int
) -> Iterator[tuple[int, LiveAnswer[Any]]]:
    """Yield the number of each question with its answer, as answers arrive until a monotonic time.

    Each cloud is asked `at_once` questions, so that one that is slow delays no other one. What is
    not answered in time comes last, as unknown. The threads are daemons: a cloud that never
    answers keeps no command from ending.
    """
    arrived: SimpleQueue[tuple[int, LiveAnswer[Any]]] = SimpleQueue()

    def work(waiting: SimpleQueue[int]) -> None:
        while time.monotonic() < end_s:
            try:
                number = waiting.get_nowait()
            except Empty:
                return
            arrived.put((number, _answer(questions[number])))

    for waiting in _numbers_by_cloud(questions):
        for _ in range(min(at_once, waiting.qsize())):
            Thread(target=work, args=(waiting,), daemon=True).start()
    open_numbers = set(range(len(questions)))
    while open_numbers:
        try:
            number, answer = arrived.get(
                timeout=max(0.0, end_s - time.monotonic())
            )
        except Empty:
            break
        open_numbers.remove(number)
        yield number, answer
    for number in sorted(open_numbers):
        question = questions[number]
        yield (
            number,
            question.kind(
                state="unknown",
                reason="no answer in time",
                as_of=_now(),
                request=question.request,
            ),
        )


def _numbers_by_cloud(
    questions: Sequence[LiveQuestion],
) -> list[SimpleQueue[int]]:
    """Return the numbers of questions, those of each cloud in a queue of their own."""
    queues: dict[str, SimpleQueue[int]] = {}
    for number, question in enumerate(questions):
        queues.setdefault(question.place.cloud, SimpleQueue()).put(number)
    return list(queues.values())


def _answer(question: LiveQuestion) -> LiveAnswer[Any]:
    """Return what a cloud answers to one question, whatever it is."""
    as_of = _now()
    state: AnswerState = "value"
    value, reason = None, ""
    try:
        value = question.find()
    except MISSHAPEN as error:
        state, reason = "unknown", f"an answer of another shape: {error!r}"
    except PermissionError as error:
        # Without a login nobody knows which rights there are.
        state = "unknown" if question.request == CALLER else "denied"
        reason = str(error)
    except (FileNotFoundError, LookupError) as error:
        state, reason = "none", str(error)
    except ModuleNotFoundError as error:
        state = "unknown"
        reason = f"{error}: pip install 'tonnage[{question.place.cloud}]'"
    except OSError as error:
        state, reason = "unknown", str(error)
    return question.kind(
        state=state,
        value=value,
        reason=" ".join(reason.split())[:REASON_CHARACTERS],
        as_of=as_of,
        request=question.request,
    )


def _now() -> str:
    return f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
