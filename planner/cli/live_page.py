"""Generator of docs/live.md: what is asked of real clouds, and the least rights that it takes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from planner.facts.cloud import clouds
from providers.live.probe import probes, reading_rights, rights_by_resource
from providers.live.reach import login_text, rights_form

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from providers.live.probe import Probe

INTRO: Final = """\
# Live clouds

A plan stands on a dated catalog. `tonnage plan SPEC --live` asks the account that you are signed
in to what it may have today, and plans within that: quotas, zones, prices on demand and on spot,
reservations, commitments. It asks about the regions of the cheapest plan first; where an account
may not have that plan, about those of the next one. So few regions are asked, and no more quota
would be found by asking all. Elsewhere prices are those of the catalog. All questions together
take 20 seconds at most. What is not answered by then, or not at all, changes nothing, and the page
says so.

```console
$ tonnage init --blueprint chat-8b
...
$ tonnage plan chat-8b.yaml --replay blueprints/three-clouds.json
...
asked for quota, zones, prices and reservations, from 2026-11-27 06:00 UTC on: gcp us-east4,
...
  to raise it: tonnage quota request gcp us-east4 NVIDIA_L4_GPUS 9
...
```

Where the account has committed to machines, a service takes those first that nothing else uses:
they cost nothing more, as with [`buy.owned`](bills.md). What it does not use of them is on the
page. A file in `buy.owned` counts instead of them, since it may name the same. Regions that have
commitments of their own are asked as well, wherever they are. A savings plan that pays in all
regions opens none.

| what | on | its use | its price |
|---|---|---|---|
| reserved instances of a region | AWS | machines of the type that run | of the contract |
| savings plans | AWS | the mean of seven days, of Cost Explorer | of the contract |
| committed use of accelerators | Google Cloud | accelerators that run | such a term today |
| reservations | Azure | the mean of the time that Azure tells | such a term today |
| savings plans | Azure | the mean of the time that Azure tells | of the contract |

A commitment whose use nobody tells is told and not counted on. So is one of a single zone.
Committed use of Google Cloud pays for accelerators, vCPUs and memory: local SSD is billed beside
it. Reservations and savings plans of Azure belong to a tenant, so a role on a subscription does
not read them: ask for Reservations Reader and Savings plan Reader.

Where [EC2 Capacity Manager](https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/capacity-manager.html)
is enabled in a region, how often your own machines on spot were taken back in four weeks stands in
place of what AWS publishes, once they have run for a month together. Few reclaims say little: the
range is that in which their mean is within 90 %.

For a training that may buy a [capacity block](training.md), AWS is asked which blocks its run
would fit in, in the region of the plan. The page has the cheapest, as `buy.block` takes it.

What was answered is kept for five minutes, for the next plan of the same account, in the cache
folder of the user (`TONNAGE_CACHE`).

`--record FILE` writes down what was answered, and `--replay FILE` plans with it again: the same
bytes, on another machine, without a login. The answers are in the plan too, so an apply derives
the same plan from them. No answer has a secret.

`tonnage status STACK --live` says what runs by the word of the cloud, beside what was applied;
what the stack has cost this month, beside the plan; and what of commitments is used. It takes the
file of a plan too, whose stack somebody else applied. All of it takes 20 seconds at most, and what
a cloud does not answer is said. AWS tells costs a day late, and only of tags that are activated
for cost allocation; Google Cloud tells them by its export alone, which `tonnage usage` reads.

`tonnage plan A.yaml B.yaml --share --live` holds a quota against all of the specs together, minute
by minute: services by their load, in their time zones, and everything else at its peak. Where
their cheapest fleets do not fit, it finds those that do and cost the least together, and says what
is short and which request raises it. Where none fit, it exits with 10 and names the same request.
What the account has committed to is used first by all of them, over the sum of their hours, and
what none of them uses is named. `--replay FILE` goes with it too. Without `--share` each spec is
planned as if it were alone, and `warning[shared-quota]` says so where all of them exceed a quota
([how](decisions/0059-quotas-are-shared.md), [by what](decisions/0065-choice-by-highs.md)).

Clouds are also asked how likely machines on spot are to be had, those of the plan and of its
fallbacks. That changes what apply tries first, and no bill. A fleet in one zone begins with the
likeliest one, and goes on with the next likely; what is less likely than even (0.5 of 1) is tried
after all other fallbacks. Nothing else moves, and what nobody scores counts as even. Google Cloud
names the zone that its score is for, Azure scores each zone or else the region, and AWS scores
three types together or more, so it says nothing of one. The page shows each score.

`tonnage doctor PLAN` asks what else would stop an apply. `tonnage quota list CLOUD REGION` shows
quotas, and `tonnage quota request CLOUD REGION QUOTA LIMIT --yes` asks for more: that alone
changes an account.

## Who signs in, and with which rights

Logins are those of the tools of each cloud. The packages are extras, such as `pip install
'tonnage[aws]'`. Without a login a cloud is not asked, the page names it, and the plan takes it as
the catalog has it; prices that are public are asked all the same.

One service takes money: Cost Explorer of AWS a cent, for the use of savings plans where there is
one, and for the cost of a stack. The tables are made by `make docs` from
`providers/data/probes.csv`.

## Whether clouds still answer so

What tests know of each answer is in files, `tests/providers/shapes/CLOUD/CALL/CASE.json`: an
ordinary one, one of nothing, and refusals, each with where its shape is from. The models of AWS's
own client have every member of them; the others are held against the types of the clients of
Google Cloud and Azure.

`make live-test CLOUD=aws` asks your own account all of the tables below that changes nothing, in
one region, and holds each answer against its file. A field that is read and is missing, or of
another type, is a failure. What is new is listed, and so is what your account does not show. It
keeps names of fields and their types alone; names that you gave, such as those of tags, are none
of them. With `STACK=NAME` it looks for the machines and the cost of a stack of yours. Then it asks
for the prices of all regions, for five minutes at most, and lists those that differ from the
catalog; one that is five times as high or as low is a failure. On AWS it takes about two cents.
"""


def live_page() -> str:
    """Return the page of live clouds."""
    lines = [INTRO]
    for cloud in clouds():
        asked = [probe for probe in probes() if probe.cloud == cloud]
        lines += [
            f"## {clouds()[cloud].title}",
            "",
            f"To sign in: {login_text(cloud)}.",
            "",
            "| what is asked | how often | rights |",
            "|---|---|---|",
            *_rows(asked),
            "",
            "The least that all of it takes, except asking for more quota:",
            "",
            "```json",
            json.dumps(policy_of(cloud), indent=2),
            "```",
            "",
        ]
    return "\n".join(lines)


def _rows(asked: Sequence[Probe]) -> Iterator[str]:
    for probe in asked:
        rights = ", ".join(f"`{right}`" for right in probe.rights) or "none"
        yield f"| {probe.what} | {probe.asked} | {rights} |"


def policy_of(cloud: str) -> dict[str, Any]:
    """Return a policy, or a role, with the least rights to ask a cloud, as its tools take it."""
    rights = list(
        reading_rights(probe for probe in probes() if probe.cloud == cloud)
    )
    forms: dict[str, dict[str, Any]] = {
        "policy": {
            "Version": "2012-10-17",
            "Statement": [
                {
                    "Sid": f"TonnageAsks{number or ''}",
                    "Effect": "Allow",
                    "Action": actions,
                    "Resource": resource,
                }
                for number, (resource, actions) in enumerate(
                    rights_by_resource(rights).items()
                )
            ],
        },
        "role": {
            "title": "tonnage asks",
            "stage": "GA",
            "includedPermissions": rights,
        },
        "definition": {
            "Name": "tonnage asks",
            "Description": "Reads what a subscription may have.",
            "Actions": rights,
            "AssignableScopes": ["/subscriptions/SUBSCRIPTION"],
        },
    }
    return forms[rights_form(cloud)]
