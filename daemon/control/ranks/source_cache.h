// SPDX-License-Identifier: Apache-2.0
// SourceCache: models that are loaded for generation, beside the runs of jobs.
#pragma once

#include <exception>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "daemon/control/host/daemon_service.h"
#include "daemon/control/host/memory_units.h"
#include "daemon/train/run/run.h"
#include "daemon/train/run/sampler.h"

namespace meshloom::control {

/// Loads what a SourceCache is asked for.
class SourceLoader {
 public:
  virtual ~SourceLoader() = default;
  struct Loaded {
    MemoryUnits memory;  ///< that it is counted by, let go after it
    std::unique_ptr<train::Sampler> sampler;
  };
  /// May block; called by the cache's thread. What it throws goes to those who asked.
  virtual Loaded load(const std::filesystem::path& folder) = 0;
};

/// Whoever asks for the same files at the same time shares one model, which lives as long as one of
/// them holds it. Models are loaded one at a time by a thread of the cache, so that training goes
/// on meanwhile, and let go by it too; no more than kMostLoaded are there at once, others wait. All
/// methods may be called from any thread.
class SourceCache final : public DaemonService {
 public:
  static constexpr std::size_t kMostLoaded = 2;

  /// `loader` outlives it.
  explicit SourceCache(SourceLoader& loader);
  /// Waits for a load that is under way. Sources may live on.
  ~SourceCache();
  SourceCache(const SourceCache&) = delete;
  SourceCache& operator=(const SourceCache&) = delete;

  struct Source {
    std::string id;  ///< for find()
    std::shared_ptr<train::Sampler> sampler;
    std::exception_ptr error;  ///< instead of the two
  };
  /// Called by the cache's thread, once. It must return at once, and says with false that nobody
  /// wants it any more; asked with null before a load.
  using Ready = std::function<bool(const Source*)>;
  void request(const std::filesystem::path& folder, Ready ready);
  /// A source that somebody holds. Throws NotFound.
  std::shared_ptr<train::Sampler> find(const std::string& id) const;
  /// All that wait get Unavailable (STOPPING). Does not wait.
  void request_stop() override;

 private:
  struct Shared;

  void work();
  Source load(const std::filesystem::path& folder, const std::string& id);

  SourceLoader& loader_;
  std::shared_ptr<Shared> shared_;
  std::thread thread_;
};

}  // namespace meshloom::control
