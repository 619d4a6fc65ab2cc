"""Who is told of trouble on Azure."""

from __future__ import annotations

from tests.stacks.told import (
    MAIL,
    TOPICS,
    WEBHOOK,
    inputs_of,
    told_graph,
)


def test_alert_and_budget_tell_all_that_are_named(catalog) -> None:
    graph = told_graph(catalog, "azure")
    targets = [{"$ref": "alarms", "output": "id"}, TOPICS["azure"]]
    [alert] = inputs_of(graph, "MetricAlert").values()
    assert [action["actionGroupId"] for action in alert["actions"]] == targets
    [budget] = inputs_of(graph, "Budget").values()
    assert budget["notifications"]["all"]["contactGroups"] == targets
    [group] = inputs_of(graph, "ActionGroup").values()
    assert [r["emailAddress"] for r in group["emailReceivers"]] == [MAIL]
    assert [r["serviceUri"] for r in group["webhookReceivers"]] == [WEBHOOK]


def test_an_alert_without_receivers_tells_nobody(catalog) -> None:
    graph = told_graph(catalog, "azure", told=False)
    [alert] = inputs_of(graph, "MetricAlert").values()
    assert alert["actions"] == []
    assert not inputs_of(graph, "ActionGroup")
    assert not inputs_of(graph, "Budget")
