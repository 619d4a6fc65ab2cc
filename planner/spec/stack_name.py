"""What a stack may be called: its name becomes that of files, and of things in every cloud."""

from __future__ import annotations

import re
from typing import Final

LONGEST_NAME: Final = 40
# Clouds refuse these in names of buckets: AWS the first three, Google Cloud the next, and Azure
# the last, whose names lose their hyphens.
_AZURE_STARTS: Final = "|".join("-?".join(word) for word in ("login", "xbox"))
_AZURE_WORDS: Final = "|".join(
    "-?".join(word) for word in ("microsoft", "windows")
)
_REFUSED_WORDS: Final = (
    rf"(?!xn--|sthree-|amzn-s3-demo-|goog|{_AZURE_STARTS})"
    rf"(?!.*(g[o0][o0]gle|{_AZURE_WORDS}))"
)
# Google Cloud wants a letter first, and no name ends with a hyphen.
STACK_NAME_PATTERN: Final = (
    rf"{_REFUSED_WORDS}[a-z]([a-z0-9-]{{0,38}}[a-z0-9])?"
)
STACK_NAME_HINT: Final = (
    "a letter of a-z first, then a-z, 0-9 and inner hyphens, at most 40 characters; "
    "clouds refuse xn--, goog, google, login, xbox, microsoft and windows"
)
STACK_NAME: Final = re.compile(STACK_NAME_PATTERN, re.ASCII)
