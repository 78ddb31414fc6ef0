// SPDX-License-Identifier: Apache-2.0
#include "daemon/cli/jobs/job_facts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <ctime>

#include "daemon/base/enum_names.h"
#include "daemon/base/states.h"
#include "daemon/cli/output/output.h"
#include "daemon/cli/plans/plan_text.h"
#include "kernels/base/integer_math.h"

namespace meshloom::cli {
namespace {

/// Seconds since 1970 of an RFC 3339 time in UTC; 0 for anything else.
std::int64_t seconds_of(const std::string& time) {
  std::tm parts{};
  if (time.empty() || ::strptime(time.c_str(), "%Y-%m-%dT%H:%M:%S", &parts) == nullptr) return 0;
  return ::timegm(&parts);
}

std::string parameters_text(std::int64_t parameters) {
  const auto count = static_cast<double>(parameters);
  if (count >= 1e9) return fmt::format("{:.2f} billion parameters", count / 1e9);
  if (count >= 1e6) return fmt::format("{:.1f} million parameters", count / 1e6);
  return plural(parameters, "parameter");
}

/// Returns the tokens of the data; for text that a tokenizer reads, 0 before the job has begun.
std::int64_t data_tokens(const v1::Job& job) {
  return job.data().tokens() > 0 ? job.data().tokens() : job.resolved().data().identity().tokens();
}

/// Samples of the training part; 0 where they begin at documents, which only the daemon knows.
std::int64_t training_samples(const v1::RunConfig& run) {
  const v1::DataConfig& data = run.data();
  if (data.has_pack_documents() && !data.pack_documents()) return 0;
  const double held_out = data.validation_path().empty() ? data.validation_split() : 0.0;
  const std::int64_t tokens = data.identity().tokens();
  const std::int64_t training =
      tokens - static_cast<std::int64_t>(std::floor(held_out * static_cast<double>(tokens)));
  const std::int64_t seq_len = run.training().seq_len();
  return seq_len > 0 && training > seq_len ? (training - 1) / seq_len : 0;
}

/// "1.37", and of less than one two digits that say something: "0.0042".
std::string epochs_text(double epochs) {
  if (epochs <= 0.0 || epochs >= 1.0) return fmt::format("{:.2f}", epochs);
  const int decimals = 1 - static_cast<int>(std::floor(std::log10(epochs)));
  return fmt::format("{:.{}f}", epochs, decimals);
}

std::string data_text(const v1::Job& job) {
  const v1::RunConfig& run = job.resolved();
  const v1::DataIdentity& identity = run.data().identity();
  std::string text = fmt::format("{}: {}", run.data().path(),
                                 plural(std::max<std::int64_t>(identity.file_count(), 1), "file"));
  if (job.data().documents() > 0) text += ", " + plural(job.data().documents(), "document");
  if (const std::int64_t tokens = data_tokens(job); tokens > 0)
    text += ", " + plural(tokens, "token");
  else
    text += fmt::format(", {} of text; its tokens are made when the job begins",
                        bytes_text(static_cast<std::int64_t>(identity.bytes())));
  const std::int64_t samples =
      job.data().samples() > 0 ? job.data().samples() : training_samples(run);
  if (samples > 0)
    text += fmt::format(
        ", {} to train on, {} epochs", plural(samples, "sample"),
        epochs_text(static_cast<double>(job.steps() * run.training().global_batch_size()) /
                    static_cast<double>(samples)));
  return text;
}

std::string model_text(const v1::ModelSource& model, std::int64_t parameters) {
  std::string text = !model.preset().empty()      ? model.preset()
                     : !model.config().empty()    ? model.config()
                     : !model.hf_folder().empty() ? model.hf_folder()
                                                  : "models/" + model.name();
  if (parameters > 0) text += ", " + parameters_text(parameters);
  if (model.fresh_head()) text += ", with a new output head";
  return text;
}

std::string batch_text(const v1::RunConfig& run) {
  const v1::TrainingConfig& training = run.training();
  const std::int64_t replicas =
      std::max(1, run.mesh().dp()) * std::max<std::int64_t>(1, run.mesh().fsdp());
  const std::int64_t micro = std::max<std::int64_t>(1, training.micro_batch_size());
  const std::int64_t parts = divide_up(divide_up(training.global_batch_size(), replicas), micro);
  return fmt::format("{} of {} = {} a step; {} at once on {}{}",
                     plural(training.global_batch_size(), "sample"),
                     plural(training.seq_len(), "token"),
                     grouped_digits(training.global_batch_size() * training.seq_len()), micro,
                     replicas == 1 ? "one replica" : fmt::format("each of {} replicas", replicas),
                     parts > 1 ? fmt::format(", {} times", parts) : "");
}

/// "adamw, lr 0.0003; transformer.wte: lr 3e-05, weight decay 0; frozen: transformer.h.[0-3]";
/// empty where all parameters are alike.
std::string optimizer_text(const v1::RunConfig& run) {
  const v1::OptimizerConfig& optimizer = run.optimizer();
  if (optimizer.groups().empty() && run.training().frozen().empty()) return {};
  std::string text = fmt::format(
      "{}, lr {:g}",
      base::enum_spelling(*v1::OptimizerType_descriptor()->FindValueByNumber(optimizer.type())),
      optimizer.lr());
  for (const v1::ParameterGroup& group : optimizer.groups()) {
    const double lr = group.has_lr()          ? group.lr()
                      : group.has_lr_factor() ? group.lr_factor() * optimizer.lr()
                                              : optimizer.lr();
    text += fmt::format("; {}: lr {:g}", group.pattern(), lr);
    if (group.has_weight_decay()) text += fmt::format(", weight decay {:g}", group.weight_decay());
  }
  for (int i = 0; i < run.training().frozen_size(); ++i)
    text += fmt::format("{}{}", i == 0 ? "; frozen: " : ", ", run.training().frozen(i));
  return text;
}

std::string time_text(const v1::Job& job, std::int64_t now) {
  const bool ended = base::is_final(job.state());
  const std::int64_t begin = seconds_of(job.create_time());
  const std::int64_t end = ended ? seconds_of(job.finish_time()) : now;
  std::string text;
  if (begin > 0 && end >= begin)
    text =
        fmt::format("{} since it was submitted", duration_text(static_cast<double>(end - begin)));
  if (job.ran_seconds() > 0)
    text += fmt::format("{}{} with the ranks", text.empty() ? "" : ", ",
                        duration_text(job.ran_seconds()));
  const v1::TrainingConfig& training = job.resolved().training();
  const double rate = job.last_step().tokens_per_second();
  if (ended || rate <= 0.0 || !job.has_resolved() || job.last_step().step() == 0) return text;
  // Labels and not positions are counted in the rate; of masked models they are fewer.
  const double per_step =
      static_cast<double>(job.last_step().tokens()) / static_cast<double>(job.last_step().step());
  const double tokens =
      per_step > 0.0 ? per_step
                     : static_cast<double>(training.global_batch_size() * training.seq_len());
  return text +
         fmt::format("{}about {} left, validation not counted", text.empty() ? "" : "; ",
                     duration_text(static_cast<double>(job.steps() - job.step()) * tokens / rate));
}

/// Parameters of a job's model, as the daemon counts them; 0 if it cannot say.
std::int64_t count_parameters(Client& client, const v1::Job& job) {
  v1::DescribePlanRequest request;
  *request.mutable_model() = job.resolved().model();
  request.mutable_query()->mutable_mesh()->set_dp(1);
  try {
    return client.call(client.plans(), &v1::PlanService::Stub::DescribePlan, request)
        .description()
        .parameter_count();
  } catch (const CliError&) {
    return 0;  // its model is gone, or there is no plan for it: the line does without
  }
}

}  // namespace

std::vector<Fact> job_facts(const v1::Job& job, std::int64_t parameters, std::int64_t now) {
  std::vector<Fact> facts;
  if (job.has_resolved()) {
    const v1::RunConfig& run = job.resolved();
    facts.push_back({"data", data_text(job)});
    facts.push_back({"model", model_text(run.model(), parameters)});
    facts.push_back({"batch", batch_text(run)});
    facts.push_back({"optimizer", optimizer_text(run)});
    facts.push_back({"mesh", mesh_text(run.mesh())});
    facts.push_back({"plan", plan_text(run.plan())});
    facts.push_back({"device", device_text(run)});
  }
  facts.push_back({"time", time_text(job, now)});
  return facts;
}

bool tokens_are_known(const v1::Job& job) { return !job.has_resolved() || data_tokens(job) > 0; }

void print_data_fact(const v1::Job& job) { print_line("data", data_text(job)); }

void print_facts(Client& client, const v1::Job& job) {
  const std::int64_t parameters = job.has_resolved() ? count_parameters(client, job) : 0;
  for (const Fact& fact : job_facts(job, parameters, std::time(nullptr)))
    print_line(fact.name, fact.text);
}

}  // namespace meshloom::cli
