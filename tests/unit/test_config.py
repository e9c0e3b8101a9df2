"""Settings: from texts to typed fields, and what is said of those that do not fit."""

from __future__ import annotations

import pytest

from penstock.base.config import Config
from penstock.base.errors import ConfigError


def test_texts_become_the_types_of_the_fields() -> None:
    config = Config.from_settings(
        {
            "spark.penstock.buckets": " 64 ",
            "spark.penstock.fsync": "False",
            "spark.penstock.sparkFolder": "12",
            "spark.sql.shuffle.partitions": "many",
        },
        instances=3,
        strategy=None,
    )
    assert config == Config(buckets=64, fsync=False, sparkFolder="12", instances=3)


@pytest.mark.parametrize(
    ("name", "text", "allowed"),
    [
        ("buckets", "many", "a whole number"),
        ("buckets", "1.5", "a whole number"),
        ("buckets", "", "a whole number"),
        ("buckets", "0", "1 or more"),
        ("fsync", "yes", "true or false"),
        ("strategy", "guess", "operator-set-cloud, operator-cloud, query-cloud"),
    ],
)
def test_a_setting_that_does_not_fit_is_told(name: str, text: str, allowed: str) -> None:
    with pytest.raises(ConfigError, match=f"spark.penstock.{name}=.*; allowed: {allowed}"):
        Config.from_settings({f"spark.penstock.{name}": text})
