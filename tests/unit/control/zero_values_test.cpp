// SPDX-License-Identifier: Apache-2.0
// Every number of the daemon's config that somebody writes as 0 is taken as 0, or refused by its
// name; so is what edits of a job change.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "daemon/control/daemon_options.h"
#include "daemon/control/stores/job_settings.h"
#include "kernels/base/error.h"
#include "tests/support/numeric_fields.h"

namespace meshloom::control {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// "uploads.idle_seconds" as YAML that says 0.
std::string yaml_of(const std::string& field) {
  const std::size_t dot = field.find('.');
  if (dot == std::string::npos) return field + ": 0\n";
  return fmt::format("{}:\n  {}: 0\n", field.substr(0, dot), field.substr(dot + 1));
}

TEST(ZeroValues, TheDaemonTakesEachOrRefusesItByName) {
  std::set<std::string> taken;
  for (const test::NumericField& field : test::numeric_fields(*v1::DaemonConfig::descriptor())) {
    SCOPED_TRACE(field.name());
    ParsedDaemonOptions parsed;
    try {
      take_config_text(yaml_of(field.name()), &parsed);
      const std::optional<double> value = field.value(parsed.options.config);
      EXPECT_TRUE(value == 0.0 || (!field.has_presence() && !value))
          << "0 has become " << value.value_or(-1);
      if (field.has_presence()) taken.insert(field.name());
    } catch (const InvalidArgument& error) {
      EXPECT_THAT(error.what(), HasSubstr(field.name() + " is 0, expected "));
    }
  }
  EXPECT_THAT(
      taken, ElementsAre(
                 "limits.owner_disk_bytes", "limits.owner_jobs", "limits.owner_result_bytes",
                 "limits.owner_runs", "limits.owner_transient_uploads", "limits.total_disk_bytes",
                 "limits.total_jobs", "limits.total_result_bytes", "limits.total_runs",
                 "limits.total_transient_uploads", "uploads.client_bytes", "uploads.client_uploads",
                 "uploads.keep_blobs_seconds", "uploads.total_bytes", "uploads.total_uploads"));
}

TEST(ZeroValues, AnEditKeepsAllCheckpointsFromThenOn) {
  v1::JobSpec job;
  job.mutable_run()->mutable_checkpoint()->set_keep_latest_k(2);
  v1::JobSpec spec;
  spec.mutable_run()->mutable_checkpoint()->set_keep_latest_k(0);
  const std::set<std::string> fields = {"run.checkpoint.keep_latest_k"};
  const v1::JobSpec edited = edited_spec(job, spec, fields);
  EXPECT_TRUE(edited.run().checkpoint().has_keep_latest_k());
  EXPECT_EQ(edited.run().checkpoint().keep_latest_k(), 0);
  // As it is kept and taken up again.
  v1::RunConfig resolved = job.run();
  apply_settings(settings_of(edited.run()), &resolved);
  EXPECT_TRUE(resolved.checkpoint().has_keep_latest_k());
  EXPECT_EQ(resolved.checkpoint().keep_latest_k(), 0);
  // One that is named and not given goes back to its default.
  EXPECT_FALSE(edited_spec(edited, {}, fields).run().checkpoint().has_keep_latest_k());
}

}  // namespace
}  // namespace meshloom::control
