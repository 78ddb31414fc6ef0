# SPDX-License-Identifier: Apache-2.0
"""Models that the daemon holds: made of Hugging Face folders of this machine."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import threading
import uuid
from typing import NamedTuple

from meshloom.connection import Connection
from meshloom.file_upload import FileUpload, Progress, earlier_uploads
from meshloom.future import Future
from meshloom.messages import refuse
from meshloom.v1 import model_service_pb2

_KINDS = {".safetensors", ".json", ".txt", ".model", ".jinja"}  # weights, configs and tokenizers
_CHECK_SECONDS = 300.0


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
    return sorted(found, key=lambda path: (_is_weights(path), path.name))


def _is_weights(path: pathlib.Path) -> bool:
    return path.suffix == ".safetensors"


def _header_bytes(file: FileUpload) -> int:
    """Those of a safetensors file that hold its header; all of them if it has none."""
    if file.size < 8:
        return file.size
    return 8 + min(int.from_bytes(file.read(0, 8), "little"), file.size - 8)


class _FolderUpload:
    """One folder on its way. The headers of its weights come first and are checked before the weights are sent."""

    def __init__(self, connection: Connection, name: str, paths: list[pathlib.Path],
                 progress: Progress | None) -> None:
        self._connection = connection
        self._name = name
        self._files = [FileUpload(connection, path, progress) for path in paths]

    def run(self) -> Model:
        earlier = earlier_uploads(self._connection)
        for file in self._files:
            file.begin(earlier)
            if _is_weights(file.path):
                file.send(_header_bytes(file))
            else:
                file.finish()
        self._create(validate_only=True)
        for file in self._files:
            if _is_weights(file.path):
                file.finish()
        made = self._create()
        self._forget_uploads()
        return made

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
            file.forget()
