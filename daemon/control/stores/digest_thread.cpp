// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/stores/digest_thread.h"

#include <algorithm>
#include <span>
#include <vector>

#include "daemon/base/input_file.h"
#include "daemon/control/host/background_thread.h"

namespace meshloom::control {
namespace {

constexpr std::size_t kMostChunks = 8;
constexpr std::int64_t kPiece = 1 << 20;

}  // namespace

DigestThread::DigestThread(std::filesystem::path file, FileDigest known, std::int64_t bytes)
    : file_(std::move(file)),
      begin_(bytes),
      digest_(std::move(known)),
      caught_up_(digest_.position == begin_) {
  thread_ = std::thread([this] { run(); });
}

DigestThread::~DigestThread() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void DigestThread::append(std::string bytes) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return error_ || queue_.size() < kMostChunks; });
  check_error();
  queue_.push_back(std::move(bytes));
  changed_.notify_all();
}

bool DigestThread::drain_new() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return error_ || !caught_up_ || (queue_.empty() && !busy_); });
  return !error_ && caught_up_;
}

FileDigest DigestThread::finish() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return error_ || (caught_up_ && queue_.empty() && !busy_); });
  check_error();
  return std::move(digest_);
}

void DigestThread::check_error() {
  if (error_) std::rethrow_exception(error_);
}

void DigestThread::run() {
  give_way_to_training();
  try {
    catch_up();
  } catch (...) {
    const std::lock_guard lock(mutex_);
    error_ = std::current_exception();
    changed_.notify_all();
    return;
  }
  std::unique_lock lock(mutex_);
  caught_up_ = digest_.position == begin_;
  while (true) {
    busy_ = false;
    changed_.notify_all();
    changed_.wait(lock, [&] { return ending_ || !queue_.empty(); });
    if (ending_) return;
    const std::string bytes = std::move(queue_.front());
    queue_.pop_front();
    busy_ = true;
    changed_.notify_all();
    lock.unlock();
    digest_.sha256.update(std::as_bytes(std::span(bytes)));
    digest_.position += static_cast<std::int64_t>(bytes.size());
    lock.lock();
  }
}

void DigestThread::catch_up() {
  if (digest_.position == begin_) return;
  const base::InputFile file(file_, base::InputFile::Links::kRefuse);
  std::vector<std::byte> bytes(static_cast<std::size_t>(kPiece));
  while (digest_.position < begin_) {
    {
      const std::lock_guard lock(mutex_);
      if (ending_) return;
    }
    const auto piece = static_cast<std::size_t>(std::min(kPiece, begin_ - digest_.position));
    const auto part = std::span(bytes).first(piece);
    file.read(static_cast<std::uint64_t>(digest_.position), part);
    digest_.sha256.update(part);
    digest_.position += static_cast<std::int64_t>(piece);
  }
}

}  // namespace meshloom::control
