# SPDX-License-Identifier: Apache-2.0
"""SavedWeights: weights of a run under a name, and their files."""

from __future__ import annotations

import dataclasses
import os
import pathlib

from meshloom.connection import Connection
from meshloom.download import download
from meshloom.v1 import run_pb2, run_service_pb2


@dataclasses.dataclass(frozen=True)
class SavedWeights:
    """`name` is what sample(weights=...) takes. On disk `folder` is the Hugging Face folder below the daemon's state dir,
    relative to it; in memory it is empty. `step`: optimizer steps behind them."""

    name: str
    step: int
    folder: str
    _connection: Connection = dataclasses.field(repr=False, compare=False)
    _token: str = dataclasses.field(repr=False, compare=False)

    def download(self, folder: str | os.PathLike[str]) -> pathlib.Path:
        """Copies weights on disk into a new folder, every file checked by its SHA-256. Goes on where it was after a
        break of the connection. What is not complete is in FOLDER.part, which is gone after an error and must not
        be there before."""
        return download(self._connection, self.name, folder)

    def delete(self) -> None:
        """Lets them go at once. A sample that draws from them goes on."""
        self._connection.call(self._connection.runs.DeleteWeights, run_service_pb2.DeleteWeightsRequest(name=self.name),
                              self._token)


def saved_weights(message: run_pb2.SavedWeights, connection: Connection, token: str) -> SavedWeights:
    return SavedWeights(message.name, message.step, message.folder, connection, token)
