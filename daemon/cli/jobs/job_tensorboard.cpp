// SPDX-License-Identifier: Apache-2.0
#include "daemon/cli/jobs/job_tensorboard.h"

#include <fmt/format.h>

#include <exception>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>

#include "daemon/base/states.h"
#include "daemon/cli/interrupt.h"
#include "daemon/cli/jobs/job_changes.h"
#include "daemon/cli/output/output.h"
#include "daemon/cli/output/records.h"
#include "daemon/cli/reading.h"
#include "daemon/events/job_events.h"

namespace meshloom::cli {
namespace {

/// One job's file.
class EventCopy {
 public:
  EventCopy(Client& client, const std::string& job, const TensorboardOptions& options)
      : client_(client),
        job_(get_job(client, job)),
        folder_(options.out / short_name(job_.name())),
        follow_(options.follow),
        events_(folder_, job_, -1) {}

  void run() try {
    events_.plan(job_.plan(), 0);
    request_.set_name(job_.name());
    request_.set_follow(follow_);
    const auto open = [&](grpc::ClientContext* context) {
      return client_.jobs().StreamMetrics(context, request_);
    };
    const auto seen = [&](const v1::StreamMetricsResponse& line) {
      add(line);
      return true;
    };
    using Line = v1::StreamMetricsResponse;
    const grpc::Status status = follow_ ? reading_.read<Line>(client_, open, seen)
                                        : reading_.read_once<Line>(client_, open, seen);
    if (reading_.cancelled()) return;
    if (!status.ok()) client_.fail(status);
    finish();
  } catch (...) {
    error_ = std::current_exception();
  }
  void cancel() { reading_.cancel(); }
  /// Throws what run() has met.
  void tell(bool json) const {
    if (error_) std::rethrow_exception(error_);
    if (json)
      print_record({{"job", job_.name()}, {"folder", folder_.string()}, {"steps", steps_}});
    else
      fmt::print("{}: {} steps in {}\n", short_name(job_.name()), steps_, folder_.string());
  }

 private:
  void add(const v1::StreamMetricsResponse& line) {
    const auto entry = nlohmann::ordered_json::parse(line.line(), nullptr, false);
    const bool is_step = entry.is_object() && entry.contains("loss");
    // An edit has made steps other than they were told.
    if (is_step && entry.value("step", std::int64_t{0}) <= last_)
      events_.go_back(entry.value("step", std::int64_t{0}) - 1);
    events_.line(entry);
    request_.set_after_revision(line.revision());
    if (!is_step) return;
    last_ = entry.value("step", std::int64_t{0});
    ++steps_;
  }

  void finish() {
    const int told = job_.notes_size();
    job_ = get_job(client_, job_.name());
    for (int i = told; i < job_.notes_size(); ++i) events_.note(job_.notes(i), job_.step());
    const std::vector<v1::DrawnSample> samples(job_.samples().begin(), job_.samples().end());
    events_.samples(samples);
    if (base::is_final(job_.state())) events_.end(job_.state());
  }

  Client& client_;
  v1::Job job_;
  const std::filesystem::path folder_;
  const bool follow_;
  events::JobEvents events_;
  v1::StreamMetricsRequest request_;  ///< for what comes behind that which was told
  Reading reading_;
  std::int64_t last_ = 0;  ///< the step that was told last
  std::int64_t steps_ = 0;
  std::exception_ptr error_;
};

}  // namespace

ExitCode write_tensorboard(Client& client, bool json, const TensorboardOptions& options) {
  std::vector<std::unique_ptr<EventCopy>> copies;
  for (const std::string& job : options.jobs)
    copies.push_back(std::make_unique<EventCopy>(client, job, options));
  const InterruptScope interrupt([&] {
    for (const auto& copy : copies) copy->cancel();
  });
  std::vector<std::thread> threads;
  for (const auto& copy : copies) threads.emplace_back([&copy] { copy->run(); });
  for (std::thread& thread : threads) thread.join();
  for (const auto& copy : copies) copy->tell(json);
  return interrupt.interrupted() ? kInterrupted : kOk;
}

}  // namespace meshloom::cli
