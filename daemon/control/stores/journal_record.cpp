// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/stores/journal_record.h"

#include <fmt/format.h>

#include "daemon/control/stores/names.h"

namespace meshloom::control {

std::string deleted_resource(const v1::JournalRecord& record) {
  if (!record.deleted_job().empty()) return job_resource(record.deleted_job());
  if (!record.deleted_run().empty()) return run_resource(record.deleted_run());
  if (!record.deleted_upload().empty()) return upload_resource(record.deleted_upload());
  if (!record.deleted_model().empty()) return model_resource(record.deleted_model());
  if (!record.deleted_plan().empty()) return plan_resource(record.deleted_plan());
  return {};
}

std::string record_name(const v1::JournalRecord& record) {
  if (record.group_size() > 0)
    return fmt::format("{} and {} more", record_name(record.group(0)), record.group_size() - 1);
  if (const std::string gone = deleted_resource(record); !gone.empty()) return gone;
  if (record.has_job()) return record.job().name();
  if (record.has_state()) return record.state().name();
  if (record.has_job_edit()) return "the edit of " + record.job_edit().job();
  if (record.has_job_note())
    return fmt::format("note {} of {}", record.job_note().number(), record.job_note().job());
  if (record.has_job_samples()) return "the samples of " + record.job_samples().job();
  if (record.has_deleted_checkpoint()) return record.deleted_checkpoint().name();
  if (record.has_run()) return record.run().run().name();
  if (record.has_saved_state()) return record.saved_state().name();
  if (!record.deleted_state().empty()) return record.deleted_state();
  if (record.has_saved_weights()) return record.saved_weights().name();
  if (!record.deleted_weights().empty()) return record.deleted_weights();
  if (record.has_upload()) return upload_resource(record.upload().id());
  if (record.has_blob()) return "blob " + record.blob().sha256();
  if (!record.deleted_blob().empty()) return "blob " + record.deleted_blob();
  if (record.has_model()) return model_resource(record.model().id());
  if (record.has_plan()) return plan_resource(record.plan().id());
  if (record.has_drain()) return "the drain";
  if (record.has_request()) return "request " + record.request().request_id();
  return "a counter";
}

}  // namespace meshloom::control
