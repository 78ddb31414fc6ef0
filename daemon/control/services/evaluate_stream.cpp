// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/services/evaluate_stream.h"

#include "daemon/base/given_number.h"
#include "daemon/control/host/background_thread.h"
#include "daemon/control/services/evaluate_terms.h"
#include "daemon/control/stores/checkpoint_files.h"
#include "daemon/control/stores/names.h"
#include "daemon/train/files/file_system.h"
#include "daemon/train/files/manifest.h"
#include "daemon/train/run/checkpoint_export.h"
#include "daemon/train/run/run_mesh.h"
#include "kernels/base/log.h"

namespace meshloom::control {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kBetweenProgress{500};
constexpr std::chrono::seconds kFirstWait{3}, kBetweenWaits{10};

/// Weights of a checkpoint as a folder that all ranks can read; removed in the end.
class WeightsFolder {
 public:
  WeightsFolder(const fs::path& checkpoint, const fs::path& folder,
                const std::function<void()>& check_wanted)
      : folder_(folder) {
    train::CheckpointExport options;
    options.progress = [&](std::int64_t, std::int64_t) { check_wanted(); };
    train::export_checkpoint(checkpoint, folder, options);
  }
  ~WeightsFolder() {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }
  WeightsFolder(const WeightsFolder&) = delete;
  WeightsFolder& operator=(const WeightsFolder&) = delete;

 private:
  fs::path folder_;
};

v1::GenerateRequest source_of(const v1::EvaluateRequest& request) {
  v1::GenerateRequest source;
  if (request.has_job()) source.set_job(request.job());
  if (request.has_checkpoint()) source.set_checkpoint(request.checkpoint());
  if (request.has_hf_folder()) source.set_hf_folder(request.hf_folder());
  if (request.has_model()) source.set_model(request.model());
  return source;
}

std::string source_text(const v1::EvaluateRequest& request, const fs::path& folder) {
  if (request.has_job())
    return checkpoint_resource(parse_job_name(request.job()), folder.filename().string());
  if (request.has_checkpoint()) return request.checkpoint();
  if (request.has_hf_folder()) return request.hf_folder();
  return model_resource(parse_model_name(request.model()));
}

/// Of lines of another file the kind is found anew; text is no conversation.
void leave_chat(const v1::DataConfig& given, v1::DataConfig* data) {
  if (!data->has_chat()) return;
  const std::string extension = fs::path(given.path()).extension();
  const bool is_text = !given.field().empty() || (extension != ".jsonl" && extension != ".ndjson");
  data->mutable_chat()->clear_kind();
  if (!is_text || given.has_chat()) return;
  data->clear_chat();
  data->clear_document_mask();
  data->clear_reset_positions();
}

/// `data`: those of the job; empty if there is none.
void set_data(const v1::DataConfig& given, v1::DataConfig* data) {
  const std::string tokenizer = data->identity().tokenizer();
  data->clear_identity();
  if (!given.path().empty()) {
    // They are of the job's text, which this one need not be like.
    data->clear_validation_split();
    data->clear_format();
    data->clear_field();
    data->clear_append_eos();
    data->clear_add_special_tokens();
    data->clear_skip_lines_without_text();
    data->clear_document_end();
    leave_chat(given, data);
  } else if (data->path().empty()) {
    base::refuse_field("data.path", "is needed: no job says what to evaluate the model on");
  } else if (!data->has_add_special_tokens() && !tokenizer.empty()) {
    // A job of an older daemon: its text keeps the tokens that it had (resolve_document_tokens).
    data->mutable_identity()->set_tokenizer(tokenizer);
  }
  data->MergeFrom(given);
  if (!given.path().empty()) data->set_validation_path(given.path());
}

void check_numbers(const v1::EvaluateRequest& request) {
  base::check_given_positive("seq_len", request.has_seq_len(), request.seq_len(),
                             "that of the job, or the model's context");
  base::check_given_positive("global_batch_size", request.has_global_batch_size(),
                             request.global_batch_size(), "that of the job, or 8 a rank");
  base::check_given_positive("batches", request.has_batches(), request.batches(), "all");
}

/// `ahead` is empty where the daemon is drained, or the ranks became free just now.
[[noreturn]] void throw_busy(const std::vector<std::string>& ahead) {
  if (ahead.empty())
    throw FailedPrecondition("the ranks are not given out now: the daemon is drained",
                             "RANKS_BUSY");
  throw FailedPrecondition(
      fmt::format("{} has the ranks{}", ahead.front(),
                  ahead.size() > 1 ? fmt::format(", and {} wait", ahead.size() - 1) : ""),
      "RANKS_BUSY", {{"holder", ahead.front()}});
}

}  // namespace

std::optional<v1::Job> EvaluateStream::find_job() const {
  if (request_.has_job()) return world_.store.get(parse_job_name(request_.job()));
  if (request_.has_checkpoint())
    return world_.store.get(parse_checkpoint_name(request_.checkpoint()).job);
  return std::nullopt;
}

v1::RunConfig EvaluateStream::config_for(const std::optional<v1::Job>& job) const {
  v1::RunConfig config;
  if (job && job->has_resolved()) {
    const v1::RunConfig& of_job = job->resolved();
    *config.mutable_data() = of_job.data();
    *config.mutable_training() = of_job.training();
    // A job that an older daemon resolved names none: it computed on the CPU.
    if (world_.resolver.has_device(of_job.device()))
      config.set_device(of_job.device().empty() ? to_string(kCpuDevice) : of_job.device());
    if (train::mesh_layout(of_job.mesh()).size() == world_.executor.world_size()) {
      *config.mutable_mesh() = of_job.mesh();
      *config.mutable_plan() = of_job.plan();
    } else {
      config.mutable_plan()->set_dtype(of_job.plan().dtype());
    }
  }
  set_data(request_.data(), config.mutable_data());
  if (request_.has_mesh()) {
    const std::string dtype = config.plan().dtype();
    *config.mutable_mesh() = request_.mesh();
    config.clear_plan();
    config.mutable_plan()->set_dtype(dtype);
  }
  if (!request_.device().empty()) config.set_device(request_.device());
  config.mutable_plan()->MergeFrom(request_.plan());
  config.mutable_plan()->clear_name();
  v1::TrainingConfig& training = *config.mutable_training();
  // They are about a training, and the patterns about the job's own model.
  training.clear_early_stopping();
  training.clear_frozen();
  if (request_.has_seq_len()) training.set_seq_len(request_.seq_len());
  if (request_.has_global_batch_size())
    training.set_global_batch_size(request_.global_batch_size());
  else if (training.global_batch_size() == 0)
    training.set_global_batch_size(std::int64_t{8} * world_.executor.world_size());
  // Of a job's micro batch the memory is known to be there; another batch is divided anew.
  if (!job || request_.has_global_batch_size() || request_.has_mesh())
    training.clear_micro_batch_size();
  // No gradient is computed: the optimizer is the one that keeps nothing.
  config.mutable_optimizer()->set_type(v1::OPTIMIZER_TYPE_SGD);
  return config;
}

/// Waits for the ranks, and tells the client of it now and then.
class EvaluateStream::Waiting final : public RanksTurn::Waiter {
 public:
  Waiting(EvaluateStream& stream, const std::string& name) : stream_(stream), name_(name) {}
  bool gives_up() override {
    if (Clock::now() >= tell_at_) {
      stream_.tell_wait(name_);
      tell_at_ = Clock::now() + kBetweenWaits;
    }
    return stream_.given_up() || stream_.world_.executor.fatal();
  }

 private:
  EvaluateStream& stream_;
  const std::string& name_;
  Clock::time_point tell_at_ = Clock::now() + kFirstWait;
};

Hold EvaluateStream::take_turn(const std::string& name) {
  if (Hold turn = world_.turn.try_acquire(name)) return turn;
  const auto ahead = world_.turn.ahead_of(name);
  if (request_.no_wait()) throw_busy(ahead);
  tell_wait(name);
  Waiting waiting(*this, name);
  Hold turn = world_.turn.acquire(name, waiting);
  if (!turn) throw Unavailable("the evaluation was given up before it had the ranks", "STOPPING");
  return turn;
}

void EvaluateStream::tell_wait(const std::string& name) {
  v1::EvaluateResponse response;
  v1::EvaluateWait& wait = *response.mutable_wait();
  *wait.mutable_wait() = world_.queue.wait_of(name);
  for (const v1::WaitAhead& one : wait.wait().ahead()) wait.add_behind(one.name());
  if (!wait.wait().reason().empty()) write(std::move(response));
}

Hold EvaluateStream::hold_models(const std::optional<v1::Job>& job) const {
  v1::RunConfig named;
  if (request_.has_model()) named.mutable_model()->set_name(parse_model_name(request_.model()));
  *named.mutable_data() = request_.data();
  if (named.data().tokenizer().empty() && job)
    named.mutable_data()->set_tokenizer(job->resolved().data().tokenizer());
  return world_.folders.hold_models(named);
}

Hold EvaluateStream::pin_checkpoint(const fs::path& folder) const {
  const auto name = checkpoint_at(world_.state.jobs(), folder);
  if (!name) return {};
  auto pin = world_.store.pin_checkpoint(*name, "an evaluation");
  if (!fs::exists(folder))
    throw NotFound(fmt::format("{} was deleted", checkpoint_resource(name->job, name->folder)),
                   train::kCheckpointNotFound, {{"job", name->job}, {"folder", name->folder}});
  return pin;
}

void EvaluateStream::prepare(const std::optional<v1::Job>& job, Evaluation::Work* work) const {
  v1::RunConfig config = config_for(job);
  config.mutable_model()->set_name("evaluated");
  work->config = world_.resolver.resolve_evaluation(config, work->model_folder, {});
  work->tokenizer_folder = world_.folders.tokenizer_folder(work->config, work->model_folder);
  work->text = world_.tokenization.tokenize(
      work->config, work->model_folder, work->tokenizer_folder,
      [this](const auto&, std::uint64_t, std::uint64_t) { check_wanted(); });
  // How many samples there are is known now.
  if (!work->text.tokenizer.empty())
    work->config = world_.resolver.resolve_evaluation(config, work->model_folder, work->text);
}

void EvaluateStream::check_wanted() const {
  if (given_up()) throw Cancelled("the evaluation was given up");
}

void EvaluateStream::part_done(const v1::EvaluateProgress& progress) {
  if (!world_.turn.is_open()) throw FailedPrecondition("the daemon is drained", "DRAINED");
  if (Clock::now() - told_ >= kBetweenProgress) {
    told_ = Clock::now();
    v1::EvaluateResponse response;
    *response.mutable_progress() = progress;
    write(std::move(response));
  }
  check_wanted();
}

v1::Evaluation EvaluateStream::evaluate() {
  check_numbers(request_);
  const std::optional<v1::Job> job = find_job();
  const auto models = hold_models(job);
  const fs::path source = world_.sources.find(source_of(request_), /*live=*/false).folder;
  auto pin = pin_checkpoint(source);
  const std::string told_source = source_text(request_, source);
  const std::string name = fmt::format("evaluations/{}", world_.next++);
  Evaluation::Work work;
  work.data_dir = world_.data_dir;
  work.batches = request_.batches();
  work.model_folder = source;
  std::optional<WeightsFolder> weights;
  if (train::is_checkpoint(source)) {
    work.model_folder = world_.state.root() / name;
    run_in_background([&] {
      read_checkpoint(told_source, source, [&] {
        weights.emplace(source, work.model_folder, [this] { check_wanted(); });
      });
    });
    pin.release();
  }
  prepare(job, &work);
  const Hold turn = take_turn(name);
  const auto hold = world_.budget.hold_evaluation(work.config, work.model_folder);
  spdlog::info("{}: {} on {}", name, told_source,
               work.config.data().validation_path().empty() ? "a job's validation data"
                                                            : work.config.data().validation_path());
  v1::Evaluation result =
      Evaluation(world_.executor, name).carry_out(work, [this](const auto& done) {
        part_done(done);
      });
  result.set_source(told_source);
  return result;
}

bool EvaluateStream::produce() {
  v1::EvaluateResponse last;
  *last.mutable_result() = in_request_terms(request_, [&] { return evaluate(); });
  write(std::move(last));
  finish();
  return false;
}

}  // namespace meshloom::control
