"""Drawing a report: a PNG or SVG picture, or a page of HTML with the picture and the table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from html import escape
from importlib.util import find_spec
from io import BytesIO, StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.pipeline.errors import CannotRun
from headrace.pipeline.reports.report import Chart, Period, told
from headrace.printing import install

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PICTURES = (".png", ".svg", ".html")
_SERIES_MAX = 10
"""More than these could not be told apart; the rest is drawn as one."""
_OTHERS = "others"
_SIZE_INCHES = (10, 5)
_LENGTHS = {
    "minute": timedelta(minutes=1),
    "hour": timedelta(hours=1),
    "day": timedelta(days=1),
    "week": timedelta(weeks=1),
}
_BAR_SHARE = 0.8
"""Of its period that a bar is wide."""
_PERIODS_MIN = 8
"""Periods that an axis shows, however few there are."""
_ROOM_SHARE = 0.03
"""Of the axis that is empty at either end."""
_TABLE_ROWS_MAX = 1000
_PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>{title}</title>
<style>
 body {{ font: 15px/1.4 system-ui, sans-serif; margin: 2rem auto; max-width: 64rem }}
 svg {{ width: 100%; height: auto }}
 table {{ border-collapse: collapse; width: 100% }}
 td, th {{ border-bottom: 1px solid #ddd; padding: .25rem .5rem; text-align: left }}
</style>
<h1>{title}</h1>
{picture}
<table><thead><tr>{heads}</tr></thead><tbody>
{rows}
</tbody></table>
{rest}
</html>
"""

Row = Mapping[str, Any]


def check(path: Path) -> None:
    """Refuse what cannot be drawn before any work is done."""
    if path.suffix not in PICTURES:
        raise CannotRun(f"a chart is a file in {', '.join(PICTURES)}, not {path.name}")
    if find_spec("matplotlib") is None:
        raise CannotRun(f"charts need matplotlib: {install('charts')}")


def draw(chart: Chart, rows: Sequence[Row], period: Period, path: Path, nothing: str = "") -> None:
    """Draw the rows, or say why there are none."""
    figure = render(chart, rows, period, nothing)
    if path.suffix == ".html":
        path.write_text(_page(chart, rows, figure, nothing))
    else:
        picture = BytesIO()
        figure.savefig(picture, format=path.suffix[1:], dpi=120)
        path.write_bytes(picture.getvalue())


def sums(chart: Chart, rows: Sequence[Row]) -> dict[str, dict[Any, float]]:
    """What is drawn: for each series, largest first, the sum at each x; for lines, the most."""
    found: dict[str, dict[Any, float]] = {}
    for row in rows:
        if row[chart.y] is None:
            continue
        points = found.setdefault(str(row[chart.series]), {})
        _add(chart, points, row[chart.x], float(row[chart.y]))
    ranked = sorted(found, key=lambda name: (-sum(found[name].values()), name))
    if len(ranked) <= _SERIES_MAX:
        return {name: found[name] for name in ranked}
    others: dict[Any, float] = {}
    for name in ranked[_SERIES_MAX:]:
        for x, y in found[name].items():
            _add(chart, others, x, y)
    return {name: found[name] for name in ranked[:_SERIES_MAX]} | {_OTHERS: others}


def _add(chart: Chart, points: dict[Any, float], x: Any, y: float) -> None:
    points[x] = points.get(x, 0.0) + y if chart.kind == "bars" else max(points.get(x, y), y)


def render(chart: Chart, rows: Sequence[Row], period: Period, nothing: str = "") -> Figure:
    """The picture: of the rows, or of the words that say why there are none."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=_SIZE_INCHES, layout="constrained")
    axes = figure.subplots()
    axes.set_title(chart.title)
    series = sums(chart, rows)
    if not series:
        axes.set_axis_off()
        axes.text(0.5, 0.5, nothing or "nothing to draw", ha="center", va="center", wrap=True)
        return figure
    places = sorted({x for points in series.values() for x in points})
    if chart.kind == "bars":
        widths = [(_after(x, period) - x) * _BAR_SHARE for x in places]
        bottoms = dict.fromkeys(places, 0.0)
        for name, points in series.items():
            heights = [points.get(x, 0.0) for x in places]
            axes.bar(
                places,  # type: ignore[arg-type,unused-ignore]
                heights,
                widths,  # type: ignore[arg-type,unused-ignore]
                [bottoms[x] for x in places],
                align="edge",
                label=name,
            )
            for x, height in zip(places, heights, strict=True):
                bottoms[x] += height
    else:
        for name, points in series.items():
            at = sorted(points)
            axes.plot(at, [points[x] for x in at], marker="o", markersize=4, label=name)
    _set_times(axes, places, period)
    axes.set_xlabel("UTC")
    axes.set_ylabel(chart.y_title)
    # The margins that are drawn by themselves are of the values' range, which may be small.
    top = max(axes.dataLim.ymax, 0.0) * (1 + _ROOM_SHARE)
    axes.set_ylim(0, top or 1)
    axes.legend(loc="upper left")
    return figure


def _after(at: datetime, period: Period) -> datetime:
    """When the period that begins then is over."""
    if period != "month":
        return at + _LENGTHS[period]
    return at.replace(year=at.year + at.month // 12, month=at.month % 12 + 1)


def _set_times(axes: Axes, places: Sequence[datetime], period: Period) -> None:
    """An axis of some periods at least: one alone would have no scale."""
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

    first, last = places[0], _after(places[-1], period)
    room = max(
        (last - first) * _ROOM_SHARE, (_PERIODS_MIN * (last - places[-1]) - (last - first)) / 2
    )
    axes.set_xlim(first - room, last + room)  # type: ignore[arg-type,unused-ignore]
    locator = AutoDateLocator(tz=UTC)  # type: ignore[no-untyped-call,unused-ignore]
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(
        ConciseDateFormatter(locator, tz=UTC)  # type: ignore[no-untyped-call,unused-ignore]
    )


def _page(chart: Chart, rows: Sequence[Row], figure: Figure, nothing: str) -> str:
    picture = StringIO()
    figure.savefig(picture, format="svg")
    drawn = picture.getvalue()
    names = list(rows[0]) if rows else []
    shown = rows[:_TABLE_ROWS_MAX]
    left = len(rows) - len(shown)
    more = f"<p>… and {left:,} more rows.</p>" if left else ""
    return _PAGE.format(
        title=escape(chart.title),
        picture=drawn[drawn.index("<svg") :],
        heads="".join(f"<th>{escape(name)}</th>" for name in names),
        rows="\n".join(
            "<tr>" + "".join(f"<td>{escape(told(row[name]))}</td>" for name in names) + "</tr>"
            for row in shown
        ),
        rest=f"<p>{escape(nothing)}</p>" if nothing else more,
    )
