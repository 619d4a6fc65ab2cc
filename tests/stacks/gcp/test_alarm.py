"""Who is told of trouble on Google Cloud."""

from __future__ import annotations

from tests.stacks.told import (
    MAIL,
    TOPICS,
    WEBHOOK,
    inputs_of,
    told_graph,
)


def test_the_alert_tells_all_that_are_named(catalog) -> None:
    graph = told_graph(catalog, "gcp")
    channels = inputs_of(graph, "NotificationChannel")
    [alert] = inputs_of(graph, "AlertPolicy").values()
    assert alert["notificationChannels"] == [
        {"$ref": name, "output": "name"} for name in channels
    ]
    told = [(c["type"], *c["labels"].items()) for c in channels.values()]
    assert told == [
        ("email", ("email_address", MAIL)),
        ("webhook_tokenauth", ("url", WEBHOOK)),
        ("pubsub", ("topic", TOPICS["gcp"])),
    ]


def test_an_alert_without_receivers_tells_nobody(catalog) -> None:
    graph = told_graph(catalog, "gcp", told=False)
    [alert] = inputs_of(graph, "AlertPolicy").values()
    assert alert["notificationChannels"] == []
    assert not inputs_of(graph, "NotificationChannel")
