"""The version of tonnage: a constant, because reading package metadata costs start-up time."""

VERSION = "0.1.0"
