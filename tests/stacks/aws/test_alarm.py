"""Who is told of trouble on AWS."""

from __future__ import annotations

from stacks.build import build_stack
from tests.conftest import find, present, spec_of
from tests.stacks.told import (
    MAIL,
    TOPICS,
    WEBHOOK,
    inputs_of,
    told_graph,
    told_spec,
)


def test_alarms_and_budget_tell_all_that_are_named(catalog) -> None:
    graph = told_graph(catalog, "aws")
    alarms = inputs_of(graph, "MetricAlarm")
    topic = {"$ref": "alarms", "output": "arn"}
    assert len(alarms) == 3
    for alarm in alarms.values():
        assert alarm["alarmActions"][-2:] == [topic, TOPICS["aws"]]
    [budget] = inputs_of(graph, "Budget").values()
    assert budget["notifications"][0]["subscriberSnsTopicArns"] == [topic]
    addresses = {
        (inputs["protocol"], inputs["endpoint"])
        for inputs in inputs_of(graph, "TopicSubscription").values()
    }
    assert addresses == {("email", MAIL), ("https", WEBHOOK)}


def test_the_budget_is_what_the_plan_says(catalog) -> None:
    text = told_spec("aws")
    solution = find(catalog, text, keep=0)
    spec = spec_of(text)
    graph = build_stack(spec, solution, spec.name).graph
    [budget] = inputs_of(graph, "Budget").values()
    assert present(solution.bill).total <= int(budget["limitAmount"])
    assert int(budget["limitAmount"]) < present(solution.bill).total + 1


def test_alarms_without_receivers_tell_nobody(catalog) -> None:
    graph = told_graph(catalog, "aws", told=False)
    alarms = inputs_of(graph, "MetricAlarm")
    assert alarms["serve-trouble-alarm"]["alarmActions"] == []
    policy = [{"$ref": "serve-to-zero", "output": "arn"}]
    assert alarms["serve-dead-alarm"]["alarmActions"] == policy
    assert not inputs_of(graph, "Topic")
    assert not inputs_of(graph, "Budget")
