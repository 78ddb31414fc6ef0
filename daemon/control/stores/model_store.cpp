// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/stores/model_store.h"
#include "daemon/control/access/sharing.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "daemon/base/field_error.h"
#include "daemon/base/files.h"
#include "daemon/base/input_file.h"
#include "daemon/base/stand_in.h"
#include "daemon/base/timestamp.h"
#include "daemon/control/stores/checkpoint_files.h"
#include "daemon/control/stores/lost_folder.h"
#include "daemon/control/stores/model_files.h"
#include "daemon/control/stores/names.h"
#include "daemon/control/stores/request_log.h"
#include "daemon/nn/models/presets.h"
#include "daemon/train/files/file_system.h"
#include "daemon/train/files/hf_folder.h"
#include "daemon/train/files/paths.h"
#include "daemon/train/files/safetensors.h"
#include "kernels/base/error.h"
#include "kernels/base/log.h"

namespace meshloom::control {
namespace {

namespace fs = std::filesystem;

constexpr const char* kConfig = "config.json";
constexpr const char* kUnfinished = ".new";  // no model's name
constexpr std::uint64_t kMostConfigBytes = std::uint64_t{1} << 20;
constexpr int kMostFolderCalls = 16;
constexpr int kMostFiles = 10'000;
constexpr std::size_t kMostRecordBytes = 3 << 20;  // a model is stored and sent whole

/// A folder for a model that is being made; what is left of it goes with the object.
class UnfinishedFolder {
 public:
  UnfinishedFolder(const fs::path& models, std::int64_t number, const std::string& name)
      : above_(models / kUnfinished / std::to_string(number)), path_(above_ / name) {
    train::posix_file_system().create_directories(path_);
  }
  ~UnfinishedFolder() {
    std::error_code ignored;
    fs::remove_all(above_, ignored);
  }
  UnfinishedFolder(const UnfinishedFolder&) = delete;
  UnfinishedFolder& operator=(const UnfinishedFolder&) = delete;
  const fs::path& path() const { return path_; }

 private:
  fs::path above_, path_;
};

std::string config_text(const fs::path& folder) {
  return base::InputFile(folder / kConfig).read_text(kMostConfigBytes);
}

void link_blob(const fs::path& blob, const fs::path& name) {
  if (::link(blob.c_str(), name.c_str()) != 0) base::throw_io_error("cannot link", name, errno);
}

/// Of a folder below one of the data folders: its name there.
std::string name_below(const fs::path& folder, const fs::path& data_dir) {
  for (const fs::path& root : train::data_folders(data_dir)) {
    const fs::path name = fs::relative(folder, root);
    if (!name.empty() && *name.begin() != "..") return name.string();
  }
  return folder.string();
}

/// What of an upload must be there before a model's headers can be looked at.
void check_there(const UploadStore::Content& content, const std::string& field, bool whole) {
  const v1::StoredUpload& upload = content.upload;
  const std::int64_t bytes = upload.committed_bytes();
  bool enough = upload.complete() || (!whole && bytes == upload.size_bytes());
  if (!enough && !whole && upload.file_name().ends_with(".safetensors"))
    enough = train::decides_safetensors_header(base::InputFile(content.path),
                                               static_cast<std::uint64_t>(bytes));
  if (enough) return;
  throw FailedPrecondition(
      fmt::format("{}: upload \"{}\" ({}) has {} of {} bytes{}", field, upload.id(),
                  upload.file_name(), bytes, upload.size_bytes(),
                  whole && bytes == upload.size_bytes() ? " and was not finished" : ""),
      "UPLOAD_INCOMPLETE",
      {{"upload", upload.id()}, {"field", field}, {"committed_bytes", std::to_string(bytes)}});
}

[[noreturn]] void refuse_absent(const std::string& id) {
  throw NotFound(fmt::format("model \"{}\" does not exist", id), "MODEL_NOT_FOUND",
                 {{"model", id}});
}

}  // namespace

ModelStore::ModelStore(const Options& options, UploadStore& uploads)
    : options_(options), uploads_(uploads), calls_(options.resolve_timeout, kMostFolderCalls) {}

const v1::StoredModel& ModelStore::stored(const std::string& id) const {
  const v1::StoredModel* found = models_.find(id);
  if (found == nullptr) refuse_absent(id);
  return *found;
}

const v1::StoredModel& ModelStore::own(const std::string& id, const RequestKey& key) const {
  const v1::StoredModel& found = stored(id);
  if (!key.by.is_admin() && found.owner() != key.by.owner()) refuse_absent(id);
  return found;
}

v1::Model ModelStore::told(const v1::StoredModel& stored, bool whole) const {
  v1::Model model;
  model.set_name(model_resource(stored.id()));
  model.set_create_time(stored.create_time());
  model.set_preset(stored.preset());
  model.set_data_folder(stored.data_folder());
  model.set_file_count(stored.files_size());
  model.set_architecture(stored.architecture());
  model.set_parameters(stored.parameters());
  model.set_has_weights(stored.files_size() > 0);
  model.set_headless(stored.headless());
  model.set_owner(stored.owner());
  model.set_shared(stored.shared());
  *model.mutable_shared_with() = stored.shared_with();
  if (whole) model.set_config(stored.config());
  for (const v1::StoredModelFile& file : stored.files()) {
    model.set_size_bytes(model.size_bytes() + file.size_bytes());
    if (!whole) continue;
    v1::ModelFile& item = *model.add_files();
    item.set_name(file.name());
    item.set_size_bytes(file.size_bytes());
    item.set_sha256(file.sha256());
  }
  for (const std::string& user : options_.uses->holders_of(model.name())) model.add_users(user);
  return model;
}

std::optional<v1::Model> ModelStore::repeat(const RequestKey& key) const {
  const auto first = ledger().find_request(key);
  if (!first) return std::nullopt;
  const std::string id = parse_model_name(first->resource());
  if (first->gone())
    throw NotFound(fmt::format("model \"{}\" of this request was deleted", id), "MODEL_NOT_FOUND",
                   {{"model", id}});
  return get(id);
}

void ModelStore::check_name_is_free(const std::string& id) const {
  const std::lock_guard lock(mutex_);
  if (models_.find(id) != nullptr)
    throw AlreadyExists(fmt::format("a model named \"{}\" exists already; choose another name", id),
                        "MODEL_EXISTS", {{"model", id}, {"field", "name"}});
}

v1::Model ModelStore::create(const std::string& client, const v1::CreateModelRequest& request,
                             const RequestKey& key) {
  if (!request.validate_only())
    if (auto first = repeat(key)) return *first;
  v1::StoredModel model;
  const bool unnamed = request.name().empty() && request.validate_only();
  model.set_id(unnamed ? "model" : parse_model_name(request.name()));
  model.set_client(client);
  model.set_owner(key.by.owner());
  model.set_shared(request.shared());
  model.set_create_time(base::now_rfc3339());
  if (!unnamed) check_name_is_free(model.id());
  std::int64_t number = 0;
  {
    const std::lock_guard lock(mutex_);
    number = next_folder_++;
  }
  const UnfinishedFolder made(options_.folder, number, model.id());
  take_source(client, request, made.path(), &model);
  if (!request.validate_only()) {
    keep(model, made.path(), key);
    return get(model.id());
  }
  const std::lock_guard lock(mutex_);
  return told(model, true);
}

void ModelStore::take_source(const std::string& client, const v1::CreateModelRequest& request,
                             const fs::path& folder, v1::StoredModel* model) {
  switch (request.source_case()) {
    case v1::CreateModelRequest::kPreset:
      base::with_field("preset",
                       [&] { describe_config(nn::preset_text(request.preset()), false, model); });
      model->set_preset(request.preset());
      break;
    case v1::CreateModelRequest::kConfig:
      check(request.config().size() <= kMostConfigBytes, "config has {} bytes, at most {} are read",
            request.config().size(), kMostConfigBytes);
      base::with_field("config", [&] {
        base::refuse_stand_in(request.config(), "config.json");
        describe_config(request.config(), false, model);
      });
      break;
    case v1::CreateModelRequest::kDataFolder: return take_data_folder(request.data_folder(), model);
    case v1::CreateModelRequest::kUploads: return take_uploads(client, request, folder, model);
    case v1::CreateModelRequest::SOURCE_NOT_SET:
      throw InvalidArgument("give one of preset, config, data_folder and uploads",
                            "INVALID_ARGUMENT", {{"field", "source"}});
  }
  base::replace_file(folder / kConfig, model->config());
}

void ModelStore::take_data_folder(const std::string& name, v1::StoredModel* model) {
  // On a thread that may outlive the wait: it has nothing of this object.
  *model =
      calls_.run<v1::StoredModel>([name, data_dir = options_.data_dir, found = *model]() mutable {
        const fs::path folder = train::resolve_path(name, data_dir, "data_folder");
        base::with_field("data_folder", [&] {
          const train::HfFolder weights = train::check_hf_folder(folder);
          describe_config(config_text(folder), true, &found);
          found.set_parameters(nn::parameter_count(weights.model_config()));
        });
        base::with_field("data_folder", [&] { train::check_links(folder, data_dir); });
        found.set_data_folder(name_below(folder, data_dir));
        for (v1::StoredModelFile& file : identify_files(folder))
          *found.add_files() = std::move(file);
        return found;
      });
}

void ModelStore::take_uploads(const std::string& client, const v1::CreateModelRequest& request,
                              const fs::path& folder, v1::StoredModel* model) {
  const auto& files = request.uploads().files();
  check(files.size() <= kMostFiles, "uploads.files: {} files, at most {} are taken", files.size(),
        kMostFiles);
  std::set<std::string> names;
  bool complete = true;
  for (int i = 0; i < files.size(); ++i) {
    const std::string field = fmt::format("uploads.files[{}]", i);
    const std::string& name = files[i].name();
    if (!is_file_name(name))
      base::refuse_field(field + ".name", "\"{}\" is no plain file name", name.substr(0, 80));
    if (!names.insert(name).second)
      base::refuse_field(field + ".name", "\"{}\" is there twice", name);
    const UploadStore::Content content =
        uploads_.content(client, parse_upload_name(files[i].upload()));
    check_there(content, field + ".upload", !request.validate_only());
    complete = complete && content.upload.complete();
    const fs::path link = folder / name;
    // One that was not finished is there for a look at its header alone.
    if (content.upload.complete())
      link_blob(content.path, link);
    else if (::symlink(content.path.c_str(), link.c_str()) != 0)
      base::throw_io_error("cannot link", link, errno);
    v1::StoredModelFile& item = *model->add_files();
    item.set_name(name);
    item.set_size_bytes(content.upload.size_bytes());
    item.set_sha256(content.upload.sha256());
  }
  base::with_field("uploads", [&] {
    const train::HfFolder weights = train::check_hf_folder(folder);
    describe_config(config_text(folder), true, model);
    // What has not arrived yet cannot be asked whether the model is tied.
    if (complete) model->set_parameters(nn::parameter_count(weights.model_config()));
  });
}

void ModelStore::keep(const v1::StoredModel& model, const fs::path& made, const RequestKey& key) {
  if (const std::size_t bytes = model.ByteSizeLong(); bytes > kMostRecordBytes)
    throw ResourceExhausted(
        fmt::format(
            "the config and the names of the {} files of model \"{}\" take {} bytes, at most "
            "{} are kept",
            model.files_size(), model.id(), bytes, kMostRecordBytes),
        "MODEL_TOO_LARGE",
        {{"bytes", std::to_string(bytes)}, {"limit", std::to_string(kMostRecordBytes)}});
  const std::lock_guard deciding(change_mutex_);
  if (repeat(key)) return;
  check_name_is_free(model.id());
  const fs::path target = options_.folder / model.id();
  if (model.data_folder().empty()) train::put_in_place(train::posix_file_system(), made, target);
  v1::JournalRecord record;
  *record.mutable_model() = model;
  if (const auto answered = RequestLog::record_of(key, model_resource(model.id())))
    *record.mutable_request() = *answered;
  try {
    commit(record);
  } catch (...) {
    std::error_code ignored;
    fs::remove_all(target, ignored);
    throw;
  }
  spdlog::info("model {}: {} with {} parameters", model.id(), model.architecture(),
               model.parameters());
}

v1::Model ModelStore::get(const std::string& id) const {
  const std::lock_guard lock(mutex_);
  return told(stored(id), true);
}

std::optional<Ownership> ModelStore::ownership(const std::string& id) const {
  const std::lock_guard lock(mutex_);
  const v1::StoredModel* found = models_.find(id);
  return found == nullptr ? std::nullopt : std::optional(ownership_of(*found));
}

v1::Model ModelStore::share(const std::string& id, const std::string& with, bool take_back,
                            const RequestKey& key) {
  const std::lock_guard deciding(change_mutex_);
  if (auto first = repeat(key)) return *first;
  v1::JournalRecord record;
  {
    const std::lock_guard lock(mutex_);
    *record.mutable_model() = own(id, key);
  }
  if (with.empty())
    record.mutable_model()->set_shared(!take_back);
  else
    share_with(with, take_back, record.mutable_model()->mutable_shared_with());
  if (const auto answered = RequestLog::record_of(key, model_resource(id)))
    *record.mutable_request() = *answered;
  commit(record);
  return get(id);
}

std::pair<std::vector<v1::Model>, std::int64_t> ModelStore::list(std::int64_t position, int size,
                                                                 const IsShown& is_shown) const {
  const std::lock_guard lock(mutex_);
  return models_.page(position, size, [&](const v1::StoredModel& model) {
    return !is_shown || is_shown(ownership_of(model)) ? std::optional(told(model, false))
                                                      : std::nullopt;
  });
}

void ModelStore::remove(const std::string& id, const RequestKey& key) {
  const std::lock_guard deciding(change_mutex_);
  if (ledger().find_request(key)) return;
  {
    const std::lock_guard lock(mutex_);
    own(id, key);
  }
  if (const auto user = options_.uses->user_of_model(id))
    throw FailedPrecondition(fmt::format("model \"{}\" is used by {}", id, *user), "MODEL_IN_USE",
                             {{"model", id}, {"used_by", *user}});
  v1::JournalRecord record;
  record.set_deleted_model(id);
  if (auto request = RequestLog::record_of(key, model_resource(id))) {
    request->set_gone(true);
    *record.mutable_request() = *request;
  }
  commit(record, Ledger::Need::kRefusableUrgent);
  train::posix_file_system().remove_all(options_.folder / id);
  {
    const std::lock_guard lock(mutex_);
    removed_.erase(id);
  }
  spdlog::info("model {} is deleted", id);
}

fs::path ModelStore::folder(const std::string& id) const {
  v1::StoredModel model;
  {
    const std::lock_guard lock(mutex_);
    model = stored(id);
  }
  if (model.data_folder().empty()) {
    const fs::path own = options_.folder / id;
    std::error_code ignored;
    if (!fs::exists(own / kConfig, ignored))
      throw DataLoss(fmt::format("model \"{}\": its files are gone from the state dir", id),
                     "MODEL_FILES_GONE", {{"model", id}});
    return own;
  }
  const fs::path data = train::below_data_folders(model.data_folder(), options_.data_dir);
  check_same_files(model, data);
  return data;
}

std::optional<std::string> ModelStore::user_by_config(const ConfigTest& test) const {
  const std::lock_guard lock(mutex_);
  v1::RunConfig config;
  for (const auto& [number, model] : models_.items()) {
    config.mutable_model()->set_hf_folder(model.data_folder());
    if (test(config)) return model_resource(model.id());
  }
  return std::nullopt;
}

Hold ModelStore::hold(const std::string& id, const std::string& user) {
  // Not between a removal's look at the users and its end.
  const std::lock_guard deciding(change_mutex_);
  const std::lock_guard lock(mutex_);
  stored(id);
  return options_.uses->hold(model_resource(id), user);
}

void ModelStore::count_needs(const std::string& id, std::int64_t more) {
  const v1::StoredModel* model = models_.find(id);
  if (model == nullptr) return;
  for (const v1::StoredModelFile& file : model->files())
    if (!file.sha256().empty()) uploads_.add_needs(file.sha256(), more);
}

void ModelStore::apply(const v1::JournalRecord& record) {
  if (const std::string& id = record.deleted_model(); !id.empty()) {
    count_needs(id, -1);
    models_.erase(id);
    removed_.insert(id);
  }
  if (!record.has_model()) return;
  const std::string& id = record.model().id();
  count_needs(id, -1);
  models_.put(record.model());
  count_needs(id, 1);
  removed_.erase(id);
}

void ModelStore::snapshot(const Ledger::Visit& append) const {
  std::vector<v1::JournalRecord> records;
  {
    const std::lock_guard lock(mutex_);
    for (const std::string& id : removed_) records.emplace_back().set_deleted_model(id);
    for (const auto& item : models_.items()) *records.emplace_back().mutable_model() = item.second;
  }
  for (const v1::JournalRecord& record : records) append(record);
}

void ModelStore::build_folder(const v1::StoredModel& model) const {
  const UnfinishedFolder made(options_.folder, 0, model.id());
  for (const v1::StoredModelFile& file : model.files())
    link_blob(uploads_.blobs().blob(file.sha256()), made.path() / file.name());
  if (model.files().empty()) base::replace_file(made.path() / kConfig, model.config());
  train::put_in_place(train::posix_file_system(), made.path(), options_.folder / model.id());
}

void ModelStore::settle_after_restart() {
  train::FileSystem& files = train::posix_file_system();
  files.create_directories(options_.folder);
  // What was being made has no record, and is told of by nobody.
  removed_.insert(kUnfinished);
  for (const std::string& id : std::exchange(removed_, {}))
    try_removal(model_resource(id), [&] { files.remove_all(options_.folder / id); });
  std::vector<fs::path> unknown;
  for (const auto& entry : fs::directory_iterator(options_.folder))
    if (models_.find(entry.path().filename().string()) == nullptr) unknown.push_back(entry.path());
  LostFolder(options_.folder.parent_path()).take(unknown, "models");
  std::error_code ignored;
  for (const auto& [number, model] : models_.items()) {
    if (!model.data_folder().empty() || fs::exists(options_.folder / model.id(), ignored)) continue;
    try {
      build_folder(model);
    } catch (const Error& error) {
      spdlog::error("model {}: its files are gone from the state dir: {}", model.id(),
                    error.what());
    }
  }
}

}  // namespace meshloom::control
