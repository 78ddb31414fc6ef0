// SPDX-License-Identifier: Apache-2.0
// ModelStore: the models that the daemon holds, by name.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "daemon/control/access/ownership.h"
#include "daemon/control/host/bounded_calls.h"
#include "daemon/control/stores/journaled_store.h"
#include "daemon/control/stores/numbered_items.h"
#include "daemon/control/stores/request_key.h"
#include "daemon/control/stores/upload_store.h"
#include "daemon/control/stores/uses.h"
#include "v1/model_service.pb.h"
#include "v1/stored.pb.h"

namespace meshloom::control {

///   models/NAME/      config.json, and what was uploaded: links to the store's own blobs
/// A model of a folder below the data dir has none: it is that folder, as long as its files are
/// those that it was made from. All methods may be called from any thread. Ids are names without
/// "models/".
class ModelStore final : public JournaledStore {
 public:
  struct Options {
    std::filesystem::path folder;  ///< STATE_DIR/models
    std::filesystem::path data_dir;
    /// How long a file system may take to show a folder below the data dir.
    std::chrono::milliseconds resolve_timeout{60'000};
    std::shared_ptr<const Uses> uses = std::make_shared<const Uses>();  ///< of models
  };
  /// `uploads` outlives this.
  ModelStore(const Options& options, UploadStore& uploads);

  /// Checks the model and, unless validate_only, keeps it. A repeat gets the first model. `client`:
  /// whose uploads it may use. Throws what proto/v1/model_service.proto says.
  v1::Model create(const std::string& client, const v1::CreateModelRequest& request,
                   const RequestKey& key);
  v1::Model get(const std::string& id) const;
  /// Nothing if there is no such model.
  std::optional<Ownership> ownership(const std::string& id) const;
  /// Lets `with` use it, or no more; empty: everybody.
  v1::Model share(const std::string& id, const std::string& with, bool take_back,
                  const RequestKey& key);
  /// Up to `size` after position (0 at first), oldest first, without files and config; the position
  /// to go on from, 0 at the end.
  std::pair<std::vector<v1::Model>, std::int64_t> list(std::int64_t position, int size,
                                                       const IsShown& is_shown = nullptr) const;
  /// Throws FailedPrecondition (MODEL_IN_USE). The name is free again when it returns.
  void remove(const std::string& id, const RequestKey& key);

  /// The absolute Hugging Face folder of a model: always with config.json; without weights if it is
  /// to be trained from scratch (train::has_hf_weights). Looks at the files of a folder below the
  /// data dir. Throws NotFound (MODEL_NOT_FOUND), FailedPrecondition (DATA_CHANGED).
  std::filesystem::path folder(const std::string& id) const;

  /// Keeps a model from being removed until the result is let go. Throws NotFound
  /// (MODEL_NOT_FOUND).
  Hold hold(const std::string& id, const std::string& user);

  /// The whole name of a model whose folder below the data dir is read, as the model of a config,
  /// that passes.
  std::optional<std::string> user_by_config(const ConfigTest& test) const;

  void stop_calls() { calls_.stop(); }
  /// Threads that nobody waits for any more look at the data dir.
  bool hanging() const { return calls_.running() > 0; }

  void snapshot(const Ledger::Visit& append) const override;

 private:
  void apply(const v1::JournalRecord& record) override;
  void settle_after_restart() override;

  // With mutex_ held.
  const v1::StoredModel& stored(const std::string& id) const;
  /// The same if its owner asks, or an admin does.
  const v1::StoredModel& own(const std::string& id, const RequestKey& key) const;
  v1::Model told(const v1::StoredModel& model, bool whole) const;

  std::optional<v1::Model> repeat(const RequestKey& key) const;
  void check_name_is_free(const std::string& id) const;
  void take_source(const std::string& client, const v1::CreateModelRequest& request,
                   const std::filesystem::path& folder, v1::StoredModel* model);
  void take_uploads(const std::string& client, const v1::CreateModelRequest& request,
                    const std::filesystem::path& folder, v1::StoredModel* model);
  void take_data_folder(const std::string& name, v1::StoredModel* model);
  void keep(const v1::StoredModel& model, const std::filesystem::path& made, const RequestKey& key);
  void build_folder(const v1::StoredModel& model) const;
  /// Of the blobs of a model. Takes the mutex of the uploads behind mutex_.
  void count_needs(const std::string& id, std::int64_t more);

  const Options options_;
  UploadStore& uploads_;
  BoundedCalls calls_;
  NumberedItems<v1::StoredModel> models_;
  std::set<std::string> removed_;  ///< gone, but for what may be left of their folders
  std::int64_t next_folder_ = 1;
};

}  // namespace meshloom::control
