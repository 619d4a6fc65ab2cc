"""A router for the machines of a service: each request goes to the engine that has the fewest.

Every machine runs the proxy, and the one whose engine has been ready for longest leads: it alone
tells the balancer that it is well, so all requests pass its proxy, and its counts are those of the
whole service. Machines that come later change nothing. When it is lost, the others see it within a
minute, and the next one leads. Two that lead for a moment spread requests a little worse.
"""

from __future__ import annotations

import json
import re
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple

from stacks.runtime.vm.node import activity, container, hand_over
from stacks.runtime.vm.node.host import RequestError, write_whole
from stacks.runtime.vm.node.length_rule import (
    ENGINES,
    SHORT_ENGINES,
    divided_paths,
    length_map,
)
from stacks.runtime.vm.node.secret import write_private
from stacks.runtime.vm.node.work import StepError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stacks.runtime.vm.node.cloud import CloudApi
    from stacks.runtime.vm.node.host import Host

FOLDER = "routes/"
NAME = "tonnage-router"
CONFIG_FOLDER = "/run/tonnage/router"
CONFIG_PATH = f"{CONFIG_FOLDER}/nginx.conf"
# Key and certificates, in memory.
CERTIFICATE_PATH = f"{CONFIG_FOLDER}/tls.pem"
# A certificate or a key that was renewed reaches the proxy so soon.
RENEW_S = 3600.0
DRAIN_S = 20
# An engine may miss so many questions: each change of the list resets the counts of the proxy.
MISSES = 2
# Records are listed so often, and engines are asked at every look.
LIST_S = 30.0
PROBE_WORKERS = 16
# The record of a machine that left without a word.
LOST_S = 1800.0
# Workers share their counts only in a zone.
CONFIG = """{modules}worker_processes auto;
worker_rlimit_nofile 65536;
error_log stderr warn;
pid /tmp/nginx.pid;
events {{ worker_connections 16384; }}
http {{
  access_log off;
  client_max_body_size 256m;
{upstreams}  proxy_http_version 1.1;
  proxy_set_header Connection "";
  proxy_set_header Host $host;
  proxy_buffering off;
  proxy_connect_timeout 2s;
  proxy_read_timeout 3600s;
  proxy_send_timeout 3600s;
{gate}{doors}
}}
"""
UPSTREAM = """  upstream {name} {{
    zone {name} 1m;
    {method}
{servers}
    keepalive 256;
    # The engine closes idle connections after five seconds.
    keepalive_timeout 4s;
  }}
"""
# The part of a request that machines do which compute prompts for others.
PROMPTS = "prompts"
# What clients reach of the engines of a service beside the first one.
BESIDE_PATH = """location {path} {{ proxy_pass http://{upstream}{end}; }}
    """
# Who has the key that the engine itself does not ask for. Plain words would match in any case.
GATE = """  map $http_authorization $has_key {{
    default 0;
    "{pattern}" 1;
  }}
"""
# What clients reach of an engine. The key that it asks for protects nothing but /v1/.
ALL_PATHS = "location / { proxy_pass http://engines; }"
KEYED_PATHS = """location /v1/ { proxy_pass http://engines; }
    location / { return 404; }"""
GATED_PATHS = """location /v1/ {
      if ($has_key = 0) { return 401; }
      proxy_pass http://engines;
    }
    location / { return 404; }"""
DOOR = """  server {{
    listen {port};
    location = /health {{ return {health}; }}
    {paths}
  }}"""
# Balancers ask for the health without encryption, and nobody gets anything else there.
TLS_DOORS = """  server {{
    listen {port};
    location = /health {{ return {health}; }}
    location / {{ return 403; }}
  }}
  server {{
    listen {tls_port} ssl;
    ssl_certificate {certificate};
    ssl_certificate_key {certificate};
    ssl_protocols TLSv1.2 TLSv1.3;
    location = /health {{ return {health}; }}
    {paths}
  }}"""
METHODS = {
    "least-loaded": "least_conn;",
    "round-robin": "",
    "random": "random;",
}


class Route(NamedTuple):
    """The engine of a machine, and since when it is ready; the first one leads.

    The proxy picks engines in proportion to their weights. One with a `body_limit` takes no
    request with more bytes in its body; 0 is any. `part` is what of a request the engine does,
    empty for all of it.
    """

    since: str
    node: str
    address: str
    weight: int = 1
    body_limit: int = 0
    part: str = ""


class Router:
    """The proxy of this machine.

    Settings: image, routing, port, engine_port, tls_port, certificate (its secret), is_public
    where clients come from the internet, weight where machines are of several types, body_limit
    where they take short requests alone, key (its secret) where the engine does not ask for it,
    part where one pool computes prompts and another one answers, and beside, the ports of the
    engines of other services by the names in their paths.
    """

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
        self._since = ""
        # Routes by their keys, with versions, and since when nobody answers at them.
        self._routes: dict[str, Route] = {}
        self._versions: dict[str, str] = {}
        self._lost_s: dict[str, float] = {}
        self._misses: dict[str, int] = {}
        self._config = ""
        self._certificate = ""
        self._key = ""
        self._renewed_s = -RENEW_S

    def look(self, *, is_ready: bool) -> None:
        """Tell whether the engine of this machine is ready, and route to all that are."""
        if self._settings["certificate"] or self._has_gate:
            self._renew()
        self._tell(is_ready=is_ready)
        if self._machine.now_s() - self._listed_s >= LIST_S:
            self._listed_s = self._machine.now_s()
            self._list()
        ready = self._ready_routes()
        # Without an engine that answers nobody is well.
        routes = answering(ready)
        leads = bool(routes) and routes[0].node == self._node
        self._apply(ready, leads=leads)

    @property
    def _has_gate(self) -> bool:
        """Whether the proxy asks clients for their key."""
        return bool(self._settings.get("key"))

    def _renew(self) -> None:
        """Bring the certificate and the key, and bring them again when they are renewed."""
        if self._machine.now_s() - self._renewed_s < RENEW_S:
            return
        certificate = self._secret("certificate", self._certificate)
        self._key = self._secret("key", self._key).strip()
        self._renewed_s = self._machine.now_s()
        if certificate != self._certificate:
            write_private(self._machine.path(CERTIFICATE_PATH), certificate)
            self._certificate = certificate
            # The proxy reads the file when it reads its configuration.
            self._config = ""

    def _secret(self, kind: str, kept: str) -> str:
        """Return a secret of the settings; the one that was kept where the store does not answer.

        Empty where there is none. Raises StepError when none was kept.
        """
        name = self._settings.get(kind, "")
        if not name:
            return ""
        try:
            return self._cloud.secret(name)
        except RequestError as error:
            if not kept:
                raise StepError(
                    f"the {kind} cannot be read: {error}"
                ) from error
            # The one that is there holds for days, so the store is asked again in an hour.
            self._machine.log(f"the {kind} is not renewed: {error}")
            return kept

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
            self._since = self._machine.utc().isoformat(timespec="seconds")
            self._write_record()
        else:
            self._cloud.delete(self._own_key)
        self._is_told = is_ready
        self._listed_s = -LIST_S

    def _write_record(self) -> None:
        record = {
            "since": self._since,
            "node": self._node,
            "address": self._cloud.address(),
            "weight": self._settings.get("weight", 1),
            # A program of before knows nothing of it.
            **(
                {"body_limit": self._settings["body_limit"]}
                if "body_limit" in self._settings
                else {}
            ),
            **({"part": self._part} if self._part else {}),
        }
        self._cloud.write(self._own_key, json.dumps(record).encode())

    def _list(self) -> None:
        """Read the records of all machines; one that has not changed is not read again."""
        versions = {item.key: item.version for item in self._cloud.list(FOLDER)}
        if self._is_told and self._own_key not in versions:
            # Somebody who could not reach this machine took it for lost.
            self._write_record()
        self._routes = {
            key: route
            for key, route in self._routes.items()
            if versions.get(key) == self._versions.get(key)
        }
        for key in versions.keys() - self._routes.keys():
            stored = self._cloud.read(key)
            if stored is not None:
                self._routes[key] = Route(**json.loads(stored.data))
        self._versions = versions

    def _ready_routes(self) -> list[Route]:
        """Return the engines that answer, the one that has been ready for longest first."""
        keys = sorted(self._routes)
        with ThreadPoolExecutor(PROBE_WORKERS) as workers:
            answers = list(
                workers.map(
                    lambda key: self._is_well(self._routes[key].address),
                    keys,
                )
            )
        now_s = self._machine.now_s()
        for key, is_well in zip(keys, answers, strict=True):
            if is_well:
                self._lost_s.pop(key, None)
                self._misses[key] = 0
            else:
                self._misses[key] = self._misses.get(key, MISSES) + 1
                if now_s - self._lost_s.setdefault(key, now_s) >= LOST_S:
                    self._cloud.delete(key)
        return sorted(
            self._routes[key] for key in keys if self._misses[key] < MISSES
        )

    @property
    def _part(self) -> str:
        """What of a request the engine of this machine does, empty for all of it."""
        return str(self._settings.get("part", ""))

    @property
    def _beside(self) -> dict[str, int]:
        """Ports of the engines of other services, by the names in their paths."""
        ports: dict[str, int] = self._settings.get("beside", {})
        return ports

    def _is_well(self, address: str) -> bool:
        """Whether all engines of a machine are well."""
        return all(
            activity.is_healthy(self._machine, port, address)
            for port in (self._settings["engine_port"], *self._beside.values())
        )

    @property
    def _beside_paths(self) -> str:
        """What clients reach of the engines of other services."""
        is_public = self._settings["is_public"]
        return "".join(
            BESIDE_PATH.format(
                path=f"/{name}/v1/" if is_public else f"/{name}/",
                upstream=f"beside-{name}",
                end="/v1/" if is_public else "/",
            )
            for name in self._beside
        )

    def _paths(self, ready: list[Route]) -> str:
        """Return what clients reach of the engines."""
        paths = KEYED_PATHS if self._settings["is_public"] else ALL_PATHS
        if self._has_gate:
            paths = GATED_PATHS
        if self._part:
            return hand_over.paths(paths, has_gate=self._has_gate)
        if is_divided(ready):
            return divided_paths(paths)
        return self._beside_paths + paths

    def _upstreams(self, ready: list[Route]) -> str:
        """Return the engines in the words of the proxy, and which of them take short requests.

        Those that compute prompts are a list of their own. Engines for long requests take all
        where no other one is ready; what is too long for the others they never get.
        """
        if self._part:
            return "".join(
                self._upstream(name, routes)
                for name, routes in (
                    (ENGINES, answering(ready)),
                    (PROMPTS, [each for each in ready if each.part == PROMPTS]),
                )
            )
        long = [route for route in ready if not route.body_limit]
        if not is_divided(ready):
            return self._upstream(ENGINES, long) + "".join(
                self._upstream(f"beside-{name}", long, port)
                for name, port in self._beside.items()
            )
        short = [route for route in ready if route.body_limit]
        return (
            self._upstream(ENGINES, long)
            + self._upstream(SHORT_ENGINES, short)
            + length_map(min(route.body_limit for route in short))
        )

    def _upstream(
        self, name: str, routes: list[Route], port: int | None = None
    ) -> str:
        port = port or self._settings["engine_port"]
        return upstream(
            name,
            self._settings["routing"],
            [
                f"{route.address}:{port} weight={route.weight}"
                for route in routes
            ],
            port,
        )

    def _apply(self, ready: list[Route], *, leads: bool) -> None:
        """Write the configuration of the proxy where it has changed, and let it read it."""
        config = CONFIG.format(
            modules=hand_over.MODULES if self._part else "",
            upstreams=self._upstreams(ready),
            gate=(hand_over.imports(CONFIG_FOLDER) if self._part else "")
            + (gate(self._key) if self._has_gate else ""),
            doors=(TLS_DOORS if self._settings["certificate"] else DOOR).format(
                port=self._settings["port"],
                tls_port=self._settings["tls_port"],
                certificate=CERTIFICATE_PATH,
                health=200 if leads else 503,
                paths=self._paths(ready),
            ),
        )
        is_up = container.is_running(self._machine, NAME)
        if is_up and config == self._config:
            return
        if self._part:
            script = f"{CONFIG_FOLDER}/{hand_over.SCRIPT_NAME}"
            write_whole(self._machine.path(script), hand_over.SCRIPT)
        # With a gate it has the key of clients.
        write = write_private if self._has_gate else write_whole
        write(self._machine.path(CONFIG_PATH), config)
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


def upstream(name: str, routing: str, servers: list[str], port: int) -> str:
    """Return the part of the configuration that picks one of some engines at a port.

    Without any engine requests are refused at once.
    """
    lines = [f"    server {server} max_fails=0;" for server in servers]
    return UPSTREAM.format(
        name=name,
        method=METHODS[routing],
        servers="\n".join(lines or [f"    server 127.0.0.1:{port} down;"]),
    )


def gate(key: str) -> str:
    """Return the part of the configuration that knows who sends the key, in the proxy's words."""
    pattern = f"~^Bearer {re.escape(key)}$"
    return GATE.format(
        # Its own quotes and backslashes, outside of those of the pattern.
        pattern=pattern.replace("\\", "\\\\").replace('"', '\\"')
    )


def is_divided(ready: list[Route]) -> bool:
    """Whether some engines take short requests alone."""
    return any(route.body_limit for route in ready)


def answering(ready: list[Route]) -> list[Route]:
    """Return the engines that answer: all but those that compute prompts for others."""
    return [route for route in ready if route.part != PROMPTS]
