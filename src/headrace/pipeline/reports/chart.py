"""Drawing a report: a PNG or SVG picture, or a page of HTML with the picture and the table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC
from html import escape
from importlib.util import find_spec
from io import BytesIO, StringIO
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.pipeline.errors import JobFailed
from headrace.pipeline.reports.report import Chart, told

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PICTURES = (".png", ".svg", ".html")
_SERIES_MAX = 10
"""More than these could not be told apart; the rest is drawn as one."""
_OTHERS = "others"
_SIZE_INCHES = (10, 5)
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
        raise JobFailed(f"a chart is a file in {', '.join(PICTURES)}, not {path.name}")
    if find_spec("matplotlib") is None:
        raise JobFailed("charts need matplotlib: `pip install 'headrace[charts]'`")


def draw(chart: Chart, rows: Sequence[Row], path: Path) -> None:
    figure = _figure(chart, rows)
    if path.suffix == ".html":
        path.write_text(_page(chart, rows, figure))
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


def _figure(chart: Chart, rows: Sequence[Row]) -> Figure:
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
    from matplotlib.figure import Figure

    figure = Figure(figsize=_SIZE_INCHES, layout="constrained")
    axes = figure.subplots()
    series = sums(chart, rows)
    places = sorted({x for points in series.values() for x in points})
    if chart.kind == "bars":
        gaps = [(b - a).total_seconds() for a, b in pairwise(places)]
        width_days = min(gaps, default=86_400.0) * 0.8 / 86_400
        bottoms = dict.fromkeys(places, 0.0)
        for name, points in series.items():
            heights = [points.get(x, 0.0) for x in places]
            axes.bar(places, heights, width_days, [bottoms[x] for x in places], label=name)
            for x, height in zip(places, heights, strict=True):
                bottoms[x] += height
    else:
        for name, points in series.items():
            at = sorted(points)
            axes.plot(at, [points[x] for x in at], marker=".", label=name)
    locator = AutoDateLocator(tz=UTC)  # type: ignore[no-untyped-call,unused-ignore]
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(
        ConciseDateFormatter(locator, tz=UTC)  # type: ignore[no-untyped-call,unused-ignore]
    )
    axes.set_title(chart.title)
    axes.set_ylabel(chart.y_title)
    axes.set_ylim(bottom=0)
    if series:
        axes.legend(loc="upper left")
    return figure


def _page(chart: Chart, rows: Sequence[Row], figure: Figure) -> str:
    picture = StringIO()
    figure.savefig(picture, format="svg")
    drawn = picture.getvalue()
    names = list(rows[0]) if rows else []
    shown = rows[:_TABLE_ROWS_MAX]
    left = len(rows) - len(shown)
    return _PAGE.format(
        title=escape(chart.title),
        picture=drawn[drawn.index("<svg") :],
        heads="".join(f"<th>{escape(name)}</th>" for name in names),
        rows="\n".join(
            "<tr>" + "".join(f"<td>{escape(told(row[name]))}</td>" for name in names) + "</tr>"
            for row in shown
        ),
        rest=f"<p>… and {left:,} more rows.</p>" if left else "",
    )
