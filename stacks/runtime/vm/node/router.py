"""A router for the machines of a service: each request goes to the engine that has the fewest.

Every machine runs the proxy, and the first one by name whose engine is ready leads: it alone tells
the balancer that it is well, so all requests pass its proxy, and its counts are those of the whole
service. When it is lost, the others see it within a minute, and the next one leads. Two that lead
for a moment spread requests a little worse, and lose none.
"""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple

from stacks.runtime.vm.node import activity, container
from stacks.runtime.vm.node.host import write_whole

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stacks.runtime.vm.node.cloud import CloudApi
    from stacks.runtime.vm.node.host import Host

FOLDER = "routes/"
NAME = "tonnage-router"
CONFIG_FOLDER = "/run/tonnage/router"
CONFIG_PATH = f"{CONFIG_FOLDER}/nginx.conf"
# Long enough for an answer that takes an hour, and for what is on its way at the end.
DRAIN_S = 20
# Records are listed so often, and engines are asked at every look.
LIST_S = 30.0
PROBE_WORKERS = 16
# The record of a machine that left without a word.
LOST_S = 1800.0
# Workers share their counts only in a zone.
CONFIG = """worker_processes auto;
error_log stderr warn;
pid /tmp/nginx.pid;
events {{ worker_connections 16384; }}
http {{
  access_log off;
  client_max_body_size 256m;
  upstream engines {{
    zone engines 1m;
    {method}
{servers}
    keepalive 256;
  }}
  server {{
    listen {port};
    location = /health {{ return {health}; }}
    location / {{
      proxy_pass http://engines;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_set_header Host $host;
      proxy_buffering off;
      proxy_connect_timeout 2s;
      proxy_read_timeout 3600s;
      proxy_send_timeout 3600s;
    }}
  }}
}}
"""
METHODS = {"least-loaded": "least_conn;", "round-robin": ""}


class Route(NamedTuple):
    """The engine of a machine."""

    node: str
    address: str


class Router:
    """The proxy of this machine. Settings: image, routing, port, engine_port, pool."""

    def __init__(
        self, machine: Host, cloud: CloudApi, settings: Mapping[str, Any]
    ) -> None:
        self._machine = machine
        self._cloud = cloud
        self._settings = settings
        self._node = cloud.node_name()
        self._own_key = f"{FOLDER}{self._node}"
        self._is_told = False
        self._listed_s = -LIST_S
        # Routes by their keys, and since when nobody answers at them.
        self._routes: dict[str, Route] = {}
        self._lost_s: dict[str, float] = {}
        self._config = ""

    def look(self, *, is_ready: bool) -> None:
        """Tell whether the engine of this machine is ready, and route to all that are."""
        self._tell(is_ready=is_ready)
        if self._machine.now_s() - self._listed_s >= LIST_S:
            self._listed_s = self._machine.now_s()
            self._list()
        ready = self._ready_routes()
        leads = bool(ready) and ready[0].node == self._node
        self._apply(ready, leads=leads)

    def leave(self) -> None:
        """Send nobody here any more; what is on its way is answered."""
        self._tell(is_ready=False)
        self._apply(self._ready_routes(), leads=False)

    def stop(self) -> None:
        """End the proxy."""
        container.stop(self._machine, NAME, DRAIN_S)

    def _tell(self, *, is_ready: bool) -> None:
        if is_ready == self._is_told:
            return
        if is_ready:
            record = {"node": self._node, "address": self._cloud.address()}
            self._cloud.write(self._own_key, json.dumps(record).encode())
        else:
            self._cloud.delete(self._own_key)
        self._is_told = is_ready
        self._listed_s = -LIST_S

    def _list(self) -> None:
        """Read the records of all machines; one that is known is not read again."""
        keys = {item.key for item in self._cloud.list(FOLDER)}
        self._routes = {
            key: route for key, route in self._routes.items() if key in keys
        }
        for key in keys - self._routes.keys():
            stored = self._cloud.read(key)
            if stored is not None:
                record = json.loads(stored.data)
                self._routes[key] = Route(record["node"], record["address"])

    def _ready_routes(self) -> list[Route]:
        """Return the engines that answer, by the names of their machines."""
        keys = sorted(self._routes)
        with ThreadPoolExecutor(PROBE_WORKERS) as workers:
            answers = list(
                workers.map(
                    lambda key: activity.is_healthy(
                        self._machine,
                        self._settings["engine_port"],
                        self._routes[key].address,
                    ),
                    keys,
                )
            )
        now_s = self._machine.now_s()
        for key, is_well in zip(keys, answers, strict=True):
            if is_well:
                self._lost_s.pop(key, None)
            elif now_s - self._lost_s.setdefault(key, now_s) >= LOST_S:
                self._cloud.delete(key)
        return sorted(
            self._routes[key]
            for key, is_well in zip(keys, answers, strict=True)
            if is_well
        )

    def _apply(self, ready: list[Route], *, leads: bool) -> None:
        """Write the configuration of the proxy where it has changed, and let it read it."""
        engine_port = self._settings["engine_port"]
        config = CONFIG.format(
            method=METHODS[self._settings["routing"]],
            # Without any engine requests are refused at once.
            servers="\n".join(
                f"    server {route.address}:{engine_port} max_fails=0;"
                for route in ready
            )
            or f"    server 127.0.0.1:{engine_port} down;",
            port=self._settings["port"],
            health=200 if leads else 503,
        )
        is_up = container.is_running(self._machine, NAME)
        if is_up and config == self._config:
            return
        write_whole(self._machine.path(CONFIG_PATH), config)
        self._config = config
        if is_up:
            self._machine.run("docker", "kill", "--signal=HUP", NAME)
        else:
            self._start()
        self._machine.log(
            f"routes to {len(ready)} engines{', and leads' if leads else ''}"
        )

    def _start(self) -> None:
        container.remove(self._machine, NAME)
        self._machine.run(
            "docker",
            "run",
            "--detach",
            f"--name={NAME}",
            "--network=host",
            *container.LOG_WORDS,
            f"--volume={CONFIG_FOLDER}:{CONFIG_FOLDER}:ro",
            self._settings["image"],
            "nginx",
            "-c",
            CONFIG_PATH,
            "-g",
            "daemon off;",
        )
