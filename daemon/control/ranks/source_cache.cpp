// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/ranks/source_cache.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <vector>

#include "daemon/base/file_stamp.h"
#include "daemon/train/run/sampler.h"
#include "kernels/base/error.h"

namespace meshloom::control {
namespace {

namespace fs = std::filesystem;

/// Folder and files with their sizes and times: another one if a file was replaced.
std::string identity(const fs::path& folder) {
  std::error_code error;
  std::vector<std::string> files;
  for (const auto& file : fs::directory_iterator(folder, error))
    if (const auto stamp = base::file_stamp(file.path()))
      files.push_back(file.path().filename().string() + ":" + *stamp);
  std::sort(files.begin(), files.end());
  return fmt::format("{}|{}", folder.string(), fmt::join(files, "|"));
}

SourceCache::Source failed(std::exception_ptr error) { return {{}, nullptr, std::move(error)}; }

SourceCache::Source stopped() {
  return failed(std::make_exception_ptr(Unavailable("the daemon is stopping", "STOPPING")));
}

}  // namespace

/// Outlives the cache if sources do.
struct SourceCache::Shared {
  struct Request {
    fs::path folder;
    std::string id;
    Ready ready;
  };
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<Request> waiting;
  std::map<std::string, std::weak_ptr<train::Sampler>> loaded;  ///< by id
  std::vector<std::unique_ptr<SourceLoader::Loaded>> let_go;    ///< to be destroyed by the thread
  std::size_t there = 0;  ///< being loaded, loaded, or not yet destroyed
  bool stopping = false;

  std::shared_ptr<train::Sampler> find(const std::string& id) {
    const auto found = loaded.find(id);
    return found == loaded.end() ? nullptr : found->second.lock();
  }
  /// The first request that can be served: by what is there, or because there is room.
  std::deque<Request>::iterator servable() {
    std::erase_if(loaded, [](const auto& item) { return item.second.expired(); });
    if (there < kMostLoaded) return waiting.begin();
    return std::find_if(waiting.begin(), waiting.end(),
                        [&](const Request& request) { return find(request.id) != nullptr; });
  }
};

SourceCache::SourceCache(SourceLoader& loader)
    : loader_(loader), shared_(std::make_shared<Shared>()), thread_([this] { work(); }) {}

SourceCache::~SourceCache() {
  request_stop();
  thread_.join();
}

void SourceCache::request(const fs::path& folder, Ready ready) {
  Shared::Request request{folder, identity(folder), std::move(ready)};
  {
    const std::lock_guard lock(shared_->mutex);
    if (!shared_->stopping) {
      shared_->waiting.push_back(std::move(request));
      shared_->changed.notify_all();
      return;
    }
  }
  const Source none = stopped();
  request.ready(&none);
}

std::shared_ptr<train::Sampler> SourceCache::find(const std::string& id) const {
  const std::lock_guard lock(shared_->mutex);
  auto sampler = shared_->find(id);
  if (!sampler) throw NotFound(fmt::format("source {} is not loaded", id), "SOURCE_NOT_LOADED");
  return sampler;
}

void SourceCache::request_stop() {
  std::deque<Shared::Request> waiting;
  {
    const std::lock_guard lock(shared_->mutex);
    shared_->stopping = true;
    waiting.swap(shared_->waiting);
    shared_->changed.notify_all();
  }
  const Source none = stopped();
  for (const auto& request : waiting) request.ready(&none);
}

void SourceCache::work() {
  Shared& shared = *shared_;
  std::unique_lock lock(shared.mutex);
  while (true) {
    auto next = shared.waiting.end();
    shared.changed.wait(lock, [&] {
      next = shared.servable();
      return shared.stopping || !shared.let_go.empty() || next != shared.waiting.end();
    });
    if (shared.stopping) return;
    if (!shared.let_go.empty()) {
      std::unique_ptr<SourceLoader::Loaded> gone = std::move(shared.let_go.back());
      shared.let_go.pop_back();
      lock.unlock();
      gone.reset();
      lock.lock();
      --shared.there;
      continue;
    }
    const Shared::Request request = std::move(*next);
    shared.waiting.erase(next);
    Source source{request.id, shared.find(request.id), nullptr};
    const bool known = source.sampler != nullptr;
    if (!known) ++shared.there;
    lock.unlock();
    if (!known && request.ready(nullptr)) source = load(request.folder, request.id);
    lock.lock();
    if (source.sampler)
      shared.loaded[source.id] = source.sampler;
    else
      --shared.there;
    lock.unlock();
    if (source.sampler || source.error) request.ready(&source);
    source = {};
    lock.lock();
  }
}

SourceCache::Source SourceCache::load(const fs::path& folder, const std::string& id) {
  using Loaded = SourceLoader::Loaded;
  try {
    const std::shared_ptr<Loaded> loaded(new Loaded(loader_.load(folder)),
                                         [shared = shared_](Loaded* gone) {
                                           const std::lock_guard lock(shared->mutex);
                                           shared->let_go.emplace_back(gone);
                                           shared->changed.notify_all();
                                         });
    return {id, {loaded, loaded->sampler.get()}, nullptr};
  } catch (...) {
    return failed(std::current_exception());
  }
}

}  // namespace meshloom::control
