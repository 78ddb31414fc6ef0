// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/jobs/memory_admission.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <utility>

#include "daemon/control/jobs/bytes_text.h"
#include "daemon/plan/job_memory.h"
#include "daemon/train/config/sample_start.h"
#include "kernels/base/error.h"
#include "kernels/base/integer_math.h"

namespace meshloom::control {
namespace {

/// Above this share of a host's memory a job gets a note.
constexpr double kTight = 0.8;
/// The source of a device's limit.
constexpr const char* kDeviceMemory = "device memory";
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

/// "cuda:0 of host a"; without a device the host's own memory.
std::string memory_place(const std::string& host, const std::string& device) {
  return (device.empty() ? "" : device + " of ") + "host " + host;
}

/// What a job takes of one host, or of one device of a host.
struct Need {
  std::string host;
  int ranks = 1;  ///< that share it
  base::MemoryLimit limit;
  planner::MemoryEstimate rank{};  ///< the parts that lie there
  std::int64_t sources = 0;
  std::string device = {};  ///< "cuda:0"; empty: the host's own memory

  double bytes() const { return static_cast<double>(rank.total()) * ranks + sources; }
  double share() const { return bytes() / static_cast<double>(limit.bytes); }
};

/// What a resolved config takes of the devices of a host.
std::vector<Need> device_needs(const v1::RunConfig& resolved, const train::HostDevices& host,
                               const planner::MemoryEstimate& on_device) {
  std::vector<Need> needs;
  for (const train::UsedDevice& used : train::used_devices(resolved.device(), host))
    needs.push_back({host.host,
                     used.ranks,
                     {used.device.memory_bytes, kDeviceMemory},
                     on_device,
                     0,
                     to_string(Device{DeviceKind::kCuda, used.device.index})});
  return needs;
}

std::string describe(const Need& need) {
  std::vector<std::string> parts;
  for (const auto& [name, bytes] : parts_of(need.rank))
    if (bytes > 0) parts.push_back(fmt::format("{} {}", name, bytes_text(bytes)));
  return fmt::format(
      "the job needs about {} of {}, {:.0f} % of its {} ({}): {} {} of {} each ({}){}",
      bytes_text(need.bytes()), memory_place(need.host, need.device), 100.0 * need.share(),
      bytes_text(need.limit.bytes), need.limit.source, need.ranks,
      need.ranks == 1 ? "rank" : "ranks", bytes_text(need.rank.total()), fmt::join(parts, ", "),
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
  // The host of a job on devices, whose tensors lie there.
  if (m.tensors() == 0) return {"run.device", "have fewer ranks on that host"};
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
      {"host", need.host},
      {"ranks", std::to_string(need.ranks)},
      {"needed_bytes", fmt::format("{:.0f}", need.bytes())},
      {"limit_bytes", std::to_string(need.limit.bytes)},
      {"limit", need.limit.source},
      {"rank_bytes", std::to_string(need.rank.total())},
      {"generation_bytes", std::to_string(need.sources)},
  };
  for (const auto& [name, bytes] : parts_of(need.rank))
    metadata[fmt::format("{}_bytes", name)] = std::to_string(bytes);
  if (!need.device.empty()) metadata["device"] = need.device;
  // What is only evaluated cannot ask for it.
  const bool evaluates = run.training().steps() == 0 && run.training().global_batch_size() > 0;
  throw ResourceExhausted(fmt::format("{}: {}; {}{}", advice.field, describe(need), advice.text,
                                      evaluates ? "" : ", or try anyway with overcommit: true"),
                          kMemoryEstimate, std::move(metadata));
}

/// What is to be held at a place, beside what takes memory there.
struct WantedMemory {
  std::string text;  ///< what needs it: "the model's weights take"
  double bytes = 0.0, job = 0.0, sources = 0.0;
  std::string host;
  std::string device = {};  ///< "cuda:0"; empty: the host's own memory

  double all() const { return bytes + job + sources; }
};

[[noreturn]] void refuse(const WantedMemory& wanted, const base::MemoryLimit& limit) {
  Error::Metadata metadata = {{"needed_bytes", fmt::format("{:.0f}", wanted.bytes)},
                              {"job_bytes", fmt::format("{:.0f}", wanted.job)},
                              {"generation_bytes", fmt::format("{:.0f}", wanted.sources)},
                              {"limit_bytes", std::to_string(limit.bytes)},
                              {"limit", limit.source}};
  if (!wanted.device.empty()) metadata["device"] = wanted.device;
  throw ResourceExhausted(
      fmt::format("{} {}, beside {} of the running job and {} of what is loaded for generation "
                  "already; {} has {} ({})",
                  wanted.text, bytes_text(wanted.bytes), bytes_text(wanted.job),
                  bytes_text(wanted.sources), memory_place(wanted.host, wanted.device),
                  bytes_text(limit.bytes), limit.source),
      kMemoryEstimate, std::move(metadata));
}

/// Of the memory that holds the tensors.
std::int64_t bytes_with(v1::RunConfig config, const nn::ModelConfig& model, std::int64_t samples) {
  config.mutable_training()->set_micro_batch_size(samples);
  const planner::MemoryEstimate estimate = plan::estimate_job_memory(config, model);
  return train::has_device_memory(config.device()) ? plan::on_device(estimate).total()
                                                   : estimate.total();
}

}  // namespace

CacheNeed cache_need(const train::PromptLimits& limits,
                     const std::vector<train::SampleStart>& sequences) {
  CacheNeed need;
  need.copies = limits.cache_copies;
  need.shards = limits.cache_shards;
  need.device = limits.device;
  need.sequences = static_cast<std::int64_t>(sequences.size());
  for (const train::SampleStart& start : sequences) {
    const auto tokens = static_cast<std::int64_t>(start.prompt.size()) + start.params.max_tokens();
    need.bytes += limits.sequence_cache_bytes(tokens);
  }
  return need;
}

MemoryAdmission::MemoryAdmission(std::vector<HostMemory> hosts, ReadLimit read_limit,
                                 train::WorldDevices devices)
    : hosts_(std::move(hosts)), read_limit_(std::move(read_limit)), devices_(std::move(devices)) {
  check_internal(!hosts_.empty(), "memory admission: there is no host");
}

base::MemoryLimit MemoryAdmission::limit_of(std::size_t host) const {
  return host == kOwnHost ? read_limit_() : hosts_[host].limit;
}

std::optional<std::string> MemoryAdmission::check_job(const v1::RunConfig& resolved,
                                                      const nn::ModelConfig& model,
                                                      bool overcommit) const {
  const planner::MemoryEstimate rank = plan::estimate_job_memory(resolved, model);
  const bool device = train::has_device_memory(resolved.device());
  const std::int64_t sources = sources_.taken(kHostAccount);
  const std::int64_t device_sources = sources_.taken(kDeviceAccount);
  std::optional<Need> worst;
  const auto look_at = [&worst](const Need& need) {
    if (need.limit.bytes > 0 && (!worst || need.share() > worst->share())) worst = need;
  };
  for (std::size_t i = 0; i < hosts_.size(); ++i)
    look_at({hosts_[i].name, hosts_[i].ranks, limit_of(i),
             device ? plan::beside_device(rank) : rank, i == kOwnHost ? sources : 0});
  for (std::size_t i = 0; device && i < devices_.size(); ++i)
    for (Need& need : device_needs(resolved, devices_[i], plan::on_device(rank))) {
      if (i == kOwnHost) need.sources = device_sources * need.ranks;
      look_at(need);
    }
  if (!worst || worst->share() < kTight) return std::nullopt;
  if (worst->share() <= 1.0) return describe(*worst);
  if (!overcommit) refuse(*worst, resolved);
  return "overcommit: " + describe(*worst);
}

MemoryUnits MemoryAdmission::hold_source(std::int64_t weight_bytes, std::int64_t job_bytes) {
  return hold("the model's weights take", weight_bytes,
              static_cast<double>(job_bytes) * hosts_[kOwnHost].ranks, limit_of(kOwnHost));
}

MemoryUnits MemoryAdmission::hold_upload(std::int64_t bytes, std::int64_t job_bytes) {
  const base::MemoryLimit limit = limit_of(kOwnHost);
  const int ranks = hosts_[kOwnHost].ranks;
  return hold("the data of a verb take", bytes * (ranks + 1), job_of(limit, job_bytes), limit);
}

MemoryUnits MemoryAdmission::hold_cache(const CacheNeed& need, const RankBytes& job) {
  const std::string text = fmt::format("the keys and values of {} {} take", need.sequences,
                                       need.sequences == 1 ? "sequence" : "sequences");
  if (train::has_device_memory(need.device))
    return hold_on_device(text, divide_up<std::int64_t>(need.bytes, need.shards), need.device,
                          job.device);
  const base::MemoryLimit limit = limit_of(kOwnHost);
  const std::int64_t bytes = need.bytes * std::min(need.copies, hosts_[kOwnHost].ranks);
  return hold(text, bytes, job_of(limit, job.host), limit);
}

MemoryUnits MemoryAdmission::hold_weights(std::int64_t rank_bytes, const std::string& device,
                                          const RankBytes& job) {
  constexpr const char* kText = "the model's weights take";
  if (train::has_device_memory(device))
    return hold_on_device(kText, rank_bytes, device, job.device);
  return hold_source(rank_bytes * hosts_[kOwnHost].ranks, job.host);
}

double MemoryAdmission::job_of(const base::MemoryLimit& limit, std::int64_t job_bytes) const {
  const double job = static_cast<double>(job_bytes) * hosts_[kOwnHost].ranks;
  return job > static_cast<double>(limit.bytes) ? 0 : job;
}

MemoryUnits MemoryAdmission::hold(const std::string& text, std::int64_t bytes, double job,
                                  const base::MemoryLimit& limit) {
  return sources_.take({{kHostAccount, bytes}}, [&](const auto&, std::int64_t taken) {
    const WantedMemory wanted{text, static_cast<double>(bytes), job, static_cast<double>(taken),
                              hosts_[kOwnHost].name};
    if (limit.bytes > 0 && wanted.all() > static_cast<double>(limit.bytes)) refuse(wanted, limit);
  });
}

MemoryUnits MemoryAdmission::hold_on_device(const std::string& text, std::int64_t rank_bytes,
                                            const std::string& device, std::int64_t job_bytes) {
  const train::HostDevices& host = devices_.at(kOwnHost);
  return sources_.take({{kDeviceAccount, rank_bytes}}, [&](const auto&, std::int64_t taken) {
    for (const auto& [used, ranks] : train::used_devices(device, host)) {
      const base::MemoryLimit limit{used.memory_bytes, kDeviceMemory};
      const auto most = static_cast<double>(limit.bytes);
      WantedMemory wanted{text,
                          static_cast<double>(rank_bytes) * ranks,
                          static_cast<double>(job_bytes) * ranks,
                          static_cast<double>(taken) * ranks,
                          host.host,
                          to_string(Device{DeviceKind::kCuda, used.index})};
      if (wanted.job > most) wanted.job = 0.0;
      if (limit.bytes > 0 && wanted.all() > most) refuse(wanted, limit);
    }
  });
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
      "MiB that a rank may use{}",
      chosen, divide_up(share, chosen), share, static_cast<double>(needed) / kMiB,
      static_cast<double>(rank_bytes) / kMiB,
      train::has_device_memory(resolved->device()) ? " of its device" : "");
}

}  // namespace meshloom::control
