"""The page of results, `docs/streamcloud.md`, from the JSON of the figures.

Law: the page is what `python -m bench.streamcloud.page` writes, and a test compares them; every
number on it is in the JSON of its figure.
"""

from collections.abc import Sequence
from pathlib import Path

from bench.streamcloud.registry import FIGURES
from bench.streamcloud.result import Result
from bench.streamcloud.web import name_of, verdict

DOCS = Path(__file__).resolve().parents[2] / "docs"
FOLDER = DOCS / "streamcloud"
PAGE = DOCS / "streamcloud.md"
_COMMAND = "penstock bench streamcloud --figure all --out docs/streamcloud"
_INTRO = f"""\
# StreamCloud's evaluation, on one machine

The paper ran on a hundred machines with 320 cores. These are the same experiments at the size of
one machine, each next to the paper's claim: whether it holds here, and by how much. They run real
queries on Spark in local mode. An epoch takes one file, so the load of an epoch is what its file
holds; an instance is one thread. Where the paper needs ten machines or more, an instance may use a
small part of a core, and utilisation is a share of that part.

```bash
{_COMMAND}   # all of them, about half an hour
penstock bench streamcloud --figure 20b --quick            # one, in a short form that shows the way
python -m bench.streamcloud.page                           # this page, from the JSON files
```

Each run writes JSON, a PNG and an HTML page that stands alone."""


def read_results(folder: Path = FOLDER) -> list[Result]:
    """Return the results of a folder, in the order of the paper."""
    paths = [folder / f"figure-{name}.json" for name in FIGURES]
    return [Result.read(path) for path in paths if path.exists()]


def written(results: Sequence[Result]) -> str:
    """Return the page of some results."""
    parts = [_INTRO, _machine(results), _overview(results), *[_section(r) for r in results]]
    return "\n\n".join(part for part in parts if part) + "\n"


def _machine(results: Sequence[Result]) -> str:
    if not results:
        return "No figure has been measured yet."
    machine = results[0].machine
    busiest = max(result.machine.others_cores for result in results)
    return (
        f"Measured on {machine.cores} cores and {machine.memory_gib} GiB, Python "
        f"{machine.python}. Other processes kept at most {busiest} cores busy meanwhile. All "
        "numbers are those of the JSON files in [streamcloud/](streamcloud/)."
    )


def _overview(results: Sequence[Result]) -> str:
    if not results:
        return ""
    lines = [f"| [{name_of(r)}](#{_anchor(r)}) | {'yes' if r.holds else 'no'} |" for r in results]
    return "\n".join(["| figure | the claim holds |", "|---|---|", *lines])


def _section(result: Result) -> str:
    short = " These are the numbers of the short form." if result.quick else ""
    facts = "; ".join(f"{name}: {value}" for name, value in result.parameters.items())
    return "\n\n".join(
        [
            f"## {name_of(result)}",
            f"**The paper:** {result.claim}",
            f"**Here {verdict(result)}.** {result.by}{short}",
            f"![{name_of(result)}](streamcloud/figure-{result.figure}.png)",
            *result.notes,
            f"`{result.command}` ({result.seconds:.0f} s). {facts}.",
        ]
    )


def _anchor(result: Result) -> str:
    kept = [c for c in name_of(result).lower() if c.isalnum() or c in " -"]
    return "".join(kept).replace(" ", "-")


def main() -> None:
    """Write the page anew."""
    PAGE.write_text(written(read_results()))


if __name__ == "__main__":
    main()
