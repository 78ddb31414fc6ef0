// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/hooks/event_hook.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "daemon/control/hooks/hook_process.h"
#include "daemon/control/services/line_streams.h"
#include "kernels/base/error.h"
#include "kernels/base/log.h"

namespace meshloom::control {
namespace {

constexpr int kTries = 3;

std::int64_t size_of_file(const std::filesystem::path& path) {
  std::error_code error;
  const auto size = std::filesystem::file_size(path, error);
  return error ? 0 : static_cast<std::int64_t>(size);
}

std::string text_of(const nlohmann::json& event, const char* key) {
  const auto found = event.find(key);
  return found != event.end() && found->is_string() ? found->get<std::string>() : std::string();
}

/// Notes are for people: there are many, and none changes anything.
bool is_for_hooks(const std::string& line) {
  const auto event = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  const std::string kind = event.is_object() ? text_of(event, "event") : std::string();
  return kind == "state" || kind == "watch";
}

HookCall call_of(const std::string& command, const std::string& line,
                 std::chrono::milliseconds limit) {
  const auto event = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  HookCall call{.command = command, .input = line + "\n", .variables = {}, .limit = limit};
  const bool is_watch = text_of(event, "event") == "watch";
  call.variables = {{"MESHLOOM_JOB", text_of(event, "job")},
                    {"MESHLOOM_STATE", is_watch ? "watch" : text_of(event, "state")},
                    {"MESHLOOM_REASON", text_of(event, is_watch ? "condition" : "reason")}};
  return call;
}

}  // namespace

void EventHook::Waker::wake() {
  {
    const std::lock_guard lock(mutex);
    due = true;
  }
  changed.notify_all();
}

EventHook::EventHook(EventLog& log, Options options) : log_(log), options_(std::move(options)) {}

EventHook::~EventHook() { stop(); }

void EventHook::start() {
  if (options_.command.empty()) return forget_hooks(options_.spool);
  subscription_ = log_.subscribe(waker_);
  thread_ = std::thread([this] {
    try {
      run();
    } catch (const std::exception& error) {
      spdlog::error("hooks: none is started any more: {}", error.what());
    }
  });
}

void EventHook::stop() {
  {
    const std::lock_guard lock(waker_->mutex);
    stop_ = true;
  }
  waker_->wake();
  if (thread_.joinable()) thread_.join();
}

bool EventHook::wait(std::chrono::milliseconds time) {
  std::unique_lock lock(waker_->mutex);
  waker_->changed.wait_for(lock, time, [this] { return stop_.load(); });
  return !stop_;
}

void EventHook::run() {
  HookSpool spool(options_.spool, size_of_file(log_.path()));
  for (std::size_t left = spool.failed().size(); left > 0 && !stop_; --left) {
    if (!deliver(spool.failed().front())) break;
    spool.drop_first_failed();
  }
  LineReader lines(log_.path());
  lines.seek(spool.taken());
  while (!stop_) {
    {
      std::unique_lock lock(waker_->mutex);
      waker_->changed.wait(lock, [this] { return waker_->due || stop_; });
      waker_->due = false;
    }
    for (auto read = lines.read(); !read.empty() && !stop_; read = lines.read()) {
      for (const LineReader::Line& line : read) {
        if (stop_) return;
        const bool failed = is_for_hooks(line.text) && !deliver(line.text);
        // Where it was stopped the next daemon starts it again.
        if (failed && stop_) return;
        spool.take(line.end, failed ? line.text : "");
      }
    }
  }
}

bool EventHook::deliver(const std::string& line) {
  const HookCall call = call_of(options_.command, line, options_.limit);
  std::chrono::milliseconds pause = options_.back_off;
  for (int attempt = 1; attempt <= kTries; ++attempt, pause *= 2) {
    std::string what;
    try {
      const HookEnd end = run_hook(call, stop_);
      if (!end.output.empty()) spdlog::info("hook: {}", end.output);
      if (end.ok) return true;
      what = end.what;
    } catch (const Error& error) {
      what = error.what();
    }
    if (stop_) return false;
    spdlog::warn("hook: {} (try {} of {}) for {}", what, attempt, kTries, line);
    if (attempt < kTries && !wait(pause)) return false;
  }
  return false;
}

}  // namespace meshloom::control
