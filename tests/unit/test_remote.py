"""The laws of the file-system seam, over local disks, S3 and an imitation of HDFS."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.fs as pafs
import pytest

from penstock.base.errors import CheckpointError, OutputError
from penstock.files.hdfs import HdfsFiles, LibHdfs, connect_hdfs
from penstock.files.local_cache import LocalCache
from penstock.files.place import FileSystem, LocalFiles, Place, place_of, sha256
from penstock.files.remote import remote_files, split_uri
from penstock.files.s3 import PUT_BYTES, S3Files, connect_s3
from penstock.sinks.epochs import epoch_name, epochs_in
from penstock.sinks.owners import Claimant, check_owner, claim_folder, end_of, newest_claim

BUCKET = "penstock-tests"


class ImitationOfHdfs(pafs.FileSystemHandler):  # type: ignore[misc]  # pyarrow has no types
    """A folder that moves files as pyarrow does on HDFS, and renames them as a NameNode does."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.inner = pafs.SubTreeFileSystem(str(folder), pafs.LocalFileSystem())
        self.lock = threading.Lock()
        self.answers = True

    def rename(self, old: str, new: str) -> bool:
        with self.lock:
            source, target = self.folder / old[1:], self.folder / new[1:]
            if target.is_dir():
                target = target / source.name
            if not source.exists() or target.exists() or not target.parent.is_dir():
                return False
            source.rename(target)
            return True

    def move(self, old: str, new: str) -> None:
        if not self.rename(old, new):
            self.inner.delete_file(new[1:])
            self.rename(old, new)

    def get_file_info(self, paths: list[str]) -> list[pafs.FileInfo]:
        if not self.answers:
            return [pafs.FileInfo(path, pafs.FileType.NotFound) for path in paths]
        found: list[pafs.FileInfo] = self.inner.get_file_info([path.strip("/") for path in paths])
        return found

    def get_file_info_selector(self, selector: pafs.FileSelector) -> list[pafs.FileInfo]:
        if not self.answers:
            raise OSError("list directory failed")
        below = pafs.FileSelector(selector.base_dir.strip("/"), recursive=selector.recursive)
        with self.lock:  # a NameNode does one thing at a time
            found: list[pafs.FileInfo] = self.inner.get_file_info(below)
        return found

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.inner, name)

    def get_type_name(self) -> str:
        return "imitation"

    def normalize_path(self, path: str) -> str:
        return path

    def create_dir(self, path: str, recursive: bool) -> None:
        (self.folder / path[1:]).mkdir(parents=recursive, exist_ok=True)

    def delete_dir(self, path: str) -> None:
        with self.lock:
            self.inner.delete_dir(path.strip("/"))

    def delete_file(self, path: str) -> None:
        with self.lock:
            self.inner.delete_file(path.strip("/"))

    def open_input_stream(self, path: str) -> Any:
        return self.inner.open_input_stream(path.strip("/"), compression=None)

    def open_output_stream(self, path: str, metadata: Any) -> Any:
        return self.inner.open_output_stream(path.strip("/"), compression=None)

    def copy_file(self, old: str, new: str) -> None:
        raise NotImplementedError

    def delete_dir_contents(self, path: str, missing_dir_ok: bool = False) -> None:
        raise NotImplementedError

    def delete_root_dir_contents(self) -> None:
        raise NotImplementedError

    def open_input_file(self, path: str) -> Any:
        raise NotImplementedError

    def open_append_stream(self, path: str, metadata: Any) -> Any:
        raise NotImplementedError


@pytest.fixture(scope="session")
def server() -> Iterator[Any]:
    from moto.server import ThreadedMotoServer

    running = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    running.start()
    yield running
    running.stop()


@pytest.fixture
def endpoint(server: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    host, port = server.get_host_and_port()
    settings = {
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": str(tmp_path / "none"),
        "AWS_ENDPOINT_URL_S3": f"http://{host}:{port}",
        "PENSTOCK_CACHE_DIR": str(tmp_path / "cache"),
    }
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    return settings["AWS_ENDPOINT_URL_S3"]


@pytest.fixture
def s3(endpoint: str) -> Iterator[S3Files]:
    files = connect_s3(BUCKET)
    files.client.create_bucket(Bucket=BUCKET)
    yield files
    for found in files.client.list_objects_v2(Bucket=BUCKET).get("Contents", []):
        files.client.delete_object(Bucket=BUCKET, Key=found["Key"])
    files.client.close()


@pytest.fixture
def hdfs(tmp_path: Path) -> HdfsFiles:
    (tmp_path / "hdfs").mkdir()
    imitation = ImitationOfHdfs(tmp_path / "hdfs")
    cache = LocalCache(tmp_path / "cache")
    return HdfsFiles(pafs.PyFileSystem(imitation), imitation.rename, cache=cache)


@pytest.fixture(params=["local", "hdfs", "s3"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "local":
        return Place(LocalFiles(), str(tmp_path / "root"))
    if request.param == "hdfs":
        return Place(request.getfixturevalue("hdfs"), "hdfs://name-node:8020/root")
    return Place(request.getfixturevalue("s3"), f"s3://{BUCKET}/root")


# --- the laws ---


def test_what_was_written_is_read(root: Place) -> None:
    (root / "a" / "b.json").write_new(b"hello")
    assert (root / "a" / "b.json").read() == b"hello"
    assert (root / "a" / "b.json").exists()
    assert (root / "a").exists()
    assert not (root / "a" / "b").exists()


def test_nothing_is_ever_replaced(root: Place) -> None:
    place = root / "manifest"
    place.write_new(b"first")
    with pytest.raises(FileExistsError):
        place.write_new(b"second")
    with pytest.raises(FileExistsError):
        place.write_new(b"first")
    assert place.read() == b"first"
    assert [entry.name for entry in root.list()] == ["manifest"]


def test_of_two_writers_one_wins(root: Place) -> None:
    def write(place: Place, data: bytes, start: threading.Barrier) -> bool:
        start.wait(30)
        try:
            place.write_new(data)
        except FileExistsError:
            return False
        return True

    with ThreadPoolExecutor(4) as pool:
        for epoch in range(40):
            start, place = threading.Barrier(4), root / f"{epoch}.json"
            writers = [pool.submit(write, place, b"%d" % i, start) for i in range(4)]
            wins = [i for i, writer in enumerate(writers) if writer.result(60)]
            assert len(wins) == 1
            assert place.read() == b"%d" % wins[0]


def test_a_reader_never_sees_a_part(root: Place) -> None:
    data = os.urandom(4 << 20)
    done = threading.Event()

    def watch() -> set[int]:
        seen = set()
        while not done.is_set():
            seen |= {entry.bytes for entry in root.list() if not entry.name.startswith(".")}
            try:
                seen.add(len((root / "big").read()))
            except FileNotFoundError:
                continue
        return seen

    with ThreadPoolExecutor(1) as pool:
        watching = pool.submit(watch)
        try:
            (root / "big").write_new(data)
        finally:
            done.set()
        assert watching.result(60) <= {len(data)}
    assert (root / "big").read() == data


def test_what_is_missing(root: Place) -> None:
    with pytest.raises(FileNotFoundError):
        (root / "none").read()
    assert (root / "none").list() == []
    (root / "none").delete()
    with pytest.raises(FileNotFoundError):
        root.files.move(f"{root}/none", f"{root}/new")


def test_a_folder_is_listed_one_level_deep_with_sizes(root: Place) -> None:
    (root / "b.arrow").write_new(b"12345")
    (root / "a" / "deep" / "c").write_new(b"1")
    listed = [(entry.name, entry.bytes, entry.folder) for entry in root.list()]
    assert listed == [("a", 0, True), ("b.arrow", 5, False)]
    assert (root / "b.arrow").list() == []


def test_deleted_is_gone_and_its_name_free(root: Place) -> None:
    place = root / "a.arrow"
    place.write_new(b"1")
    assert place.read() == b"1"
    place.delete()
    place.delete()
    assert not place.exists()
    with pytest.raises(FileNotFoundError):
        place.read()
    place.write_new(b"2")
    assert place.read() == b"2"


def test_files_and_folders_move(root: Place) -> None:
    (root / "old" / "x").write_new(b"x")
    (root / "old" / "deep" / "y").write_new(b"y")
    root.files.move(f"{root}/old", f"{root}/far/new")
    root.files.move(f"{root}/far/new/x", f"{root}/z")
    assert (root / "z").read() == b"x"
    assert (root / "far" / "new" / "deep" / "y").read() == b"y"
    assert not (root / "old" / "x").exists()


def test_a_move_replaces_nothing(root: Place) -> None:
    (root / "a").write_new(b"a")
    (root / "b").write_new(b"b")
    with pytest.raises(FileExistsError):
        root.files.move(f"{root}/a", f"{root}/b")
    assert ((root / "a").read(), (root / "b").read()) == (b"a", b"b")


def test_names_are_taken_as_they_are(root: Place) -> None:
    name = "epoch=3 a+b%20#1?x.json.gz"
    (root / name).write_new(b"not compressed")
    assert (root / name).read() == b"not compressed"
    assert [entry.name for entry in root.list()] == [name]


def test_a_folder_is_published_whole_by_many(root: Place) -> None:
    files = {f"part-{i}": f"{root}/.staging/{i}" for i in range(3)}
    if not root.files.moves_folders:
        with pytest.raises(CheckpointError, match="one object"):
            root.files.publish(f"{root}/out/epoch=0", files)
        return
    for epoch in range(20):
        files = {f"part-{i}": f"{root}/.staging/{epoch}-{i}" for i in range(3)}
        for i, staged in enumerate(files.values()):
            root.files.write_new(staged, b"%d" % i)
        with ThreadPoolExecutor(3) as pool:
            folder = f"{root}/out/epoch={epoch}"
            racing = [pool.submit(root.files.publish, folder, files) for _ in range(3)]
            for publisher in racing:
                publisher.result(60)
        listed = (root / "out" / f"epoch={epoch}").list()
        assert [entry.name for entry in listed] == ["part-0", "part-1", "part-2"]
    root.files.sync(f"{root}/out/epoch=0/part-0")


def test_damage_at_the_source_is_reported(root: Place) -> None:
    place = root / "a.arrow"
    digest = place.write_new(b"12345")
    assert place.read_checked(size=5, digest=digest) == b"12345"
    with pytest.raises(CheckpointError, match="instead of 6"):
        place.read_checked(size=6, digest=digest)
    with pytest.raises(CheckpointError, match="another SHA-256"):
        place.read_checked(size=5, digest=sha256(b"54321"))


# --- choosing ---


def test_a_scheme_without_create_if_absent_is_refused() -> None:
    with pytest.raises(CheckpointError, match=r"'gs'; supported: .*s3:.*second driver"):
        place_of("gs://bucket/a")


def test_one_object_for_an_authority_and_process(endpoint: str) -> None:
    first = remote_files(f"s3://{BUCKET}/a")
    assert remote_files(f"s3a://{BUCKET}/b") is first
    assert remote_files("s3://another/b") is not first
    assert place_of(f"s3n://{BUCKET}/a/b/").files is first
    assert split_uri("hdfs:///a/b") == ("hdfs", "", "a/b")


def test_a_forked_child_opens_its_own(s3: S3Files) -> None:
    mine = place_of(f"s3://{BUCKET}/parent")
    mine.write_new(b"1")
    child = os.fork()
    if child == 0:  # no test machinery here: only an exit code may leave
        code = 1
        try:
            place = place_of(f"s3://{BUCKET}/parent")
            if place.files is not mine.files and place.read() == b"1":
                (place.parent / "child").write_new(b"2")
                code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert place_of(f"s3://{BUCKET}/child").read() == b"2"


# --- S3 ---


@dataclass
class Wrapped:
    """A client whose puts are ours to spoil; all else goes through."""

    client: Any
    spoil: Callable[[Any, int, dict[str, Any]], Any]
    puts: int = 0

    def put_object(self, **arguments: Any) -> Any:
        self.puts += 1
        return self.spoil(self.client, self.puts, arguments)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.client, name)


def spoilt(s3: S3Files, spoil: Callable[[Any, int, dict[str, Any]], Any]) -> S3Files:
    """Return the same files behind a spoilt client; the two puts of the probe went well."""

    def after_the_probe(client: Any, count: int, arguments: dict[str, Any]) -> Any:
        if count <= 2:
            return client.put_object(**arguments)
        return spoil(client, count - 2, arguments)

    client = Wrapped(s3.client, after_the_probe)
    return S3Files(client, s3.objects, cache=s3.cache, sleep=lambda seconds: None)


def refusal(status: int, code: str) -> Any:
    from botocore.exceptions import ClientError

    response = {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return ClientError(response, "PutObject")


def lost_answer(kind: str) -> Any:
    from botocore.exceptions import ConnectionClosedError, ReadTimeoutError

    if kind == "timeout":
        return ReadTimeoutError(endpoint_url="http://x")
    if kind == "reset":
        return ConnectionClosedError(endpoint_url="http://x")
    return refusal(500, "InternalError")


@pytest.mark.parametrize("kind", ["timeout", "reset", "500"])
@pytest.mark.parametrize("arrived", [True, False])
def test_a_lost_answer_is_no_defeat(s3: S3Files, kind: str, arrived: bool) -> None:
    def spoil(client: Any, count: int, arguments: dict[str, Any]) -> Any:
        if arrived or count > 1:
            client.put_object(**arguments)
        if count == 1:
            raise lost_answer(kind)

    files = spoilt(s3, spoil)
    files.write_new(f"s3://{BUCKET}/a", b"ours")
    assert s3.read(f"s3://{BUCKET}/a") == b"ours"
    with pytest.raises(FileExistsError):
        s3.write_new(f"s3://{BUCKET}/a", b"ours")


def test_a_lost_answer_and_a_faster_writer_are_a_defeat(s3: S3Files) -> None:
    def spoil(client: Any, count: int, arguments: dict[str, Any]) -> Any:
        if count == 1:
            client.put_object(**{**arguments, "Body": b"theirs"})
            raise lost_answer("timeout")
        client.put_object(**arguments)

    with pytest.raises(FileExistsError):
        spoilt(s3, spoil).write_new(f"s3://{BUCKET}/a", b"ours")
    assert s3.read(f"s3://{BUCKET}/a") == b"theirs"


def test_answers_lost_for_good_are_settled_by_reading(s3: S3Files) -> None:
    def spoil(client: Any, count: int, arguments: dict[str, Any]) -> Any:
        if count == 1:
            client.put_object(**arguments)
        raise lost_answer("timeout")

    spoilt(s3, spoil).write_new(f"s3://{BUCKET}/a", b"ours")
    assert s3.read(f"s3://{BUCKET}/a") == b"ours"


def test_no_answer_at_all_is_an_error_of_the_system(s3: S3Files) -> None:
    def spoil(client: Any, count: int, arguments: dict[str, Any]) -> Any:
        raise lost_answer("timeout")

    with pytest.raises(OSError, match="5 puts failed; it is not known whether"):
        spoilt(s3, spoil).write_new(f"s3://{BUCKET}/a", b"ours")


def test_a_conflict_is_tried_again_but_not_for_ever(s3: S3Files) -> None:
    def twice(client: Any, count: int, arguments: dict[str, Any]) -> Any:
        if count <= 2:
            raise refusal(409, "ConditionalRequestConflict")
        client.put_object(**arguments)

    def always(client: Any, count: int, arguments: dict[str, Any]) -> Any:
        raise refusal(409, "ConditionalRequestConflict")

    spoilt(s3, twice).write_new(f"s3://{BUCKET}/a", b"1")
    with pytest.raises(OSError, match=r"5 puts failed: .*Conflict"):
        spoilt(s3, always).write_new(f"s3://{BUCKET}/b", b"1")


@pytest.mark.parametrize("how", ["ignores", "does not know"])
def test_a_server_without_conditional_puts_is_refused(s3: S3Files, how: str) -> None:
    def put(client: Any, count: int, arguments: dict[str, Any]) -> Any:
        if how == "does not know":
            raise refusal(501, "NotImplemented")
        del arguments["IfNoneMatch"]
        return client.put_object(**arguments)

    files = S3Files(Wrapped(s3.client, put), s3.objects, cache=s3.cache)
    with pytest.raises(CheckpointError, match="If-None-Match"):
        files.write_new(f"s3://{BUCKET}/a", b"1")
    assert s3.list(f"s3://{BUCKET}") == []


def test_a_server_is_probed_once(s3: S3Files) -> None:
    client = Wrapped(s3.client, lambda client, count, arguments: client.put_object(**arguments))
    files = S3Files(client, s3.objects, cache=s3.cache)
    for name in "abc":
        files.write_new(f"s3://{BUCKET}/{name}", b"1")
    assert client.puts == 5
    assert [entry.name for entry in s3.list(f"s3://{BUCKET}")] == ["a", "b", "c"]


def test_errors_of_the_libraries_stay_inside(s3: S3Files, monkeypatch: pytest.MonkeyPatch) -> None:
    nowhere = connect_s3("no-such-bucket")
    with pytest.raises(FileNotFoundError, match="NoSuchBucket"):
        nowhere.write_new("s3://no-such-bucket/a", b"1")
    with pytest.raises(FileNotFoundError):
        nowhere.read("s3://no-such-bucket/a")

    def denied(client: Any, count: int, arguments: dict[str, Any]) -> Any:
        raise refusal(403, "AccessDenied")

    with pytest.raises(PermissionError):
        spoilt(s3, denied).write_new(f"s3://{BUCKET}/a", b"1")
    nowhere.client.close()
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:9")
    down = connect_s3(BUCKET)
    down.sleep = lambda seconds: None
    for use in (down.list, down.exists, down.read, down.delete, lambda p: down.write_new(p, b"1")):
        with pytest.raises(OSError, match=r"127\.0\.0\.1:9"):
            use(f"s3://{BUCKET}/a")


def test_what_s3_takes_no_more_is_refused(s3: S3Files) -> None:
    class Huge(bytes):
        def __len__(self) -> int:
            return PUT_BYTES + 1

    with pytest.raises(CheckpointError, match="one put; allowed: 5368709120"):
        s3.write_new(f"s3://{BUCKET}/a", Huge())


def test_boto3_is_asked_for_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "boto3", None)
    with pytest.raises(CheckpointError, match=r"pip install 'penstock\[s3\]'"):
        connect_s3(BUCKET)
    with pytest.raises(CheckpointError, match="names no bucket"):
        connect_s3("")


@pytest.mark.parametrize("variable", ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"])
def test_both_libraries_ask_the_same_server(
    s3: S3Files, endpoint: str, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.delenv("AWS_ENDPOINT_URL_S3")
    monkeypatch.setenv(variable, endpoint)
    files = connect_s3(BUCKET)
    files.write_new(f"s3://{BUCKET}/a", b"1")
    assert files.read(f"s3://{BUCKET}/a") == b"1"
    files.client.close()


# --- the cache in use ---


def test_a_segment_is_fetched_once(s3: S3Files, endpoint: str) -> None:
    place = place_of(f"s3://{BUCKET}/a.arrow")
    place.write_new(b"segment")
    assert place.read() == b"segment"
    s3.client.delete_object(Bucket=BUCKET, Key="a.arrow")
    assert place.read() == b"segment"


def test_a_manifest_is_fetched_every_time(s3: S3Files) -> None:
    place = Place(s3, f"s3://{BUCKET}/manifest")
    place.write_new(b"1")
    assert place.read() == b"1"
    s3.client.put_object(Bucket=BUCKET, Key="manifest", Body=b"2")
    assert place.read() == b"2"


@pytest.mark.parametrize("damage", [b"", b"short", b"tnemges"])
def test_a_damaged_copy_is_fetched_again(s3: S3Files, damage: bytes) -> None:
    place = Place(s3, f"s3://{BUCKET}/a.arrow")
    digest = place.write_new(b"segment")
    s3.cache.put(place.path, damage)
    assert place.read_checked(size=7, digest=digest) == b"segment"
    assert s3.cache.get(place.path) == b"segment"


# --- HDFS ---


def test_the_imitation_moves_as_pyarrow_does(hdfs: HdfsFiles) -> None:
    """Why `move` is not enough: with it, the second writer wins."""
    careless = HdfsFiles(
        hdfs.files, lambda old, new: hdfs.files.move(old, new) is None, cache=hdfs.cache
    )
    careless.write_new("hdfs://n/a", b"1")
    careless.write_new("hdfs://n/a", b"2")
    assert careless.read("hdfs://n/a") == b"2"


def test_a_lost_answer_of_hdfs_is_no_defeat(hdfs: HdfsFiles) -> None:
    rename = hdfs.rename
    hdfs.rename = lambda old, new: rename(old, new) and False
    hdfs.write_new("hdfs://n/a", b"1")
    assert hdfs.read("hdfs://n/a") == b"1"
    with pytest.raises(FileExistsError):
        hdfs.write_new("hdfs://n/a", b"2")


def test_a_folder_is_not_written_into(hdfs: HdfsFiles) -> None:
    hdfs.write_new("hdfs://n/a/b", b"1")
    with pytest.raises(FileExistsError):
        hdfs.write_new("hdfs://n/a", b"2")
    with pytest.raises(OSError, match="not empty"):
        hdfs.delete("hdfs://n/a")
    hdfs.delete("hdfs://n/a/b")
    hdfs.delete("hdfs://n/a")
    assert not hdfs.exists("hdfs://n/a")


def test_silence_is_not_absence(hdfs: HdfsFiles) -> None:
    hdfs.write_new("hdfs://n/a/b", b"1")
    hdfs.files.handler.answers = False
    for use in (hdfs.exists, hdfs.list, hdfs.delete):
        with pytest.raises(OSError, match="does not answer"):
            use("hdfs://n/a")


def test_a_missing_libhdfs_is_explained(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ARROW_LIBHDFS_DIR", str(tmp_path))
    monkeypatch.setenv("HADOOP_HOME", str(tmp_path))
    with pytest.raises(CheckpointError, match=r"HADOOP_HOME .*CLASSPATH"):
        connect_hdfs("hdfs", "name-node:8020")


def test_libhdfs_is_called_as_its_header_says() -> None:
    calls: list[tuple[Any, ...]] = []

    class Function:
        def __init__(self, name: str, answer: int) -> None:
            self.name, self.answer = name, answer

        def __call__(self, *arguments: Any) -> int:
            calls.append((self.name, *(argument.value for argument in arguments)))
            return self.answer

    class Library:
        hdfsNewBuilder = Function("new", 11)  # noqa: N815  # as in hdfs.h
        hdfsBuilderSetNameNode = Function("node", 0)  # noqa: N815  # as in hdfs.h
        hdfsBuilderSetNameNodePort = Function("port", 0)  # noqa: N815  # as in hdfs.h
        hdfsBuilderConnect = Function("connect", 22)  # noqa: N815  # as in hdfs.h
        hdfsRename = Function("rename", -1)  # noqa: N815  # as in hdfs.h

    assert not LibHdfs(Library, "hdfs://name-node", 8020).rename("/a", "/b")
    assert calls == [
        ("new",),
        ("node", 11, b"hdfs://name-node"),
        ("port", 11, 8020),
        ("connect", 11),
        ("rename", 22, b"/a", b"/b"),
    ]
    Library.hdfsBuilderConnect.answer = 0
    with pytest.raises(OSError, match="cannot be reached"):
        LibHdfs(Library, "hdfs://name-node", 8020)


def test_each_is_a_file_system(hdfs: HdfsFiles, s3: S3Files) -> None:
    """For the type checker: all three have the seam's shape."""
    found: list[FileSystem] = [LocalFiles(), hdfs, s3]
    assert len({files.unique() for files in found}) == 3


class LateFolder(ImitationOfHdfs):
    """A folder that another process makes just after it was not found."""

    def get_file_info_selector(self, selector: pafs.FileSelector) -> list[pafs.FileInfo]:
        try:
            return super().get_file_info_selector(selector)
        except FileNotFoundError:
            (self.folder / selector.base_dir.strip("/")).mkdir()
            raise


def test_a_folder_on_hdfs_that_is_made_while_it_is_listed(tmp_path: Path) -> None:
    (tmp_path / "hdfs").mkdir()
    late = LateFolder(tmp_path / "hdfs")
    files = HdfsFiles(pafs.PyFileSystem(late), late.rename, cache=LocalCache(tmp_path / "cache"))
    assert files.list("hdfs://name-node:8020/new") == []


def test_a_folder_is_claimed_taken_over_and_cleared(root: Place) -> None:
    out = root / "out"
    claim_folder(out, Claimant(owner="first", checkpoint=f"{root}/first"))
    for number in range(3):
        (out / epoch_name(number) / "part-00000.parquet").write_new(b"rows")
    with pytest.raises(OutputError, match=r"epochs \(0 to 2\) of the query of checkpoint .*first"):
        claim_folder(out, Claimant(owner="second", checkpoint=f"{root}/second"))
    claim = claim_folder(
        out, Claimant(owner="second", checkpoint=f"{root}/second", mode="overwrite")
    )
    assert (claim.begin, epochs_in(out)) == (4, {})
    assert newest_claim(out) == claim
    with pytest.raises(OutputError, match="has taken it over"):
        check_owner(out, "first", 3)
    check_owner(out, "second", 4)
    assert end_of(out, "first", 0) == 4
