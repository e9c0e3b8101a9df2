"""The local cache of remote files: bounded, shared, never fatal."""

from __future__ import annotations

import os
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest

from penstock.files.local_cache import CACHE_BYTES, LocalCache


def used(cache: LocalCache) -> int:
    return sum(path.stat().st_size for path in cache.folder.iterdir())


def test_a_copy_is_kept_until_it_is_dropped(tmp_path: Path) -> None:
    cache = LocalCache(tmp_path / "cache")
    assert cache.get("s3://b/a") is None
    cache.put("s3://b/a", b"1")
    assert cache.get("s3://b/a") == b"1"
    assert cache.drop("s3://b/a")
    assert not cache.drop("s3://b/a")
    assert cache.get("s3://b/a") is None
    assert cache.folder.stat().st_mode & 0o777 == 0o700


def test_the_least_recently_used_go_first(tmp_path: Path) -> None:
    cache = LocalCache(tmp_path, limit_bytes=30)
    for age, name in enumerate("abc"):
        cache.put(name, name.encode() * 10)
        os.utime(cache._path(name), ns=(age, age))
    assert cache.get("a") is not None
    cache.put("d", b"d" * 10)
    assert [name for name in "abcd" if cache.get(name)] == ["a", "c", "d"]
    assert used(cache) == 30


def test_what_alone_is_too_large_is_not_kept(tmp_path: Path) -> None:
    cache = LocalCache(tmp_path, limit_bytes=30)
    cache.put("small", b"1")
    cache.put("large", b"1" * 31)
    assert cache.get("large") is None
    assert cache.get("small") == b"1"


def test_the_remains_of_a_crash_are_collected(tmp_path: Path) -> None:
    cache = LocalCache(tmp_path, limit_bytes=30)
    (tmp_path / ".left.tmp").write_bytes(b"x" * 25)
    os.utime(tmp_path / ".left.tmp", ns=(0, 0))
    cache.put("a", b"1" * 10)
    assert cache.get("a") == b"1" * 10
    assert used(cache) == 10


def fill(folder: Path, worker: int) -> int:
    cache = LocalCache(folder, limit_bytes=50_000)
    wrong = 0
    for i in range(200):
        name = f"{(worker * 7 + i) % 20}"
        cache.put(name, name.encode() * 2000)
        wrong += cache.get(name) not in (None, name.encode() * 2000)
    return wrong


@pytest.mark.slow
def test_several_processes_share_it(tmp_path: Path) -> None:
    with ProcessPoolExecutor(3, mp_context=get_context("spawn")) as pool:
        assert sum(pool.map(fill, [tmp_path] * 3, range(3))) == 0
    assert used(LocalCache(tmp_path)) <= 50_000


def test_a_disk_that_refuses_is_a_miss(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    cache = LocalCache(tmp_path / "file")
    cache.put("a", b"1")
    assert cache.get("a") is None


def test_a_folder_of_another_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "theirs")
    cache = LocalCache(tmp_path / "link")
    cache.put("a", b"1")
    assert list((tmp_path / "theirs").iterdir()) == []


def test_the_environment_says_where_and_how_much(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("PENSTOCK_CACHE_BYTES", "123")
    cache = LocalCache.from_environment()
    assert (cache.folder, cache.limit_bytes) == (tmp_path, 123)
    monkeypatch.delenv("PENSTOCK_CACHE_DIR")
    monkeypatch.delenv("PENSTOCK_CACHE_BYTES")
    cache = LocalCache.from_environment()
    assert cache.folder.name == f"penstock-cache-{os.getuid()}"
    assert cache.limit_bytes == CACHE_BYTES
