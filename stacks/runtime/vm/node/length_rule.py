"""The rule by which the proxy divides requests: the bytes of a body, which stand in its head.

A short body goes to the engines for short requests. A long one, one whose length nobody states,
and what has no body go to the engines that take everything.
"""

from __future__ import annotations

ENGINES = "engines"
SHORT_ENGINES = "short_engines"
# Numbers that are not compared: nginx knows patterns alone.
MAP = """  map $content_length $sized_engines {{
    default {engines};
    "~^(?:{pattern})$" {short};
  }}
"""
ROUTE = f"proxy_pass http://{ENGINES};"
# What an engine for short requests refuses as too long for its context, or cannot answer because
# it has just ended, an engine that takes everything answers.
DIVIDED_ROUTE = """proxy_pass http://$sized_engines;
      proxy_intercept_errors on;
      error_page 400 413 502 = @long;"""
LONG_PATH = f"""
    location @long {{ {ROUTE} }}"""


def length_map(body_limit: int) -> str:
    """Return the part of the configuration that picks engines by the bytes of a body."""
    return MAP.format(
        engines=ENGINES, short=SHORT_ENGINES, pattern=up_to_pattern(body_limit)
    )


def divided_paths(paths: str) -> str:
    """Return what clients reach of the engines, where the length of a body picks them."""
    return paths.replace(ROUTE, DIVIDED_ROUTE) + LONG_PATH


def up_to_pattern(most: int) -> str:
    """Return a regular expression of the whole numbers from 0 to `most`, without leading zeros.

    Those with fewer digits, then those that share the first digits with `most` and have a smaller
    one next, then `most` itself.
    """
    digits = str(most)
    choices = [_any_digits(count) for count in range(1, len(digits))]
    for place, digit in enumerate(digits):
        # A number does not begin with a zero, but for zero itself.
        least = 0 if place or len(digits) == 1 else 1
        if int(digit) > least:
            rest = len(digits) - place - 1
            choices.append(
                f"{digits[:place]}[{least}-{int(digit) - 1}]" + "[0-9]" * rest
            )
    return "|".join([*choices, digits])


def _any_digits(count: int) -> str:
    first = "[0-9]" if count == 1 else "[1-9]"
    return first + "[0-9]" * (count - 1)
