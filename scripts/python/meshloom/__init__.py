# SPDX-License-Identifier: Apache-2.0
"""Client of meshloomd: jobs, training runs driven step by step, models and text."""

from meshloom._version import VERSION as __version__
from meshloom.chart import Chart
from meshloom.checkpoints import Checkpoint
from meshloom.client import Client
from meshloom.comparison import Comparison
from meshloom.data import (DataReference, Datum, LossResult, OptimStepResult, SampledSequence, SampledTokens,
                           SavedState)
from meshloom.data_files import ImportedFile
from meshloom.errors import (Aborted, AlreadyExists, Cancelled, DeadlineExceeded, FailedPrecondition,
                             GradientsPoisoned, InvalidArgument, LeaseEnded, MeshloomError, NotFound, PermissionDenied,
                             RequestTooLarge, ResourceExhausted, RunClosed, RunRecovered, SequenceGap, Unauthenticated,
                             Unavailable, Violation)
from meshloom.evaluation import Evaluation
from meshloom.future import Future
from meshloom.generation import Generated, Generation, Piece
from meshloom.job_events import JobEvent
from meshloom.jobs import Job
from meshloom.metrics import Metrics
from meshloom.metrics_line import MetricsLine
from meshloom.models import Model, ModelFile
from meshloom.plans import Plan
from meshloom.run import TrainingRun
from meshloom.sample import SampleFuture
from meshloom.tokenizer import Tokenizer
from meshloom.weights import SavedWeights

__all__ = [
    "Aborted", "AlreadyExists", "Cancelled", "Chart", "Checkpoint", "Client", "Comparison", "DataReference",
    "Datum", "DeadlineExceeded", "Evaluation", "FailedPrecondition", "Future", "Generated", "Generation",
    "GradientsPoisoned", "ImportedFile", "InvalidArgument", "Job", "JobEvent", "LeaseEnded", "LossResult",
    "MeshloomError", "Metrics", "MetricsLine", "Model", "ModelFile", "NotFound", "OptimStepResult",
    "PermissionDenied", "Piece", "Plan", "RequestTooLarge", "ResourceExhausted", "RunClosed", "RunRecovered", "SampleFuture", "SampledSequence",
    "SampledTokens", "SavedState", "SavedWeights", "SequenceGap", "Tokenizer", "TrainingRun", "Unauthenticated",
    "Unavailable", "Violation", "__version__",
]
