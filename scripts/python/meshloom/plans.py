# SPDX-License-Identifier: Apache-2.0
"""Plans that the daemon keeps: how a model lies on a mesh, checked against the ranks there are."""

from __future__ import annotations

import dataclasses
import uuid
from typing import Any, Mapping

from meshloom.connection import Connection
from meshloom.messages import fill
from meshloom.v1 import config_pb2, plan_service_pb2


@dataclasses.dataclass(frozen=True)
class Plan:
    """`name` ("plans/...") is what a config takes as {"plan": {"name": plan.name}}, in place of a mesh and a plan."""

    name: str
    mesh: dict[str, int]
    plan: config_pb2.ParallelPlan
    model: config_pb2.ModelSource
    create_time: str
    client: str
    users: tuple[str, ...]


def _plan(message: plan_service_pb2.Plan) -> Plan:
    mesh = {field.name: value for field, value in message.mesh.ListFields()}
    return Plan(message.name, mesh, message.plan, message.model, message.create_time, message.client,
                tuple(message.users))


def create(connection: Connection, model: Mapping[str, Any], mesh: Mapping[str, int],
           plan: Mapping[str, Any]) -> Plan:
    request = plan_service_pb2.CreatePlanRequest(request_id=str(uuid.uuid4()))
    fill(request.model, model, "model")
    fill(request.query, {"mesh": mesh, "plan": plan}, "query")
    return _plan(connection.call(connection.plans.CreatePlan, request).plan)


def get(connection: Connection, name: str) -> Plan:
    return _plan(connection.call(connection.plans.GetPlan, plan_service_pb2.GetPlanRequest(name=name)).plan)


def list_all(connection: Connection) -> list[Plan]:
    pages = connection.pages(connection.plans.ListPlans, plan_service_pb2.ListPlansRequest())
    return [_plan(item) for page in pages for item in page.plans]


def delete(connection: Connection, name: str) -> None:
    request = plan_service_pb2.DeletePlanRequest(request_id=str(uuid.uuid4()), name=name)
    connection.call(connection.plans.DeletePlan, request)
