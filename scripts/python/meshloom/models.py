# SPDX-License-Identifier: Apache-2.0
"""Models that the daemon holds: made of Hugging Face folders of this machine."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import pathlib
import threading
import uuid
from typing import Callable, NamedTuple

from meshloom import errors, uploads
from meshloom.connection import Connection
from meshloom.future import Future
from meshloom.messages import refuse
from meshloom.v1 import model_service_pb2, upload_service_pb2

_KINDS = {".safetensors", ".json", ".txt", ".model", ".jinja"}  # weights, configs and tokenizers
_CHECK_SECONDS = 300.0

Progress = Callable[[str, int, int], None]  #: of a file's name, how many of its bytes are sent, and its size


class ModelFile(NamedTuple):
    name: str
    size_bytes: int
    sha256: str


@dataclasses.dataclass(frozen=True)
class Model:
    """`name` ("models/...") is what a config takes as {"model": {"name": model.name}}. Without weights it is trained
    from scratch; one that is `headless` needs "fresh_head". `users` keep it from being deleted. `files` and `config`,
    the text of its config.json, are left out in a list."""

    name: str
    architecture: str
    parameters: int
    has_weights: bool
    headless: bool
    size_bytes: int
    create_time: str
    preset: str
    data_folder: str
    files: tuple[ModelFile, ...]
    config: str
    users: tuple[str, ...]


def model(message: model_service_pb2.Model) -> Model:
    files = tuple(ModelFile(item.name, item.size_bytes, item.sha256) for item in message.files)
    return Model(message.name, message.architecture, message.parameters, message.has_weights, message.headless,
                 message.size_bytes, message.create_time, message.preset, message.data_folder, files, message.config,
                 tuple(message.users))


class Models:
    """The calls of ModelService. Folders are sent one at a time, each by a thread that ends with it."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._sending = threading.Lock()

    def create(self, name: str, folder: str | os.PathLike[str], progress: Progress | None) -> Future[Model]:
        paths = _model_files(pathlib.Path(folder))
        future: Future[Model] = Future("create_model")

        def make() -> Model:
            with self._sending:
                return _FolderUpload(self._connection, name, paths, progress).run()

        threading.Thread(target=future.finish, args=(make,), name=f"{name} upload", daemon=True).start()
        return future

    def get(self, name: str) -> Model:
        request = model_service_pb2.GetModelRequest(name=name)
        return model(self._connection.call(self._connection.models.GetModel, request).model)

    def all(self) -> list[Model]:
        pages = self._connection.pages(self._connection.models.ListModels, model_service_pb2.ListModelsRequest())
        return [model(item) for page in pages for item in page.models]

    def delete(self, name: str) -> None:
        request = model_service_pb2.DeleteModelRequest(request_id=str(uuid.uuid4()), name=name)
        self._connection.call(self._connection.models.DeleteModel, request)


def _model_files(folder: pathlib.Path) -> list[pathlib.Path]:
    """Those of a Hugging Face folder that go with the model. Weights come last, so that what their headers are checked
    against is there before."""
    try:
        found = [path for path in folder.iterdir()
                 if path.suffix in _KINDS and not path.name.startswith(".") and path.is_file()]
    except OSError as error:
        raise refuse("folder", f"{folder}: {error.strerror}") from None
    if not found:
        raise refuse("folder", f"{folder} has no files of a model")
    return sorted(found, key=lambda path: (path.suffix == ".safetensors", path.name))


class _File:
    """A local file and its upload."""

    def __init__(self, path: pathlib.Path) -> None:
        self.path = path
        self.is_weights = path.suffix == ".safetensors"
        with path.open("rb") as file:
            self.sha256 = hashlib.file_digest(file, "sha256").hexdigest()
            self.size = file.tell()
        self.upload = upload_service_pb2.Upload()

    def read(self, offset: int, size: int) -> bytes:
        with self.path.open("rb") as file:
            file.seek(offset)
            data = file.read(size)
        if len(data) != size:
            raise errors.MeshloomError(f"{self.path} has become shorter while it was sent")
        return data

    def header_bytes(self) -> int:
        """Those of a safetensors file that hold its header; all of them if it has none."""
        if self.size < 8:
            return self.size
        return 8 + min(int.from_bytes(self.read(0, 8), "little"), self.size - 8)


class _FolderUpload:
    """One folder on its way. The headers of its weights come first and are checked before the weights are sent."""

    def __init__(self, connection: Connection, name: str, paths: list[pathlib.Path],
                 progress: Progress | None) -> None:
        self._connection = connection
        self._name = name
        self._progress = progress
        self._files = [_File(path) for path in paths]

    def run(self) -> Model:
        earlier = self._earlier()
        for file in self._files:
            file.upload = earlier.get((file.path.name, file.size, file.sha256)) or self._begin(file)
            if file.is_weights:
                self._send(file, file.header_bytes())
            else:
                self._finish(file)
        self._create(validate_only=True)
        for file in self._files:
            if file.is_weights:
                self._finish(file)
        made = self._create()
        self._forget_uploads()
        return made

    def _earlier(self) -> dict[tuple[str, int, str], upload_service_pb2.Upload]:
        """Uploads that a break has left behind."""
        pages = self._connection.pages(self._connection.uploads.ListUploads, upload_service_pb2.ListUploadsRequest())
        return {(item.file_name, item.size_bytes, item.sha256): item for page in pages for item in page.uploads}

    def _begin(self, file: _File) -> upload_service_pb2.Upload:
        request = upload_service_pb2.CreateUploadRequest(request_id=str(uuid.uuid4()), file_name=file.path.name,
                                                         size_bytes=file.size, sha256=file.sha256)
        return self._connection.call(self._connection.uploads.CreateUpload, request).upload

    def _send(self, file: _File, end: int) -> None:
        def read(offset: int, size: int) -> bytes:
            data = file.read(offset, size)
            if self._progress is not None:
                self._progress(file.path.name, offset + size, file.size)
            return data

        file.upload = uploads.send(self._connection, file.upload, read, end)

    def _finish(self, file: _File) -> None:
        if self._progress is not None and file.upload.committed_bytes == file.size:
            self._progress(file.path.name, file.size, file.size)
        self._send(file, file.size)
        if file.upload.state != upload_service_pb2.UPLOAD_STATE_COMPLETE:
            file.upload = uploads.finish(self._connection, file.upload.name)

    def _create(self, validate_only: bool = False) -> Model:
        request = model_service_pb2.CreateModelRequest(request_id=str(uuid.uuid4()), name=self._name,
                                                       validate_only=validate_only)
        for file in self._files:
            request.uploads.files.add(name=file.path.name, upload=file.upload.name)
        made = self._connection.call(self._connection.models.CreateModel, request, seconds=_CHECK_SECONDS)
        return model(made.model)

    def _forget_uploads(self) -> None:
        """The model has the bytes now."""
        for file in self._files:
            request = upload_service_pb2.AbortUploadRequest(request_id=str(uuid.uuid4()), name=file.upload.name)
            try:
                self._connection.call(self._connection.uploads.AbortUpload, request)
            except errors.MeshloomError:
                pass  # the daemon forgets them by itself after a day
