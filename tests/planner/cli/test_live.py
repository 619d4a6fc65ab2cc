"""plan --live asks no more than it has to, and finds what it would find with all answers."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from random import Random

import pytest
from msgspec.structs import replace

from planner.cli.live import facts_text, read_facts
from planner.errors import UsageError
from planner.market.live import (
    BlockAnswer,
    BlockFact,
    CallerAnswer,
    ChanceAnswer,
    CommitmentAnswer,
    CommitmentFact,
    LiveFacts,
    OfferedBlocks,
    PlaceFacts,
    PriceAnswer,
    QuotaAnswer,
    QuotaFact,
    RegionAnswer,
    ReservationAnswer,
    ReservationFact,
    SpotChance,
    SpotPriceAnswer,
    UsedAnswer,
    ZoneAnswer,
)
from planner.market.live_catalog import with_live
from planner.market.offer import Catalog
from planner.market.spot_age import with_found_spot
from providers.live import place as live_place
from providers.live.place import LivePlace
from tests.conftest import chat, find, present
from tests.planner.cli.conftest import Command

NOW = "2026-11-27T06:00:00Z"
TEXT = chat(extra="where: {regions: [us-*, europe-*, eastus*]}")
BACKLOG = """
apiVersion: tonnage/v1
kind: Batch
name: backlog
model: {name: qwen3-8b}
traffic: {total_requests: 2M, input_tokens: 400, output_tokens: 12}
deadline: 3d
"""
Answer = Callable[[LivePlace], PlaceFacts]


def drawn(seed: int, share: float) -> Answer:
    """A cloud that lets an account have machines of a share of its types, the same each time."""

    def answer(place: LivePlace) -> PlaceFacts:
        random = Random(f"{seed} {place.cloud} {place.region}")
        return facts_of(
            place,
            {name: random.random() < share for name in place.machine_types},
        )

    return answer


def facts_of(place: LivePlace, allowed: dict[str, bool]) -> PlaceFacts:
    """A region whose quotas allow a thousand machines of some types, and none of others."""
    quotas = tuple(
        QuotaFact(
            machine_types=(name,),
            purchase="on_demand",
            unit="vcpus",
            id=name,
            name=f"quota of {name} in {place.region}",
            limit=1e6 if is_allowed else 0,
            used=0,
        )
        for name, is_allowed in allowed.items()
    )
    return PlaceFacts(
        cloud=place.cloud,
        region=place.region,
        quotas={
            "on_demand": QuotaAnswer(
                state="value", as_of=NOW, request="quota", value=quotas
            )
        },
        zones=ZoneAnswer(
            state="unknown", reason="busy", as_of=NOW, request="zones"
        ),
        on_demand_usd=PriceAnswer(
            state="value", as_of=NOW, request="prices", value={}
        ),
        spot_usd=SpotPriceAnswer(
            state="value", as_of=NOW, request="spot", value={}
        ),
        reservations=ReservationAnswer(
            state="value",
            as_of=NOW,
            request="reservations",
            value=tuple(
                ReservationFact(
                    id="cr-1", machine_type=name, zone="z", machines=4, free=3
                )
                for name in allowed
            ),
        ),
    )


def score(
    wanted: Sequence[tuple[LivePlace, int]],
    known: LiveFacts,
    _deadline_s: float,
) -> LiveFacts:
    """Score all machines on spot alike."""
    chance = ChanceAnswer(state="value", value=0.7, as_of=NOW, request="score")
    return replace(
        known,
        spot_chances=tuple(
            SpotChance(
                cloud=place.cloud,
                region=place.region,
                machine_type=place.machine_types[0],
                machines=machines,
                chance=chance,
            )
            for place, machines in wanted
        ),
    )


@pytest.fixture
def clouds_that(
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[[Answer], list[LivePlace]]:
    """Let clouds answer in some way; returns the regions that are asked."""

    def set_up(answer: Answer) -> list[LivePlace]:
        asked: list[LivePlace] = []

        def ask(
            places: Sequence[LivePlace],
            known: LiveFacts,
            _deadline_s: float,
            _kept: object,
        ) -> LiveFacts:
            asked.extend(places)
            caller = CallerAnswer(
                state="value", value="ada", as_of=NOW, request="caller"
            )
            return replace(
                known,
                callers={**known.callers, **{p.cloud: caller for p in places}},
                places=(*known.places, *map(answer, places)),
            )

        monkeypatch.setattr(live_place, "ask_places", ask)
        monkeypatch.setattr(live_place, "ask_chances", score)
        monkeypatch.setattr(
            live_place, "ask_commitment_regions", lambda _, known, __: known
        )
        return asked

    return set_up


def planned(tonnage: Command, *flags: str) -> dict:
    code, out, err = tonnage("plan", "s.yaml", "-f", "json", *flags)
    assert code in (0, 10), err
    document: dict = json.loads(out)
    return document


@pytest.mark.parametrize("seed", range(4))
def test_it_costs_as_much_as_with_all_regions_asked(
    tonnage: Command, here: Path, clouds_that, catalog, seed: int
) -> None:
    """And far from all of them are asked."""
    (here / "s.yaml").write_text(TEXT)
    answer = drawn(seed, 0.3)
    asked = clouds_that(answer)
    plan = planned(tonnage, "--live")
    regions: dict[tuple[str, str], set[str]] = {}
    for offer in catalog.offers:
        names = regions.setdefault((offer.provider, offer.region), set())
        names.add(offer.instance.instance_type)
    every = LiveFacts(
        places=tuple(
            answer(LivePlace(cloud, region, tuple(sorted(names))))
            for (cloud, region), names in regions.items()
        )
    )
    best = present(find(with_live(catalog, every, {}), TEXT).bill).total
    assert Decimal(plan["cost"]["total"]) == best
    assert 0 < len(asked) < len(regions) / 4
    assert len(asked) == len({place[:2] for place in asked})


def test_spot_that_is_as_cheap_as_it_was_found_is_asked_about(
    tonnage: Command, here: Path, clouds_that, catalog: Catalog
) -> None:
    """By an old price on its own the batch would go elsewhere, or on demand."""
    text = BACKLOG + "where: {clouds: [aws]}\n"
    (here / "s.yaml").write_text(text)
    found = {
        offer.key[:3]: offer.usd_hour
        for offer in catalog.offers
        if offer.purchase == "spot"
    }

    def answer(place: LivePlace) -> PlaceFacts:
        names = dict.fromkeys(place.machine_types, True)
        return replace(
            facts_of(place, names),
            spot_usd=SpotPriceAnswer(
                state="value",
                as_of=NOW,
                request="spot",
                value={
                    name: {"": found[place.cloud, name, place.region]}
                    for name in names
                    if (place.cloud, name, place.region) in found
                },
            ),
        )

    asked = clouds_that(answer)
    plan = planned(tonnage, "--live")
    fresh = find(with_found_spot(catalog), text, keep=0)
    assert Decimal(plan["cost"]["total"]) == present(fresh.bill).total
    assert (
        Decimal(planned(tonnage)["cost"]["total"]) > present(fresh.bill).total
    )
    assert len(asked) == len({place[:2] for place in asked})


def test_a_quota_that_is_short_is_told_with_what_raises_it(
    tonnage: Command, here: Path, clouds_that
) -> None:
    (here / "s.yaml").write_text(TEXT)
    before = planned(tonnage)
    [cheapest] = before["solution"]["pools"]
    name = cheapest["instance_type"]
    clouds_that(
        lambda place: facts_of(
            place, {each: each != name for each in place.machine_types}
        )
    )
    plan = planned(tonnage, "--live")
    assert plan["solution"]["pools"][0]["instance_type"] != name
    [shortfall] = plan["quota_shortfalls"]
    assert shortfall["instance_type"] == name
    assert shortfall["usd"] == before["cost"]["total"]
    code, out, _ = tonnage("plan", "s.yaml", "--live")
    assert code == 0
    told = " ".join(out.split())
    assert f"{cheapest['nodes']} x {name} would cost" in told
    assert "the account has 0, of which 0 are used" in told
    assert f"tonnage quota request {cheapest['provider']}" in told
    assert "did not answer for zones: unknown: busy" in told
    assert "are reserved and not used: buy.reservations takes cr-1" in told


def test_a_record_gives_the_same_plan_byte_for_byte(
    tonnage: Command, here: Path, clouds_that
) -> None:
    (here / "s.yaml").write_text(TEXT)
    asked = clouds_that(drawn(1, 0.3))
    flags = ("plan", "s.yaml", "-f", "json")
    first = tonnage(*flags, "--live", "--record", "r.json")
    asked.clear()
    # How long it took is not of the plan.
    assert tonnage(*flags, "--replay", "r.json")[:2] == first[:2]
    assert not asked
    facts = read_facts("r.json")
    assert facts_text(facts) == (here / "r.json").read_text()


def test_a_plan_with_answers_is_applied_as_it_was_reviewed(
    tonnage: Command, here: Path, clouds_that
) -> None:
    """An apply plans again from the answers that are in the plan, and asks nobody."""
    (here / "s.yaml").write_text(TEXT)
    clouds_that(drawn(2, 0.3))
    assert tonnage("plan", "s.yaml", "--live", "--record", "r.json")[0] == 0
    flags = ("--replay", "r.json", "--simulate", "-o", "p.json")
    assert tonnage("plan", "s.yaml", *flags)[0] == 0
    code, _, err = tonnage("apply", "p.json", "--simulate", "--yes")
    assert code == 0, err


def test_the_chance_of_machines_on_spot_is_told(
    tonnage: Command, here: Path, clouds_that
) -> None:
    (here / "s.yaml").write_text(TEXT + "buy: {spot: only}\n")
    clouds_that(lambda place: facts_of(place, {}))
    code, out, _ = tonnage("plan", "s.yaml", "--live")
    assert code == 0
    assert "0.70 of 1 to be had now" in " ".join(out.split())


TRAINING = """\
apiVersion: tonnage/v1
name: run
kind: Training
model: {name: llama-3.1-8b}
data: {location: s3://sets/chat, tokens: 2B}
train: {method: continued, deadline: 14d}
where: {clouds: [aws], regions: [us-east-1], accelerators: {allow: [h100]}}
"""


@pytest.mark.parametrize("extra", ["", "buy: {spot: only}\n"])
def test_blocks_are_told_where_a_spec_may_buy_one(
    tonnage: Command,
    here: Path,
    clouds_that,
    monkeypatch: pytest.MonkeyPatch,
    extra: str,
) -> None:
    """In a form that the same spec takes, and the same plan derives from a record."""
    (here / "s.yaml").write_text(TRAINING + extra)
    clouds_that(
        lambda place: facts_of(place, dict.fromkeys(place.machine_types, True))
    )

    def offer(
        place: LivePlace, machines: int, hours: int, known: LiveFacts, _: float
    ) -> LiveFacts:
        [machine_type] = place.machine_types
        block = BlockFact(
            id="cb-0123456789abcdef0",
            machine_type=machine_type,
            zone=f"{place.region}a",
            machines=machines,
            starts="2026-12-01T11:30Z",
            ends=f"2026-12-{1 + hours // 24:02}T11:30Z",
            usd=Decimal(5000),
        )
        offered = OfferedBlocks(
            cloud=place.cloud,
            region=place.region,
            machine_type=machine_type,
            machines=machines,
            hours=hours,
            blocks=BlockAnswer(
                state="value", value=(block,), as_of=NOW, request="blocks"
            ),
        )
        return replace(known, offered_blocks=(offered,))

    monkeypatch.setattr(live_place, "ask_blocks", offer)
    code, page, err = tonnage("plan", "s.yaml", "--live", "--record", "r.json")
    assert code == 0, err
    told = " ".join(page.split())
    assert ("to take it: buy:" in told) == (not extra)
    if extra:
        return
    assert tonnage("plan", "s.yaml", "--replay", "r.json")[1] == page
    _, _, rest = told.partition("to take it: ")
    named = rest[: rest.index("}}") + 2]
    (here / "s.yaml").write_text(f"{TRAINING}{named}\n")
    code, _, err = tonnage("check", "s.yaml")
    assert code == 0, err


def committed(place: LivePlace) -> PlaceFacts:
    """A region in which two machines of each type are paid for, of which one is used."""
    facts = facts_of(place, dict.fromkeys(place.machine_types, True))
    commitments = {f"ri-{name}": name for name in place.machine_types}
    return replace(
        facts,
        commitments=CommitmentAnswer(
            state="value",
            as_of=NOW,
            request="commitments",
            value=tuple(
                CommitmentFact(
                    id=commitment,
                    name="reserved instances",
                    unit="machines",
                    amount=Decimal(2),
                    takes={name: Decimal(1)},
                    usd_hour=Decimal(3),
                    ends="2027-01-01T00:00:00Z",
                )
                for commitment, name in commitments.items()
            ),
        ),
        commitment_use=UsedAnswer(
            state="value",
            as_of=NOW,
            request="use",
            value=dict.fromkeys(commitments, Decimal(1)),
        ),
    )


def test_a_region_with_commitments_is_asked_wherever_it_is(
    tonnage: Command,
    here: Path,
    clouds_that,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What is paid for there serves first; a replay asks nobody and gives the same bytes."""
    (here / "s.yaml").write_text(TEXT)
    [cheapest] = planned(tonnage)["solution"]["pools"]
    dear = "europe-west2"
    clouds_that(
        lambda place: (
            committed(place)
            if place.region == dear
            else facts_of(place, dict.fromkeys(place.machine_types, True))
        )
    )

    def regions(
        allowed: Mapping[str, Sequence[str]], known: LiveFacts, _: float
    ) -> LiveFacts:
        answer = RegionAnswer(
            state="value", value=(dear,), as_of=NOW, request="regions"
        )
        assert dear in allowed["gcp"]
        silent = RegionAnswer(
            state="denied", reason="no right", as_of=NOW, request="regions"
        )
        return replace(known, commitment_regions={"gcp": answer, "aws": silent})

    monkeypatch.setattr(live_place, "ask_commitment_regions", regions)
    plan = planned(tonnage, "--live", "--record", "r.json")
    [pool] = plan["solution"]["pools"]
    assert (cheapest["region"], pool["region"]) != (dear, dear)
    assert pool["region"] == dear
    assert pool["purchases"][0]["purchase"] == "owned"
    [used] = [owned for owned in plan["cost"]["owned"] if owned["used_share"]]
    assert used["source"] == f"reserved instances ri-{pool['instance_type']}"
    assert Decimal(used["usd_month"]) == Decimal(1095)
    assert planned(tonnage, "--replay", "r.json") == plan
    code, out, _ = tonnage("plan", "s.yaml", "--replay", "r.json")
    told = " ".join(out.split())
    assert code == 0
    assert f"pays for 2 x {pool['instance_type']} until 2027-01-01" in told
    assert "of which 1 are not used" in told
    assert "$1,095 a month anyway by reserved instances" in told
    assert "aws did not answer for regions with commitments: denied" in told


def zonal(*chances: float) -> Callable[..., LiveFacts]:
    """Clouds that score zones a, b, c, and the same of every region and type."""

    def score_zones(
        wanted: Sequence[tuple[LivePlace, int]],
        known: LiveFacts,
        _deadline_s: float,
    ) -> LiveFacts:
        rows = score(wanted, known, 0).spot_chances
        return replace(
            known,
            spot_chances=tuple(
                replace(
                    row,
                    zone=f"{row.region}-{letter}",
                    chance=replace(row.chance, value=chance),
                )
                for row in rows
                for letter, chance in zip("abc", chances, strict=True)
            ),
        )

    return score_zones


@pytest.mark.parametrize(
    ("chances", "letters"),
    [((0.2, 0.4, 0.9), "cba"), ((0.9, 0.2, 0.4), "acb"), ((0.5,) * 3, "abc")],
)
def test_the_likeliest_zone_is_tried_first_and_a_replay_says_the_same(
    tonnage: Command,
    here: Path,
    clouds_that,
    monkeypatch: pytest.MonkeyPatch,
    chances: tuple[float, ...],
    letters: str,
) -> None:
    """It is the same fleet at the same price."""
    text = chat(
        extra="where: {clouds: [gcp], regions: [us-central1], accelerators: {allow: [l4]}}"
    )
    (here / "s.yaml").write_text(text + "buy: {spot: only}\n")
    before = planned(tonnage)
    clouds_that(lambda place: facts_of(place, {}))
    monkeypatch.setattr(live_place, "ask_chances", zonal(*chances))
    flags = ("plan", "s.yaml", "-f", "json")
    first = tonnage(*flags, "--live", "--record", "r.json")
    # How long it took is not of the plan.
    assert tonnage(*flags, "--replay", "r.json")[:2] == first[:2]
    plan = json.loads(first[1])
    [pool] = plan["solution"]["pools"]
    [pool_before] = before["solution"]["pools"]
    in_order = [f"us-central1-{letter}" for letter in letters]
    own = [zone for zone in in_order if zone in pool_before["zones"]]
    assert pool["zones"] == own
    assert [rung["zone"] for rung in plan["fallbacks"]] == own[1:]
    by_zone = dict(zip("abc", chances, strict=True))
    assert [rung["chance"] for rung in plan["fallbacks"]] == [
        by_zone[zone[-1]] for zone in own[1:]
    ]
    assert plan["cost"]["total"] == before["cost"]["total"]
    code, out, _ = tonnage("plan", "s.yaml", "--replay", "r.json")
    told = " ".join(out.split())
    assert code == 0
    assert f"{own[1]} ({by_zone[own[1][-1]]:.2f} of 1)" in told
    assert "zones begin with the likeliest" in told
    assert max(map(len, out.splitlines())) <= 100


def test_fallbacks_on_spot_are_asked_about_too_and_the_unlikely_come_last(
    tonnage: Command,
    here: Path,
    clouds_that,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = chat(extra="where: {clouds: [gcp, azure]}")
    (here / "s.yaml").write_text(text + "buy: {spot: only, fallback: 100%}\n")
    clouds_that(lambda place: facts_of(place, {}))
    unlikely: set[str] = set()

    def score_some(
        wanted: Sequence[tuple[LivePlace, int]],
        known: LiveFacts,
        _deadline_s: float,
    ) -> LiveFacts:
        scored = score(wanted, known, 0)
        return replace(
            scored,
            spot_chances=tuple(
                replace(row, chance=replace(row.chance, value=0.1))
                if row.machine_type in unlikely
                else row
                for row in scored.spot_chances
            ),
        )

    monkeypatch.setattr(live_place, "ask_chances", score_some)
    likely = planned(tonnage, "--live")
    kinds = [rung["kind"] for rung in likely["fallbacks"]]
    others = [rung for rung in likely["fallbacks"] if rung["kind"] != "zone"]
    assert len(others) > 1
    assert all(rung["chance"] == 0.7 for rung in others)
    unlikely.add(others[0]["pools"][0]["instance_type"])
    plan = planned(tonnage, "--live")
    rungs = [
        (rung["kind"], (rung["chance"] or 0.5) < 0.5)
        for rung in plan["fallbacks"]
    ]
    assert [is_unlikely for _, is_unlikely in rungs] == sorted(
        is_unlikely for _, is_unlikely in rungs
    )
    assert rungs[-1][1]
    # Among those that are alike the order is that of before.
    for wanted in (False, True):
        part = [kind for kind, is_unlikely in rungs if is_unlikely == wanted]
        assert part == [kind for kind in kinds if kind in part]
    assert sorted(kind for kind, _ in rungs) == sorted(kinds)


@pytest.mark.parametrize(
    "flags",
    [
        ("--record", "r.json"),
        ("--live", "--simulate"),
        ("--live", "--replay", "r.json"),
    ],
)
def test_flags_that_contradict_each_other_are_refused(
    tonnage: Command, here: Path, flags: tuple[str, ...]
) -> None:
    (here / "s.yaml").write_text(TEXT)
    assert tonnage("plan", "s.yaml", *flags)[0] == 2


@pytest.mark.parametrize("text", ["", "{", "[]", '{"places": [{}]}'])
def test_another_file_is_no_record(here: Path, text: str) -> None:
    (here / "r.json").write_text(text)
    with pytest.raises(UsageError, match="no record of what clouds answered"):
        read_facts("r.json")


@pytest.mark.parametrize(
    "usd", ["0", "-1", "NaN", "Infinity", "1e12", "1e-400", 0, -2.5]
)
@pytest.mark.parametrize("purchase", ["on_demand", "spot"])
def test_a_record_with_a_number_that_is_no_price_is_refused(
    tonnage: Command, here: Path, purchase: str, usd: object
) -> None:
    place = LivePlace("aws", "us-east-1", ("g6.xlarge",))
    facts = json.loads(
        facts_text(LiveFacts(places=(facts_of(place, {"g6.xlarge": True}),)))
    )
    [told] = facts["places"]
    told[f"{purchase}_usd"]["value"] = {
        "g6.xlarge": usd if purchase == "on_demand" else {"": usd}
    }
    (here / "s.yaml").write_text(TEXT)
    (here / "r.json").write_text(json.dumps(facts))
    code, _, err = tonnage("plan", "s.yaml", "--replay", "r.json")
    assert code == 2
    assert "r.json  error[live]: is no record of what clouds answered" in err
    assert "is no price above 0 and below 1,000,000" in err


@pytest.mark.parametrize("amount", ["NaN", "-1", "Infinity"])
def test_a_record_of_commitments_has_amounts(here: Path, amount: str) -> None:
    place = committed(LivePlace("aws", "us-east-1", ("g6.xlarge",)))
    facts = json.loads(facts_text(LiveFacts(places=(place,))))
    [told] = facts["places"]
    (here / "r.json").write_text(json.dumps(facts))
    read_facts("r.json")
    told["commitments"]["value"][0]["amount"] = amount
    (here / "r.json").write_text(json.dumps(facts))
    with pytest.raises(UsageError) as refusal:
        read_facts("r.json")
    [problem] = refusal.value.problems
    assert f"{amount} is no amount from 0 on" in problem.cause
