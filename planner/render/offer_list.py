"""The page of offers: what is bought, where and for how much; each line fits a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from planner.render.fitting import fitted
from planner.render.page import LINE_WIDTH, PageTable, Paragraph

if TYPE_CHECKING:
    from planner.render.listing import Rows
    from planner.render.page import Page

# By what offers are ranked: the column of their rows, and its title on the page.
RANKED_BY: Final = {
    "gpu": ("usd_gpu", "a GPU"),
    "hour": ("usd_hour", ""),
    "memory": ("usd_gib", "a GiB"),
    "tflop": ("usd_tflop", "a TFLOP/s"),
    "bandwidth": ("usd_gb_s", "a GB/s"),
}
# Digits after the point, by the least price that they are enough for.
PRICE_DIGITS: Final = ((1.0, 2), (0.01, 4), (0.0, 6))


def offers_page(rows: Rows, price_unit: str) -> Page:
    """Return the page of rows of offers, with the price that they are ranked by."""
    column, title = RANKED_BY[price_unit]
    titles = ["cloud", "region", "type", "accelerators", "purchase", ">USD/h"]
    cells = [
        [
            row["cloud"],
            row["region"],
            row["type"],
            row["accelerators"],
            _purchase_text(row),
            _short_price(row["usd_hour"]),
        ]
        for row in rows
    ]
    if title:
        titles.append(f">{title}")
        for row, line in zip(rows, cells, strict=True):
            line.append(_short_price(row[column]))
    table = fitted(PageTable(tuple(titles), tuple(map(tuple, cells))))
    return table, Paragraph(f"  {_age_text(rows)}", "dim", LINE_WIDTH)


def _purchase_text(row: dict[str, str]) -> str:
    """Return how an offer is bought, and of which form a commitment is."""
    form = row["form"].replace("_", " ")
    return f"{row['purchase']}, {form}" if form else row["purchase"]


def _short_price(usd_text: str) -> str:
    """Return a price with cents, or with more digits of a small one."""
    if not usd_text:
        return ""
    usd = float(usd_text)
    digits = next(count for least, count in PRICE_DIGITS if usd >= least)
    return f"{usd:.{digits}f}"


def _age_text(rows: Rows) -> str:
    dates = sorted(row["as_of"] for row in rows if row["as_of"][:1].isdigit())
    texts = []
    if dates:
        texts.append(
            f"of {dates[0]}"
            if dates[0] == dates[-1]
            else f"of {dates[0]} to {dates[-1]}"
        )
    if len(dates) < len(rows):
        texts.append(f"{len(rows) - len(dates)} of an unknown day")
    old = sum(row["old"] == "yes" for row in rows)
    if old:
        texts.append(f"{old} of them old")
    return f"prices {', '.join(texts)}; --full has the day of each"
