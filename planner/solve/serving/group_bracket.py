"""What is known of the fewest groups of a layout that pass the simulation."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from msgspec import Struct

if TYPE_CHECKING:
    from planner.solve.serving.sizing import LayoutRejection

GROWTH_DIVISOR: Final = 8  # a fleet that fails grows by one group in so many


class GroupBracket(Struct):
    """Bounds of the fewest groups of a layout that pass; both narrow with each judgement.

    too_few       groups that do not pass
    enough        groups that pass, None until some do
    first_enough  the first groups that were found to pass
    rejection     what `too_few` groups miss, None while only formulas have ruled them out, or
                  while it is untold
    is_untold     whether `too_few` groups were judged and nobody has asked what they miss

    Delays fall with groups, so that fewer groups than some that do not pass do not either.
    """

    too_few: int
    enough: int | None = None
    first_enough: int | None = None
    rejection: LayoutRejection | None = None
    is_untold: bool = False

    @property
    def is_closed(self) -> bool:
        """Whether `enough` is the fewest groups."""
        return self.enough == self.too_few + 1

    def next_groups(self, estimate: int | None, ceiling: float) -> int | None:
        """Return the groups to judge next, None when no number up to `ceiling` is open.

        A ceiling is judged first: most layouts miss it, and fewer groups miss what it misses.
        `estimate` is the fewest groups by formula.
        """
        if self.is_closed or self.too_few >= ceiling:
            return None
        if self.enough is not None and self.enough <= ceiling:
            return self._fewer(self.enough, estimate)
        if ceiling < math.inf:
            return int(ceiling)
        if estimate is not None and self.too_few < estimate:
            return estimate
        return self.too_few + max(1, self.too_few // GROWTH_DIVISOR)

    def _fewer(self, enough: int, estimate: int | None) -> int:
        """Return a number below one that passes.

        First what formulas say, then numbers below that in growing steps, because formulas are
        close. What lies above it is halved.
        """
        start = estimate or self.first_enough or enough
        middle = (self.too_few + enough) // 2
        if start <= self.too_few:
            return middle
        if start < enough:
            return start
        return max(middle, enough - max(1, start - enough))

    def accept(self, groups: int) -> None:
        """Note that so many groups pass."""
        self.enough = groups
        self.first_enough = self.first_enough or groups

    def reject(self, groups: int) -> None:
        """Note that so many groups do not pass; what they miss is still to be told."""
        self.too_few, self.rejection, self.is_untold = groups, None, True

    def tell(self, rejection: LayoutRejection | None) -> None:
        """Note what `too_few` groups miss."""
        self.rejection, self.is_untold = rejection, False
