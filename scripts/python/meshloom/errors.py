# SPDX-License-Identifier: Apache-2.0
"""What goes wrong, as exceptions: one class by gRPC code, finer ones for reasons that a loop acts on."""

from __future__ import annotations

from typing import Mapping, NamedTuple, Sequence

import grpc

from meshloom.v1 import error_pb2


class Violation(NamedTuple):
    """A field of a request and what is wrong with it."""

    field: str
    description: str


class MeshloomError(Exception):
    """An error of the daemon or of the way to it.

    `code` is gRPC's, `reason` an upper-case word that stays the same between versions (empty where no handler
    answered), `metadata` what belongs to the reason, `violations` the fields that are wrong.
    """

    def __init__(self, message: str, code: grpc.StatusCode = grpc.StatusCode.UNKNOWN, reason: str = "",
                 metadata: Mapping[str, str] | None = None, violations: Sequence[Violation] = ()) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.reason = reason
        self.metadata = dict(metadata or {})
        self.violations = list(violations)

    @property
    def field(self) -> str:
        """The path of the first field that is wrong, such as "data[3].targets[17]"; empty where none is."""
        return self.violations[0].field if self.violations else self.metadata.get("field", "")


class InvalidArgument(MeshloomError, ValueError):
    """A value that can never be taken."""


class NotFound(MeshloomError, LookupError):
    """There is no such run, state, operation or parameter."""


class AlreadyExists(MeshloomError):
    """The name is taken."""


class FailedPrecondition(MeshloomError):
    """Not in the present state of the run."""


class ResourceExhausted(MeshloomError):
    """Too large, or too much at once."""


class RequestTooLarge(ResourceExhausted):
    """The daemon takes no message of this size; the number of the verb was skipped."""


class Aborted(MeshloomError):
    """The verb did not run."""


class Cancelled(MeshloomError):
    """The verb was cancelled before it began."""


class Unavailable(MeshloomError, ConnectionError):
    """The daemon was not reached, or is stopping. Whether the verb has run is not known."""


class DeadlineExceeded(MeshloomError, TimeoutError):
    """No answer in time."""


class Unauthenticated(MeshloomError):
    """The daemon does not know who this client is; the text says why."""


class PermissionDenied(MeshloomError):
    """It does, and the client's role does not let it do this."""


class GradientsPoisoned(FailedPrecondition):
    """A forward_backward since the last step failed: its gradients were discarded, this step applied nothing."""


class RunClosed(FailedPrecondition):
    """The run has ended."""


class LeaseEnded(RunClosed):
    """The run was closed since nobody called; `metadata["state"]` names what was saved."""


class SequenceGap(Aborted):
    """A number before this verb's never arrived."""


class RunRecovered(Aborted):
    """The weights since the newest saved state are lost; TrainingRun.recover() goes on from there."""

    @property
    def state(self) -> str:
        """What the run begins anew from; empty: its initial weights."""
        return self.metadata.get("state", "")

    @property
    def step(self) -> int:
        return int(self.metadata.get("step", "0"))

    @property
    def epoch(self) -> int:
        return int(self.metadata.get("epoch", "0"))

    @property
    def next_seq(self) -> int:
        return int(self.metadata.get("next_seq", "1"))


_BY_REASON: dict[str, type[MeshloomError]] = {
    "GRADIENTS_POISONED": GradientsPoisoned,
    "RUN_CLOSED": RunClosed,
    "LEASE_ENDED": LeaseEnded,
    "SEQUENCE_GAP": SequenceGap,
    "RUN_RECOVERED": RunRecovered,
}
_BY_CODE: dict[grpc.StatusCode, type[MeshloomError]] = {
    grpc.StatusCode.INVALID_ARGUMENT: InvalidArgument,
    grpc.StatusCode.OUT_OF_RANGE: InvalidArgument,
    grpc.StatusCode.NOT_FOUND: NotFound,
    grpc.StatusCode.ALREADY_EXISTS: AlreadyExists,
    grpc.StatusCode.FAILED_PRECONDITION: FailedPrecondition,
    grpc.StatusCode.RESOURCE_EXHAUSTED: ResourceExhausted,
    grpc.StatusCode.ABORTED: Aborted,
    grpc.StatusCode.CANCELLED: Cancelled,
    grpc.StatusCode.UNAVAILABLE: Unavailable,
    grpc.StatusCode.DEADLINE_EXCEEDED: DeadlineExceeded,
    grpc.StatusCode.UNAUTHENTICATED: Unauthenticated,
    grpc.StatusCode.PERMISSION_DENIED: PermissionDenied,
}
_CODES: dict[int, grpc.StatusCode] = {code.value[0]: code for code in grpc.StatusCode}


def from_details(details: error_pb2.ErrorDetails) -> MeshloomError:
    """The error of an operation or of a run's cause."""
    code = _CODES.get(details.code, grpc.StatusCode.UNKNOWN)
    by_code: type[MeshloomError] = _BY_CODE.get(code, MeshloomError)
    kind = _BY_REASON.get(details.info.reason, by_code)
    violations = [Violation(item.field, item.description) for item in details.violations]
    return kind(details.message, code, details.info.reason, dict(details.info.metadata), violations)


def from_rpc(error: grpc.RpcError) -> MeshloomError:
    """The error of a call; without a reason where no handler of the daemon has answered."""
    details = error_pb2.ErrorDetails(code=error.code().value[0], message=error.details() or "")
    for key, value in error.trailing_metadata() or ():
        if key == "grpc-status-details-bin":
            _read_status(value, details)
    if found_no_thread(error):
        return ResourceExhausted("the daemon serves as many calls at once as it can", error.code())
    if not details.info.reason and error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED:
        return RequestTooLarge(f"the daemon refused the call: a message is larger than it takes, or too many calls "
                               f"are served at once ({details.message})", error.code())
    return from_details(details)


def found_no_thread(error: grpc.RpcError) -> bool:
    """gRPC's refusal of a call that no handler has seen, while others have all threads of the daemon."""
    return error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED and error.details() == "Server Threadpool Exhausted"


def _read_status(data: bytes, details: error_pb2.ErrorDetails) -> None:
    for item in error_pb2.RpcStatus.FromString(data).details:
        if item.type_url.endswith("/google.rpc.ErrorInfo"):
            details.info.ParseFromString(item.value)
        elif item.type_url.endswith("/google.rpc.BadRequest"):
            details.violations.extend(error_pb2.BadRequest.FromString(item.value).field_violations)
