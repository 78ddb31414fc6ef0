// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/services/capabilities.h"

#include "daemon/base/enum_names.h"
#include "daemon/control/jobs/token_channel.h"
#include "daemon/control/net/grpc_server.h"
#include "daemon/control/net/status.h"
#include "daemon/control/runs/operations.h"
#include "daemon/control/services/generate_request.h"
#include "daemon/control/stores/job_entry.h"
#include "daemon/control/stores/run_store.h"
#include "daemon/control/stores/upload_writer.h"
#include "daemon/nn/models/architecture_names.h"
#include "daemon/nn/models/presets.h"
#include "daemon/plan/clusters.h"
#include "daemon/text/tokenizer_folder.h"
#include "daemon/train/config/dtype_choice.h"
#include "daemon/train/loss/losses.h"
#include "planner/limits.h"

namespace meshloom::control {
namespace {

void add_limits(const v1::DaemonConfig& config, v1::GetCapabilitiesResponse* response) {
  const auto add = [&](const char* name, std::int64_t value, const char* unit) {
    v1::Limit& limit = *response->add_limits();
    limit.set_name(name);
    limit.set_value(value);
    limit.set_unit(unit);
  };
  add("message_bytes", kPublicMessageBytes, "bytes");
  add("request_bytes", kRequestBytes, "bytes");
  add("upload_chunk_bytes", kLargestChunk, "bytes");
  add("inline_result_bytes", Operations::kInlineBytes, "bytes");
  add("kept_operations_of_a_run", Operations::kKept, "operations");
  const v1::UploadConfig& uploads = config.uploads();
  add("upload_client_bytes", uploads.client_bytes(), "bytes");
  add("upload_total_bytes", uploads.total_bytes(), "bytes");
  add("upload_client_uploads", uploads.client_uploads(), "uploads");
  add("upload_total_uploads", uploads.total_uploads(), "uploads");
  add("upload_idle_seconds", uploads.idle_seconds(), "seconds");
  add("keep_blobs_seconds", uploads.keep_blobs_seconds(), "seconds");
  const Limits limits(config.limits());
  for (const LimitRow& row : limit_rows()) {
    add((std::string("owner_") + row.name).c_str(), limits.of_owner(row.kind), row.unit);
    add((std::string("total_") + row.name).c_str(), limits.of_all(row.kind), row.unit);
  }
  if (limits.max_running_seconds() > 0)
    add("max_running_seconds", limits.max_running_seconds(), "seconds");
  add("audit_bytes", config.audit().max_bytes(), "bytes");
  const RunStore::Limits saved;
  add("run_states_bytes", static_cast<std::int64_t>(saved.states), "bytes");
  add("all_run_states_bytes", static_cast<std::int64_t>(saved.all_states), "bytes");
  add("run_weights_bytes", static_cast<std::int64_t>(saved.weights), "bytes");
  add("note_bytes", kMostNoteBytes, "bytes");
  add("job_sample_bytes", kMostSampleBytes, "bytes");
  add("generate_sequences", kMostSequences, "sequences");
  add("generate_tokens", kMostTokens, "tokens");
  add("step_samples", planner::kMostBatch, "samples");
  add("micro_batch_tokens", planner::kMostTokensAtOnce, "tokens");
  add("model_layers", planner::kMostLayers, "layers");
  add("model_vocabulary", planner::kMostVocabulary, "tokens");
  add("model_context", planner::kMostPositions, "tokens");
}

template <typename Field>
void add_all(const std::vector<std::string>& names, Field* field) {
  field->Add(names.begin(), names.end());
}

}  // namespace

v1::GetCapabilitiesResponse describe_capabilities(const std::string& version,
                                                  const v1::DaemonConfig& config, int ranks,
                                                  int threads, const train::WorldDevices& devices) {
  v1::GetCapabilitiesResponse response;
  response.set_version(version);
  add_all(nn::architecture_names(), response.mutable_architectures());
  add_all(nn::preset_names(), response.mutable_presets());
  for (const train::OfferedLoss& loss : train::offered_losses()) {
    v1::LossCapability& message = *response.add_losses();
    message.set_name(loss.name);
    add_all(loss.config_keys, message.mutable_config_keys());
  }
  add_all(base::enum_choices(*v1::OptimizerType_descriptor()), response.mutable_optimizers());
  add_all(base::enum_choices(*v1::DecayType_descriptor()), response.mutable_lr_decays());
  add_all(train::offered_devices(devices), response.mutable_devices());
  add_all(train::offered_dtypes(), response.mutable_dtypes());
  add_all(train::offered_export_dtypes(), response.mutable_export_dtypes());
  add_all(plan::cluster_names(), response.mutable_clusters());
  add_all(text::tokenizer_kinds(), response.mutable_tokenizer_files());
  add_all(base::enum_choices(*v1::DataFormat_descriptor()), response.mutable_data_formats());
  response.set_ranks(ranks);
  response.set_threads(threads);
  add_limits(config, &response);
  return response;
}

}  // namespace meshloom::control
