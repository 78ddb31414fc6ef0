# SPDX-License-Identifier: Apache-2.0
"""Client of meshloomd: training runs driven step by step."""

from meshloom.client import Client
from meshloom.data import (DataReference, Datum, LossResult, OptimStepResult, SampledSequence, SampledTokens,
                           SavedState)
from meshloom.errors import (Aborted, AlreadyExists, Cancelled, DeadlineExceeded, FailedPrecondition,
                             GradientsPoisoned, InvalidArgument, LeaseEnded, MeshloomError, NotFound, RequestTooLarge,
                             ResourceExhausted, RunClosed, RunRecovered, SequenceGap, Unavailable, Violation)
from meshloom.future import Future
from meshloom.models import Model, ModelFile
from meshloom.plans import Plan
from meshloom.run import TrainingRun
from meshloom.sample import SampleFuture
from meshloom.weights import SavedWeights

__all__ = [
    "Aborted", "AlreadyExists", "Cancelled", "Client", "DataReference", "Datum", "DeadlineExceeded",
    "FailedPrecondition", "Future", "GradientsPoisoned", "InvalidArgument", "LeaseEnded", "LossResult",
    "MeshloomError", "Model", "ModelFile", "NotFound", "OptimStepResult", "Plan", "RequestTooLarge",
    "ResourceExhausted", "RunClosed", "RunRecovered", "SampleFuture", "SampledSequence", "SampledTokens",
    "SavedState", "SavedWeights", "SequenceGap", "TrainingRun", "Unavailable", "Violation",
]
