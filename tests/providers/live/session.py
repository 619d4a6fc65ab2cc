"""A session of AWS for tests, which ask its services at an address of this machine."""

from __future__ import annotations

import os
from threading import Lock
from typing import Any, ClassVar

import boto3.session
from botocore.config import Config

from tests.providers.shapes.wire import CORE


class SharedSession:
    """Opens each client of AWS once: to open one takes longer than a test."""

    _lock = Lock()
    # The models of services are read once, by all who need them.
    _core = boto3.session.Session(botocore_session=CORE)
    _clients: ClassVar[dict[tuple[object, ...], Any]] = {}

    def __init__(self, region_name: str) -> None:
        self._region = region_name

    def get_credentials(self) -> Any:
        return self._core.get_credentials()

    def client(self, name: str, config: Config) -> Any:
        """Return the client of a service, one for each time that it may wait."""
        wait_s = config.read_timeout
        key = (os.environ["AWS_ENDPOINT_URL"], name, self._region, wait_s)
        # The threads of a question for a region open clients at once.
        with self._lock:
            if key not in self._clients:
                self._clients[key] = self._core.client(
                    name, region_name=self._region, config=config
                )
            return self._clients[key]
