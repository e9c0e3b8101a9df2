"""Pictures of results: PNG for pages in the repository, SVG for pages that stand alone.

Law: a picture is a function of the result; nothing is measured here.
"""

import io
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.streamcloud.result import Panel, Result, Series

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

_COLOURS = ("#2b6cb0", "#c05621", "#2f855a", "#6b46c1", "#b83280", "#4a5568")
_DPI = 80


def png(result: Result, path: Path) -> None:
    """Write a picture in few colours, so that it stays small."""
    from matplotlib import pyplot
    from PIL import Image

    canvas, buffer = _canvas(result), io.BytesIO()
    canvas.savefig(buffer, format="png", dpi=_DPI)
    pyplot.close(canvas)
    buffer.seek(0)
    with Image.open(buffer) as picture:
        picture.convert("RGB").quantize(48).save(path, optimize=True)


def svg(result: Result) -> str:
    """Return the picture as an SVG element that stands alone."""
    from matplotlib import pyplot

    canvas, buffer = _canvas(result), io.StringIO()
    canvas.savefig(buffer, format="svg", metadata={"Date": None})
    pyplot.close(canvas)
    text = buffer.getvalue()
    return text[text.index("<svg") :]


def _canvas(result: Result) -> "Canvas":
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    panels = result.series
    columns = 3 if len(panels) % 3 == 0 else min(2, len(panels))
    rows = ceil(len(panels) / columns)
    canvas, axes = pyplot.subplots(
        rows,
        columns,
        figsize=(4.4 * columns, 3.0 * rows + 0.4),
        squeeze=False,
        layout="constrained",
    )
    places = [axis for line in axes for axis in line]
    for axis, panel in zip(places, panels, strict=False):
        _draw(axis, panel)
    for axis in places[len(panels) :]:
        axis.set_visible(False)
    name = f"Figure {result.figure}" if result.figure[0].isdigit() else "Table I"
    canvas.suptitle(f"{name}: {result.title}", fontsize=11)
    return canvas


def _draw(axis: "Axes", panel: Panel) -> None:
    {"line": _line, "step": _line, "bar": _bars, "stack": _stack}[panel.kind](axis, panel)
    axis.set_title(panel.title, fontsize=9)
    axis.set_xlabel(panel.x, fontsize=8)
    axis.set_ylabel(panel.y, fontsize=8)
    axis.tick_params(labelsize=7)
    axis.grid(alpha=0.25)
    axis.set_ylim(bottom=0)
    for name, level in panel.levels.items():
        axis.axhline(level, color="#a0aec0", linewidth=1, linestyle=":")
        axis.text(1.0, level, f" {name}", fontsize=7, transform=axis.get_yaxis_transform())
    for name, at in panel.marks.items():
        axis.axvline(at, color="#a0aec0", linewidth=0.8)
        axis.text(at, 1.0, name, fontsize=6, transform=axis.get_xaxis_transform(), va="top")
    if len(panel.series) > 1:
        axis.legend(fontsize=7, framealpha=0.6)


def _style(number: int, series: Series) -> dict[str, Any]:
    colour = _COLOURS[number % len(_COLOURS)]
    return {"color": colour, "label": series.name, "linestyle": "--" if series.dashed else "-"}


def _line(axis: "Axes", panel: Panel) -> None:
    for number, series in enumerate(panel.series):
        known = [(x, y) for x, y in zip(series.x, series.y, strict=True) if y is not None]
        marker = "o" if len(known) <= 12 else None
        style = _style(number, series) | {"marker": marker, "markersize": 4, "linewidth": 1.4}
        if panel.kind == "step":
            style |= {"drawstyle": "steps-post", "marker": None}
        axis.plot([x for x, _ in known], [y for _, y in known], **style)


def _bars(axis: "Axes", panel: Panel) -> None:
    width = 0.8 / len(panel.series)
    for number, series in enumerate(panel.series):
        places = [i + width * number for i in range(len(series.x))]
        axis.bar(places, [y or 0 for y in series.y], width, label=series.name,
                 color=_COLOURS[number % len(_COLOURS)])  # fmt: skip
    middle = 0.4 - width / 2
    names = [str(x) for x in panel.series[0].x]
    axis.set_xticks([i + middle for i in range(len(names))], names)


def _stack(axis: "Axes", panel: Panel) -> None:
    names = [str(x) for x in panel.series[0].x]
    base = [0.0] * len(names)
    for number, series in enumerate(panel.series):
        height = [float(y or 0) for y in series.y]
        colour = "#e2e8f0" if series.name == "idle" else _COLOURS[number % len(_COLOURS)]
        axis.bar(names, height, 0.6, bottom=base, label=series.name, color=colour)
        base = [low + more for low, more in zip(base, height, strict=True)]
