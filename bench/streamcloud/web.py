"""A figure as files: its JSON, its picture, and an HTML page that stands alone."""

import html
from pathlib import Path

from bench.streamcloud.draw import png, svg
from bench.streamcloud.result import Number, Panel, Result

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem }
svg { max-width: 100%; height: auto }
table { border-collapse: collapse; margin: 1rem 0 }
td, th { border: 1px solid #cbd5e0; padding: 0.15rem 0.6rem; text-align: right }
caption { text-align: left; font-weight: 600; padding: 0.3rem 0 }
code { background: #edf2f7; padding: 0.1rem 0.3rem }
"""


def write_result(result: Result, folder: Path) -> list[Path]:
    """Write a figure's JSON, picture and page; return what was written."""
    folder.mkdir(parents=True, exist_ok=True)
    stem = folder / f"figure-{result.figure}"
    paths = [stem.with_suffix(ending) for ending in (".json", ".png", ".html")]
    paths[0].write_bytes(result.to_json())
    png(result, paths[1])
    paths[2].write_text(page(result))
    return paths


def page(result: Result) -> str:
    """Return a figure as an HTML page that fetches nothing."""
    facts = {**result.parameters, **_machine(result)}
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        f"<title>{html.escape(name_of(result))}</title><style>{_STYLE}</style></head><body>",
        f"<h1>{html.escape(name_of(result))}</h1>",
        f"<p><b>The paper:</b> {html.escape(result.claim)}</p>",
        f"<p><b>Here:</b> {verdict(result)}. {html.escape(result.by)}</p>",
        svg(result),
        *[f"<p>{html.escape(note)}</p>" for note in result.notes],
        f"<p><code>{html.escape(result.command)}</code></p>",
        *[_table(panel) for panel in result.series],
        "<table><caption>parameters</caption>",
        *[
            f"<tr><th>{html.escape(k)}</th><td>{html.escape(str(v))}</td></tr>"
            for k, v in facts.items()
        ],
        "</table></body></html>",
    ]
    return "\n".join(parts) + "\n"


def name_of(result: Result) -> str:
    """Return a figure's name and title."""
    name = "Table I" if result.figure == "table1" else f"Figure {result.figure}"
    return f"{name}: {result.title}"


def verdict(result: Result) -> str:
    """Return in a word or two whether the claim holds."""
    return "it holds" if result.holds else "it does not hold in full"


def _machine(result: Result) -> dict[str, str | float]:
    machine = result.machine
    return {
        "machine": f"{machine.cores} cores, {machine.memory_gib} GiB, {machine.system}",
        "cores that others kept busy": machine.others_cores,
        "seconds in all": result.seconds,
    }


def _table(panel: Panel) -> str:
    places = list(dict.fromkeys(x for series in panel.series for x in series.x))
    values = [dict(zip(series.x, series.y, strict=True)) for series in panel.series]
    head = "".join(f"<th>{html.escape(s.name)}</th>" for s in panel.series)
    lines = [
        f"<tr><th>{_text(x)}</th>"
        + "".join(f"<td>{_text(v.get(x))}</td>" for v in values)
        + "</tr>"
        for x in places
    ]
    caption = f"<caption>{html.escape(panel.title)}, {html.escape(panel.y)}</caption>"
    return f"<table>{caption}<tr><th>{html.escape(panel.x)}</th>{head}</tr>{''.join(lines)}</table>"


def _text(value: Number | str) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return html.escape(value)
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
