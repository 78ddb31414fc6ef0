// SPDX-License-Identifier: Apache-2.0
// A store in a folder of its own, and jobs for it.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "tests/support/temp_folder.h"
#include "tests/unit/control/open_job_store.h"
#include "v1/job_service.pb.h"

namespace meshloom::control {

class JobStoreTest : public ::testing::Test {
 protected:
  JobStore::Options options() const {
    JobStore::Options options;
    options.jobs_dir = folder_ / "jobs";
    return options;
  }
  std::filesystem::path journal() const { return folder_ / "journal"; }
  std::unique_ptr<OpenJobStore> open(bool hold = false) const {
    JobStore::Options with_hold = options();
    with_hold.hold_unfinished = hold;
    return std::make_unique<OpenJobStore>(journal(), with_hold);
  }
  static v1::JobSpec spec(const std::string& name, std::int64_t steps = 10) {
    v1::JobSpec spec;
    spec.set_name(name);
    spec.mutable_run()->mutable_training()->set_steps(steps);
    return spec;
  }
  static v1::Job submit(JobStore& store, const std::string& name, const RequestKey& key = {}) {
    return store.submit(spec(name), spec(name).run(), key);
  }
  static RequestKey key(const std::string& id, const std::string& name) {
    v1::SubmitJobRequest request;
    request.set_request_id(id);
    *request.mutable_spec() = spec(name);
    return make_request_key("SubmitJob", request, "tester");
  }
  static void move(JobStore& store, const std::string& id, v1::JobState state) {
    store.update(id, [&](v1::Job* job) { job->set_state(state); });
  }
  static void publish_step(JobStore& store, const std::string& id, std::int64_t step) {
    v1::StepMetrics metrics;
    metrics.set_step(step);
    store.publish_step(id, metrics);
  }
  /// Begins it and lets it succeed.
  static void run_through(JobStore& store, const std::string& id) {
    store.begin_attempt(id);
    move(store, id, v1::JOB_STATE_RUNNING);
    publish_step(store, id, 1);
    move(store, id, v1::JOB_STATE_SUCCEEDED);
  }

  test::TempFolder folder_;
};

}  // namespace meshloom::control
