"""The pages of the applications say what the code is, how it is planned and what comes out."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.pages import PAGES, written


@pytest.mark.slow
@pytest.mark.parametrize("page", sorted(PAGES.glob("*.md")), ids=lambda page: page.stem)
def test_pages_are_in_step_with_the_code(page: Path) -> None:
    text = page.read_text()
    assert text.count("<!-- plan:") >= 1
    assert written(text) == text, "the page has changed: run `python -m bench.pages`"


def test_there_is_a_page_for_each_application() -> None:
    assert {page.stem for page in PAGES.glob("*.md")} == {
        "cdr", "exchange", "network", "nexmark", "tpcxbb",
    }  # fmt: skip
