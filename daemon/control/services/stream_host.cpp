// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/services/stream_host.h"

#include <algorithm>
#include <utility>

#include "kernels/base/log.h"

namespace meshloom::control {

StreamHost::StreamHost(const Options& options)
    : options_(options), slots_(options.what, options.most_streams) {
  for (int i = 0; i < options_.threads; ++i) threads_.emplace_back([this] { work(); });
  threads_.emplace_back([this] { watch_writes(); });
}

StreamHost::~StreamHost() { stop(); }

void StreamHost::stop() {
  std::vector<std::deque<std::function<void()>>> dropped;
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
    for (auto& [name, client] : clients_) dropped.push_back(std::exchange(client.tasks, {}));
  }
  tasks_changed_.notify_all();
  guests_changed_.notify_all();
  for (auto& thread : threads_)
    if (thread.joinable()) thread.join();
}

void StreamHost::add(std::weak_ptr<Guest> guest) {
  const std::lock_guard lock(mutex_);
  guests_.push_back(std::move(guest));
  guests_changed_.notify_all();
}

void StreamHost::post(const std::string& client, std::function<void()> task) {
  const std::lock_guard lock(mutex_);
  if (ending_) return;
  clients_[client].tasks.push_back(std::move(task));
  tasks_changed_.notify_one();
}

std::map<std::string, StreamHost::Client>::iterator StreamHost::next_client() {
  const int most_of_one = options_.threads - options_.threads / 4;
  auto next = clients_.end();
  for (auto item = clients_.begin(); item != clients_.end(); ++item) {
    if (item->second.tasks.empty() || item->second.running >= most_of_one) continue;
    if (next == clients_.end() || item->second.served < next->second.served) next = item;
  }
  return next;
}

void StreamHost::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    auto client = clients_.end();
    tasks_changed_.wait(lock,
                        [&] { return ending_ || (client = next_client()) != clients_.end(); });
    if (ending_) return;
    std::function<void()> task = std::move(client->second.tasks.front());
    client->second.tasks.pop_front();
    ++client->second.running;
    client->second.served = ++begun_;
    lock.unlock();
    task();
    task = nullptr;  // a stream may end with it, which takes the lock of others
    lock.lock();
    --client->second.running;
    if (client->second.running == 0 && client->second.tasks.empty()) clients_.erase(client);
    // One of this client's may have its turn now.
    tasks_changed_.notify_one();
  }
}

void StreamHost::watch_writes() {
  std::unique_lock lock(mutex_);
  while (!ending_) {
    if (guests_.empty()) {
      guests_changed_.wait(lock, [this] { return ending_ || !guests_.empty(); });
      continue;
    }
    guests_changed_.wait_for(lock, options_.write_timeout / 4, [this] { return ending_; });
    std::vector<std::shared_ptr<Guest>> alive;
    guests_.erase(std::remove_if(guests_.begin(), guests_.end(),
                                 [&](const std::weak_ptr<Guest>& guest) {
                                   alive.push_back(guest.lock());
                                   return alive.back() == nullptr;
                                 }),
                  guests_.end());
    lock.unlock();
    const auto limit = Clock::now() - options_.write_timeout;
    for (const auto& guest : alive)
      if (guest && guest->cut_off_if_stuck(limit))
        spdlog::info("one of the {} is cut off: its client took nothing for {} ms", options_.what,
                     options_.write_timeout.count());
    alive.clear();
    lock.lock();
  }
}

}  // namespace meshloom::control
