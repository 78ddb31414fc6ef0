// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/jobs/memory_admission.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <utility>

#include "daemon/control/jobs/bytes_text.h"
#include "daemon/plan/job_memory.h"
#include "kernels/base/error.h"
#include "kernels/base/integer_math.h"

namespace meshloom::control {
namespace {

/// Above this share of a host's memory a job gets a note.
constexpr double kTight = 0.8;
/// The models of generation are in rank 0's process, on the first host.
constexpr std::size_t kOwnHost = 0;

using Part = std::pair<const char*, std::int64_t>;

std::array<Part, 8> parts_of(const planner::MemoryEstimate& m) {
  return {{{"parameters", m.parameters},
           {"gradients", m.gradients},
           {"optimizer", m.optimizer},
           {"activations", m.activations},
           {"gathered", m.gathered},
           {"workspace", m.workspace},
           {"communication", m.communication},
           {"process", m.process}}};
}

/// What a job takes of one host.
struct Need {
  const HostMemory* host = nullptr;
  base::MemoryLimit limit;
  planner::MemoryEstimate rank{};
  std::int64_t sources = 0;

  double bytes() const { return static_cast<double>(rank.total()) * host->ranks + sources; }
  double share() const { return bytes() / static_cast<double>(limit.bytes); }
};

std::string describe(const Need& need) {
  std::vector<std::string> parts;
  for (const auto& [name, bytes] : parts_of(need.rank))
    if (bytes > 0) parts.push_back(fmt::format("{} {}", name, bytes_text(bytes)));
  return fmt::format(
      "the job needs about {} of host {}, {:.0f} % of its {} ({}): {} {} of {} each ({}){}",
      bytes_text(need.bytes()), need.host->name, 100.0 * need.share(), bytes_text(need.limit.bytes),
      need.limit.source, need.host->ranks, need.host->ranks == 1 ? "rank" : "ranks",
      bytes_text(need.rank.total()), fmt::join(parts, ", "),
      need.sources == 0 ? std::string()
                        : fmt::format(", and {} of models that are loaded for generation",
                                      bytes_text(need.sources)));
}

struct Advice {
  const char* field;
  const char* text;
};

/// What to change about the largest part of the need.
Advice advice_for(const v1::RunConfig& run, const planner::MemoryEstimate& m) {
  const std::int64_t state = m.parameters + m.gradients + m.optimizer + m.gathered;
  if (state > m.activations + m.workspace + m.communication) {
    if (run.mesh().dp() > 1) return {"run.mesh.fsdp", "shard the model over fsdp instead of dp"};
    return {"run.model", "take a smaller model or more hosts"};
  }
  if (run.training().micro_batch_size() > 1)
    return {"run.training.micro_batch_size", "take a smaller one"};
  if (run.plan().activation_checkpoint() != v1::ACTIVATION_CHECKPOINT_FULL)
    return {"run.plan.activation_checkpoint", "full keeps less for backward"};
  return {"run.training.seq_len", "take shorter samples"};
}

[[noreturn]] void refuse(const Need& need, const v1::RunConfig& run) {
  const Advice advice = advice_for(run, need.rank);
  Error::Metadata metadata = {
      {"field", advice.field},
      {"host", need.host->name},
      {"ranks", std::to_string(need.host->ranks)},
      {"needed_bytes", fmt::format("{:.0f}", need.bytes())},
      {"limit_bytes", std::to_string(need.limit.bytes)},
      {"limit", need.limit.source},
      {"rank_bytes", std::to_string(need.rank.total())},
      {"generation_bytes", std::to_string(need.sources)},
  };
  for (const auto& [name, bytes] : parts_of(need.rank))
    metadata[fmt::format("{}_bytes", name)] = std::to_string(bytes);
  // What is only evaluated cannot ask for it.
  const bool evaluates = run.training().steps() == 0 && run.training().global_batch_size() > 0;
  throw ResourceExhausted(fmt::format("{}: {}; {}{}", advice.field, describe(need), advice.text,
                                      evaluates ? "" : ", or try anyway with overcommit: true"),
                          kMemoryEstimate, std::move(metadata));
}

std::int64_t bytes_with(v1::RunConfig config, const nn::ModelConfig& model, std::int64_t samples) {
  config.mutable_training()->set_micro_batch_size(samples);
  return plan::estimate_job_memory(config, model).total();
}

}  // namespace

CacheNeed cache_need(const train::PromptLimits& limits,
                     const std::vector<train::SampleStart>& sequences) {
  CacheNeed need;
  need.copies = limits.cache_copies;
  need.sequences = static_cast<std::int64_t>(sequences.size());
  for (const train::SampleStart& start : sequences) {
    const auto tokens = static_cast<std::int64_t>(start.prompt.size()) + start.params.max_tokens();
    need.bytes += limits.sequence_cache_bytes(tokens);
  }
  return need;
}

MemoryAdmission::MemoryAdmission(std::vector<HostMemory> hosts, ReadLimit read_limit)
    : hosts_(std::move(hosts)), read_limit_(std::move(read_limit)) {
  check_internal(!hosts_.empty(), "memory admission: there is no host");
}

base::MemoryLimit MemoryAdmission::limit_of(std::size_t host) const {
  return host == kOwnHost ? read_limit_() : hosts_[host].limit;
}

std::optional<std::string> MemoryAdmission::check_job(const v1::RunConfig& resolved,
                                                      const nn::ModelConfig& model,
                                                      bool overcommit) const {
  const planner::MemoryEstimate rank = plan::estimate_job_memory(resolved, model);
  std::optional<Need> worst;
  for (std::size_t i = 0; i < hosts_.size(); ++i) {
    Need need{&hosts_[i], limit_of(i), rank};
    if (need.limit.bytes == 0) continue;
    if (i == kOwnHost) {
      const std::lock_guard lock(sources_->mutex);
      need.sources = sources_->bytes;
    }
    if (!worst || need.share() > worst->share()) worst = need;
  }
  if (!worst || worst->share() < kTight) return std::nullopt;
  if (worst->share() <= 1.0) return describe(*worst);
  if (!overcommit) refuse(*worst, resolved);
  return "overcommit: " + describe(*worst);
}

std::shared_ptr<const void> MemoryAdmission::hold_source(std::int64_t weight_bytes,
                                                         std::int64_t job_bytes) {
  return hold("the model's weights take", weight_bytes,
              static_cast<double>(job_bytes) * hosts_[kOwnHost].ranks, limit_of(kOwnHost));
}

std::shared_ptr<const void> MemoryAdmission::hold_upload(std::int64_t bytes,
                                                         std::int64_t job_bytes) {
  const base::MemoryLimit limit = limit_of(kOwnHost);
  const int ranks = hosts_[kOwnHost].ranks;
  return hold("the data of a verb take", bytes * (ranks + 1), job_of(limit, job_bytes), limit);
}

std::shared_ptr<const void> MemoryAdmission::hold_cache(const CacheNeed& need,
                                                        std::int64_t job_bytes) {
  const base::MemoryLimit limit = limit_of(kOwnHost);
  const std::int64_t bytes = need.bytes * std::min(need.copies, hosts_[kOwnHost].ranks);
  return hold(fmt::format("the keys and values of {} {} take", need.sequences,
                          need.sequences == 1 ? "sequence" : "sequences"),
              bytes, job_of(limit, job_bytes), limit);
}

double MemoryAdmission::job_of(const base::MemoryLimit& limit, std::int64_t job_bytes) const {
  const double job = static_cast<double>(job_bytes) * hosts_[kOwnHost].ranks;
  return job > static_cast<double>(limit.bytes) ? 0 : job;
}

std::shared_ptr<const void> MemoryAdmission::hold(const std::string& text, std::int64_t bytes,
                                                  double job, const base::MemoryLimit& limit) {
  const std::lock_guard lock(sources_->mutex);
  const double all = job + static_cast<double>(sources_->bytes) + static_cast<double>(bytes);
  if (limit.bytes > 0 && all > static_cast<double>(limit.bytes))
    throw ResourceExhausted(
        fmt::format("{} {}, beside {} of the running job and {} of what is loaded for generation "
                    "already; host {} has {} ({})",
                    text, bytes_text(bytes), bytes_text(job), bytes_text(sources_->bytes),
                    hosts_[kOwnHost].name, bytes_text(limit.bytes), limit.source),
        kMemoryEstimate,
        {{"needed_bytes", std::to_string(bytes)},
         {"job_bytes", fmt::format("{:.0f}", job)},
         {"generation_bytes", std::to_string(sources_->bytes)},
         {"limit_bytes", std::to_string(limit.bytes)},
         {"limit", limit.source}});
  sources_->bytes += bytes;
  return {nullptr, [sources = sources_, bytes](const void*) {
            const std::lock_guard release(sources->mutex);
            sources->bytes -= bytes;
          }};
}

std::optional<std::string> choose_micro_batch(v1::RunConfig* resolved, const nn::ModelConfig& model,
                                              std::int64_t rank_bytes) {
  const std::int64_t share = resolved->training().micro_batch_size();
  const std::int64_t needed = bytes_with(*resolved, model, share);
  if (rank_bytes <= 0 || needed <= rank_bytes) return std::nullopt;
  // The least number of parts that fits: memory grows with the samples at once.
  std::int64_t too_few = 1, parts = share;
  while (parts - too_few > 1) {
    const std::int64_t middle = too_few + (parts - too_few) / 2;
    (bytes_with(*resolved, model, divide_up(share, middle)) <= rank_bytes ? parts : too_few) =
        middle;
  }
  const std::int64_t chosen = divide_up(share, parts);
  if (chosen == share) return std::nullopt;
  resolved->mutable_training()->set_micro_batch_size(chosen);
  constexpr double kMiB = 1 << 20;
  return fmt::format(
      "run.training.micro_batch_size: {} was chosen, gradients are accumulated over {} micro "
      "batches a step: all {} samples of a rank at once would need about {:.0f} MiB of the {:.0f} "
      "MiB that a rank may use",
      chosen, divide_up(share, chosen), share, static_cast<double>(needed) / kMiB,
      static_cast<double>(rank_bytes) / kMiB);
}

}  // namespace meshloom::control
