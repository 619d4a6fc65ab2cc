"""What the rules of policies say of plans: every rule has a verdict, and no error passes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from msgspec import Struct

from planner.errors import Place, Problem, SpecError
from planner.plan.policy.document import rule_documents
from planner.plan.policy.expression import place_of_key
from planner.plan.policy.spec_place import place_of_spec_key

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from planner.plan.part import Properties
    from planner.plan.policy.judged_plan import JudgedPlan
    from planner.plan.policy.rule import (
        Expression,
        PolicyFile,
        PolicyRule,
        PolicyWaiver,
    )

# How a verdict is told; a rule that reads what there is not is not judged.
Judgment: TypeAlias = Literal[
    "passes", "warns", "denies", "waived", "not judged"
]
# The gravest first.
GRAVITY: Final[tuple[Judgment, ...]] = ("denies", "warns", "passes")
DIFF: Final = "diff"
BROKEN_HELP: Final = (
    "change what the spec asks for, or have a waiver added to the policy"
)
FAULT_HELP: Final = "correct the rule, or give the spec what it reads"
# So many values that a broken rule has read are told.
TOLD_VALUES: Final = 3
SEVERAL: Final = "several values"


class RuleQuestion(Struct, frozen=True, kw_only=True):
    """Rules to judge over documents; `today` is for the age of prices.

    rules  when and unless of each
    """

    today: str
    documents: tuple[dict[str, Any], ...]
    rules: tuple[tuple[str, str | None], ...]


class RuleAnswer(Struct, frozen=True, kw_only=True):
    """What an engine of CEL says of a rule over one of the documents.

    document    position among the documents; -1 for a text that is no expression
    rule        position among the rules
    is_broken   whether `when` holds and `unless` does not
    expression  which of its expressions is at fault: 0 for when, 1 for unless
    fault       why there is no answer; empty where there is one
    key         the key that is missing, where it is that
    line        of the fault in the text of the expression, from 1; 0 where it is not known
    column      of the fault, from 1
    """

    document: int
    rule: int
    is_broken: bool = False
    expression: int = 0
    fault: str = ""
    key: str = ""
    line: int = 0
    column: int = 0


class RuleFinding(Struct, frozen=True):
    """What a rule says of one document, before its waivers."""

    judgment: Judgment
    cause: str = ""
    help: str = ""


Judge: TypeAlias = "Callable[[RuleQuestion], Sequence[RuleAnswer]]"


class Verdict(Struct, frozen=True, kw_only=True):
    """What a rule says of a plan.

    place   where the spec asks for what the rule is about
    cause   what is at fault: the rule and where it stands, or what cannot be judged
    help    what to do about it
    waiver  who answers for it, where somebody does or did
    """

    policy: str
    rule: PolicyRule
    stack: str
    judgment: Judgment
    place: Place
    cause: str = ""
    help: str = ""
    waiver: PolicyWaiver | None = None

    @property
    def problem(self) -> Problem:
        """The verdict as a problem of the spec."""
        return Problem(
            code=self.rule.id,
            message=self.rule.message,
            place=self.place,
            cause=self.cause,
            next_step=self.help or self.rule.help or BROKEN_HELP,
        )


def judge_plans(
    policies: Sequence[PolicyFile],
    plans: Sequence[JudgedPlan],
    judge: Judge,
    today: str,
) -> tuple[Verdict, ...]:
    """Return the verdict of every rule on every plan, in their order.

    A rule is broken where it is for the plan or for anything that apply may buy instead. What
    cannot be judged is denied. Raises SpecError for an expression that is none.
    """
    rules = [(policy, rule) for policy in policies for rule in policy.rules]
    variants = [(plan, variant) for plan in plans for variant in plan.variants]
    documents = tuple(
        rule_documents(variant, plan.diff) for plan, variant in variants
    )
    answers = judge(
        RuleQuestion(
            today=today,
            documents=documents,
            rules=tuple(
                (rule.when.text, rule.unless.text if rule.unless else None)
                for _, rule in rules
            ),
        )
    )
    _refuse_syntax(rules, answers)
    answer_by_position = {
        (answer.document, answer.rule): answer for answer in answers
    }
    verdicts = []
    begin = 0
    for plan in plans:
        end = begin + len(plan.plan.fallbacks) + 1
        for position, (policy, rule) in enumerate(rules):
            findings = [
                _finding(
                    policy,
                    rule,
                    documents[number],
                    answer_by_position[number, position],
                    rung=number - begin,
                )
                for number in range(begin, end)
            ]
            verdicts.append(_verdict(policy, rule, plan, findings, today))
        begin = end
    return tuple(verdicts)


def _refuse_syntax(
    rules: Sequence[tuple[PolicyFile, PolicyRule]],
    answers: Sequence[RuleAnswer],
) -> None:
    """Raise SpecError with every expression that is none."""
    problems = []
    for answer in answers:
        if answer.document >= 0:
            continue
        policy, rule = rules[answer.rule]
        expression = rule.expressions[answer.expression]
        problems.append(
            Problem(
                code="expression",
                message=f"rule {rule.id}: {answer.fault}",
                place=expression.place_at(
                    offset_of(expression, answer), policy.text
                ),
                next_step="write an expression of CEL that is true or false: docs/policy.md",
            )
        )
    if problems:
        raise SpecError(*problems)


def _verdict(
    policy: PolicyFile,
    rule: PolicyRule,
    plan: JudgedPlan,
    findings: Sequence[RuleFinding],
    today: str,
) -> Verdict:
    """Return what a rule says of a plan, in view of its waivers: the gravest of its findings."""
    stack = plan.plan.stack.name
    finding = min(findings, key=lambda finding: GRAVITY.index(finding.judgment))
    if DIFF in rule.documents and plan.diff is None:
        finding = RuleFinding(
            "not judged", "it reads diff, which tonnage diff has"
        )
    judgment, cause = finding.judgment, finding.cause
    waiver = None
    if judgment in ("warns", "denies"):
        waivers = policy.waivers_for(rule, stack, plan.labels)
        waiver = waivers[0] if waivers else None
    if waiver is not None and today <= waiver.until:
        judgment = "waived"
    elif waiver is not None:
        cause += f"; the waiver of {waiver.owner} ended on {waiver.until}"
    return Verdict(
        policy=policy.path,
        rule=rule,
        stack=stack,
        judgment=judgment,
        place=place_of_spec_key(
            plan.spec_bytes, plan.spec_path, rule.spec_path
        ),
        cause=cause,
        help=finding.help,
        waiver=waiver,
    )


def _finding(
    policy: PolicyFile,
    rule: PolicyRule,
    documents: Properties,
    answer: RuleAnswer,
    *,
    rung: int,
) -> RuleFinding:
    """Return what a rule says of a plan, or of what may be bought instead of it."""
    for expression in rule.expressions:
        for fault in expression.names.faults:
            place = expression.place_at(fault.offset, policy.text)
            return RuleFinding(
                "denies",
                f"{place}: rule {rule.id} cannot be judged: {fault.message}",
                fault.hint or FAULT_HELP,
            )
    variant = f", with fallback {rung} of the plan" if rung else ""
    if answer.fault:
        return RuleFinding(
            "denies",
            _fault_text(policy, rule, answer) + variant,
            rule.help or FAULT_HELP,
        )
    if not answer.is_broken:
        return RuleFinding("passes")
    told = "; ".join(_read_values(rule, documents))
    return RuleFinding(
        "denies" if rule.severity == "deny" else "warns",
        f"{rule.place}: rule {rule.id}{variant}"
        + (f": {told}" if told else ""),
    )


def _read_values(rule: PolicyRule, documents: Properties) -> list[str]:
    """Return what a rule has read, as far as it is one value: plan.cost.total is 290.92."""
    texts = (
        f"{'.'.join(path)} is {_value_text(documents, path)}"
        for path in rule.when.names.read_paths
    )
    told = [text for text in texts if not text.endswith(SEVERAL)]
    return told[:TOLD_VALUES]


def _value_text(documents: Properties, path: tuple[str, ...]) -> str:
    """Return the value at a path as a rule would write it; `SEVERAL` of a list or a mapping."""
    part: Any = documents
    for key in path:
        if not isinstance(part, dict) or key not in part:
            return "not there"
        part = part[key]
    match part:
        case None:
            return "null"
        case bool():
            return str(part).lower()
        case float():
            return f"{part:.10g}"
        case str():
            return f"{part:.60}"
        case _:
            return SEVERAL


def _fault_text(
    policy: PolicyFile, rule: PolicyRule, answer: RuleAnswer
) -> str:
    """Say why a rule cannot be judged, and where in its file that is."""
    expression = rule.expressions[answer.expression]
    offset = (
        place_of_key(expression.text, answer.key)
        if answer.key
        else offset_of(expression, answer)
    )
    place = expression.place_at(offset, policy.text)
    return f"{place}: rule {rule.id} cannot be judged: {answer.fault}"


def offset_of(expression: Expression, answer: RuleAnswer) -> int:
    """Return how many characters of an expression stand before the fault of an answer."""
    lines = expression.text.splitlines(keepends=True)
    before = sum(len(line) for line in lines[: max(0, answer.line - 1)])
    return min(
        before + max(0, answer.column - 1), max(0, len(expression.text) - 1)
    )
