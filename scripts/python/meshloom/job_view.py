# SPDX-License-Identifier: Apache-2.0
"""How a job is shown: in a line, and in a notebook."""

from __future__ import annotations

import html

from meshloom.chart import Chart
from meshloom.job_events import state_name
from meshloom.v1 import job_pb2


def job_text(job: job_pb2.Job) -> str:
    """<Job jobs/NAME: running, step 5/100, loss 2.3412>"""
    text = f"{state_name(job.state)}, step {job.step}/{job.steps}" if job.steps else state_name(job.state)
    if job.HasField("last_step"):
        text += f", loss {job.last_step.loss:.4f}"
    if job.HasField("last_validation"):
        text += f", validation loss {job.last_validation.loss:.4f}"
    return f"<Job {job.name}: {text}>"


def job_html(job: job_pb2.Job, chart: Chart) -> str:
    """A heading, what there is to know, and the curve, without a script or a file from elsewhere."""
    lines = [f"<b>{html.escape(job.name)}</b> {state_name(job.state)}, step {job.step}"
             + (f" of {job.steps}" if job.steps else "")]
    if job.HasField("last_validation"):
        lines.append(f"validation loss {job.last_validation.loss:.4f} at step {job.last_validation.step}")
    for text in (job.wait.reason, job.hold_reason, job.error.message, *job.notes[-3:]):
        if text:
            lines.append(html.escape(text))
    return f"<div>{'<br>'.join(lines)}<br>{chart.svg()}</div>"
