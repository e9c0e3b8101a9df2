"""Files on S3, or on a server that speaks its protocol.

Law: `write_new` makes a name once, with one conditional put. The answer to a put may be lost, so
after a doubtful one the name being taken is not a defeat until the bytes there are not ours;
callers' bytes are unique, since manifests carry their writer and segments a name of their own.

Objects are read and listed through `pyarrow.fs`; it has no conditional put (apache/arrow#44281)
and leaves empty marker objects where it deletes, so boto3 writes, copies and deletes.
"""

from __future__ import annotations

import errno
import logging
import os
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.fs as pafs

from penstock.base.errors import CheckpointError
from penstock.files.disk import Entry
from penstock.files.local_cache import CachedReads, LocalCache
from penstock.files.remote import entry_of, split_uri

_LOG = logging.getLogger(__name__)
PUT_BYTES = 5 << 30
"""The most that S3 takes in one put; parts would need a conditional completion."""
WAITS = (0.0, 0.1, 0.3, 0.9, 2.7)
"""Seconds before each attempt of a put."""


class S3Files(CachedReads):
    """The objects of one bucket as files; a folder is a common prefix and makes nothing."""

    moves_folders = False

    def __init__(
        self,
        client: Any,
        objects: pafs.FileSystem,
        *,
        cache: LocalCache | None = None,
        sleep: Callable[[float], None] = time.sleep,
        unique: Callable[[], str] = lambda: uuid.uuid4().hex,
    ) -> None:
        """Use a boto3 client that does not retry by itself, and pyarrow's view of the same."""
        self.client = client
        self.objects = objects
        self.cache = cache or LocalCache.from_environment()
        self.sleep = sleep
        self.unique = unique
        self._probed = False
        self._probing = threading.Lock()

    def write_new(self, path: str, data: bytes) -> None:
        """Write an object that must not exist yet."""
        if len(data) > PUT_BYTES:
            reason = f"{len(data)} bytes are more than S3 takes in one put; allowed: {PUT_BYTES}"
            raise CheckpointError(path=path, reason=reason)
        self._probe(path)
        self._put(path, data)

    def _probe(self, path: str) -> None:
        """See once that the server refuses to replace an object when asked to."""
        with self._probing:
            if self._probed:
                return
            name = f"{path.rpartition('/')[0]}/.penstock-probe-{self.unique()}"
            try:
                if self._replaces(name):
                    reason = (
                        "this server ignores If-None-Match on a put, or does not know it; it "
                        "cannot keep a checkpoint, since a second driver could replace what the "
                        "first wrote"
                    )
                    raise CheckpointError(path=path, reason=reason)
            finally:
                with _as_os_errors(name):
                    bucket, key = _bucket_and_key(name)
                    self.client.delete_object(Bucket=bucket, Key=key)
            self._probed = True

    def _replaces(self, name: str) -> bool:
        try:
            self._put(name, b"1")
            self._put(name, b"2")
        except FileExistsError:
            return False
        except OSError as error:
            if error.errno != errno.ENOSYS:
                raise
        return True

    def _put(self, path: str, data: bytes) -> None:
        from botocore.exceptions import ClientError, HTTPClientError
        from botocore.exceptions import ConnectionError as BotoConnectionError

        bucket, key = _bucket_and_key(path)
        doubtful, last = False, ""
        for seconds in WAITS:
            if last:
                _LOG.info("%s: a put failed and is tried again: %s", path, last)
            self.sleep(seconds)
            try:
                with _as_os_errors(path, but=(ClientError, HTTPClientError, BotoConnectionError)):
                    self.client.put_object(Bucket=bucket, Key=key, Body=data, IfNoneMatch="*")
                return
            except ClientError as error:
                status = _status(error)
                if status == 412:
                    break
                if status not in (409, 429) and (status < 500 or status == 501):
                    raise _os_error(error, path) from None
                doubtful, last = doubtful or status >= 500, str(error)
            except (HTTPClientError, BotoConnectionError) as error:
                doubtful, last = True, str(error)
        else:
            if doubtful and self._holds(path, data):
                return
            doubt = "; it is not known whether the file was written" if doubtful else ""
            raise OSError(errno.EIO, f"{len(WAITS)} puts failed{doubt}: {last}", path)
        if not (doubtful and self._holds(path, data)):
            raise FileExistsError(errno.EEXIST, "another writer made this object first", path)

    def _holds(self, path: str, data: bytes) -> bool:
        try:
            return self._fetch(path) == data
        except FileNotFoundError:
            return False

    def _fetch(self, path: str) -> bytes:
        with (
            _as_os_errors(path),
            self.objects.open_input_stream(_arrow_path(path), compression=None) as stream,
        ):
            data: bytes = stream.read()
            return data

    def open(self, path: str) -> Any:
        """Return an object to be read in parts."""
        with _as_os_errors(path):
            return self.objects.open_input_file(_arrow_path(path))

    def list(self, folder: str) -> list[Entry]:
        """Return the objects and prefixes one level below a prefix."""
        selector = pafs.FileSelector(_arrow_path(folder), allow_not_found=True)
        try:
            with _as_os_errors(folder):
                found = self.objects.get_file_info(selector)
        except NotADirectoryError:
            return []
        return [entry_of(info) for info in found]

    def exists(self, path: str) -> bool:
        """Return whether there is an object of this name or below it."""
        with _as_os_errors(path):
            info = self.objects.get_file_info(_arrow_path(path))
        return bool(info.type != pafs.FileType.NotFound)

    def delete(self, path: str) -> None:
        """Remove an object, if it is there."""
        bucket, key = _bucket_and_key(path)
        with _as_os_errors(path):
            self.client.delete_object(Bucket=bucket, Key=key)
        self.forget(path)

    def move(self, old: str, new: str) -> None:
        """Copy an object, or all below a prefix, to a name that nobody uses; then delete it."""
        if self.exists(new):
            raise FileExistsError(errno.EEXIST, "the new name is taken", new)
        below = self._below(old)
        for end in below:
            from_bucket, from_key = _bucket_and_key(old + end)
            bucket, key = _bucket_and_key(new + end)
            source = {"Bucket": from_bucket, "Key": from_key}
            with _as_os_errors(old + end):
                self.client.copy_object(Bucket=bucket, Key=key, CopySource=source)
        for end in below:
            self.delete(old + end)

    def _below(self, path: str) -> tuple[str, ...]:
        """Return what follows a name in the names of all its objects: nothing for an object."""
        base = _arrow_path(path)
        with _as_os_errors(path):
            kind = self.objects.get_file_info(base).type
            if kind == pafs.FileType.NotFound:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            if kind == pafs.FileType.File:
                return ("",)
            found = self.objects.get_file_info(pafs.FileSelector(base, recursive=True))
        files = (info.path for info in found if info.type == pafs.FileType.File)
        return tuple(path[len(base) :] for path in files)

    def sync(self, path: str) -> None:
        """Do nothing: what S3 has answered for lasts."""

    def publish(self, folder: str, files: Mapping[str, str]) -> None:
        """Refuse: S3 has no folders to rename."""
        reason = "S3 cannot make several files appear in one step; publish one object instead"
        raise CheckpointError(path=folder, reason=reason)


def connect_s3(bucket: str) -> S3Files:
    """Return the files of a bucket, with what the AWS environment variables and files say.

    Raises:
        CheckpointError: There is no bucket in the URI, or boto3 is not installed.
    """
    if not bucket:
        raise CheckpointError(path="s3://", reason="the URI names no bucket; say s3://bucket/path")
    try:
        import boto3
        from botocore.config import Config
    except ImportError as error:
        reason = "writing to S3 needs boto3; install it with: pip install 'penstock[s3]'"
        raise CheckpointError(path=f"s3://{bucket}", reason=reason) from error
    # botocore reads only the second of these, the C++ SDK behind pyarrow both.
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    own = {"connect_timeout": 10, "read_timeout": 60, "retries": {"total_max_attempts": 1}}
    with _as_os_errors(f"s3://{bucket}"):
        client = boto3.client("s3", region_name=region, config=Config(**own))
        options = _arrow_options(client.meta.endpoint_url, region or client.meta.region_name)
        if "endpoint_override" in options:  # as pyarrow addresses such a server
            own["s3"] = {"addressing_style": "path"}
            client = boto3.client("s3", region_name=region, config=Config(**own))
        objects = pafs.S3FileSystem(connect_timeout=10, request_timeout=60, **options)
    return S3Files(client, objects)


def _arrow_options(endpoint: str, region: str | None) -> dict[str, Any]:
    """Return what makes pyarrow ask the server that botocore asks.

    >>> _arrow_options("http://127.0.0.1:9000", "us-east-1")
    {'region': 'us-east-1', 'endpoint_override': '127.0.0.1:9000', 'scheme': 'http'}
    >>> _arrow_options("https://s3.eu-west-1.amazonaws.com", "eu-west-1")
    {'region': 'eu-west-1'}
    """
    parts = urlsplit(endpoint)
    options = {} if region in (None, "aws-global") else {"region": region}
    if (parts.hostname or "").endswith((".amazonaws.com", ".amazonaws.com.cn")):
        return options
    return {**options, "endpoint_override": parts.netloc + parts.path, "scheme": parts.scheme}


def _arrow_path(uri: str) -> str:
    _, bucket, key = split_uri(uri)
    return f"{bucket}/{key}" if key else bucket


def _bucket_and_key(uri: str) -> tuple[str, str]:
    _, bucket, key = split_uri(uri)
    return bucket, key


def _status(error: Any) -> int:
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


def _os_error(error: Any, path: str) -> OSError:
    numbers = {403: errno.EACCES, 404: errno.ENOENT, 501: errno.ENOSYS}
    return OSError(numbers.get(_status(error), errno.EIO), str(error), path)


@contextmanager
def _as_os_errors(path: str, *, but: tuple[type[Exception], ...] = ()) -> Iterator[None]:
    """Let botocore's and pyarrow's errors leave as errors of the operating system."""
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        yield
    except but:
        raise
    except ClientError as error:
        raise _os_error(error, path) from error
    except (BotoCoreError, pa.ArrowException) as error:
        if isinstance(error, OSError):
            raise
        raise OSError(errno.EIO, str(error), path) from error
