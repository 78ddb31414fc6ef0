// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/services/watch_stream.h"

#include "daemon/control/services/job_view.h"

#include "daemon/base/states.h"
#include "daemon/control/stores/names.h"

namespace meshloom::control {

bool WatchStream::begin() {
  begun_ = true;
  id_ = parse_job_name(request_.name());
  check(request_.after_revision() >= 0, "after_revision is {}, expected 0 or more",
        request_.after_revision());
  subscription_ = store_.subscribe(id_, waker());
  const v1::Job job = store_.get(id_);
  is_own_ = job.owner() == caller().identity().owner();
  revision_ = request_.after_revision();
  if (revision_ > 0) return !base::is_final(job.state()) || job.revision() != revision_;
  revision_ = job.revision();
  v1::WatchJobResponse response;
  response.mutable_event()->set_revision(revision_);
  *response.mutable_event()->mutable_job() = job;
  hide_from(caller().identity(), response.mutable_event()->mutable_job());
  write(std::move(response));
  return !base::is_final(job.state());
}

bool WatchStream::produce() {
  if (!begun_ && !begin()) {
    finish();
    return false;
  }
  auto events = store_.events_after(id_, revision_);
  for (auto& event : events) {
    revision_ = event.revision();
    const bool ended = event.has_job() && base::is_final(event.job().state());
    v1::WatchJobResponse response;
    *response.mutable_event() = std::move(event);
    if (!is_own_) {
      response.mutable_event()->clear_sample();
      if (response.event().has_job())
        hide_from(caller().identity(), response.mutable_event()->mutable_job());
    }
    write(std::move(response));
    if (ended) {
      finish();
      return false;
    }
  }
  return !events.empty();
}

}  // namespace meshloom::control
