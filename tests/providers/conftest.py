"""The fake service of three clouds, for the tests of this folder."""

from tests.loopback import cloud

__all__ = ["cloud"]
