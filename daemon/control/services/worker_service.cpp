// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/services/worker_service.h"

#include <set>
#include "daemon/control/services/grpc_door.h"

#include "daemon/base/given_number.h"
#include "daemon/control/host/memory.h"
#include "daemon/control/net/status.h"
#include "daemon/control/services/flight_dump.h"
#include "daemon/control/stores/names.h"
#include "kernels/base/error.h"
#include "kernels/base/log.h"

namespace meshloom::control {
namespace {

constexpr std::size_t kLongestReason = 200;

}  // namespace

WorkerServiceImpl::WorkerServiceImpl(const Executor& executor, const RankServiceImpl& ranks,
                                     const RankWatch& watch, control::Drain& drain, Options options)
    : executor_(executor),
      ranks_(ranks),
      watch_(watch),
      drain_(drain),
      options_(std::move(options)) {}

v1::Worker WorkerServiceImpl::describe(const v1::RankHello& hello) const {
  v1::Worker worker;
  worker.set_rank(hello.rank());
  worker.set_local_rank(hello.local_rank());
  worker.set_host(hello.host());
  worker.set_device(hello.device());
  worker.set_pid(hello.pid());
  worker.set_threads(hello.threads());
  worker.set_cpu(hello.cpu());
  worker.set_gpu(hello.gpu());
  MemoryUse memory = hello.rank() == 0 ? process_memory() : executor_.memory_of(hello.rank());
  if (memory.resident == 0) memory.resident = memory.peak = hello.memory_bytes();
  worker.set_memory_bytes(memory.resident);
  worker.set_peak_memory_bytes(memory.peak);
  worker.set_epoch(executor_.epoch());
  const RankWatch::Condition condition = watch_.condition(hello.rank());
  worker.set_state(condition.state);
  worker.set_trouble(condition.trouble);
  return worker;
}

v1::ListWorkersResponse WorkerServiceImpl::list_workers(const Caller& caller) {
  v1::ListWorkersResponse response;
  *response.add_workers() = describe(options_.self);
  for (const auto& hello : ranks_.hellos()) *response.add_workers() = describe(hello);
  response.set_version(options_.version);
  response.set_state_dir(options_.state_dir);
  const Executor::Recoveries recoveries = executor_.recoveries();
  response.set_recoveries(static_cast<std::int64_t>(recoveries.count));
  response.set_last_failure(recoveries.last_failure);
  const auto up = std::chrono::steady_clock::now() - started_;
  response.set_uptime_seconds(std::chrono::duration_cast<std::chrono::seconds>(up).count());
  const control::Drain::State drain = drain_.state();
  response.set_drain(drain.state);
  response.set_drain_reason(drain.reason);
  response.set_has_ranks(drain.has_ranks);
  if (v1::RanksWait queue = options_.queue.whole(); !queue.reason().empty())
    *response.mutable_queue() = std::move(queue);
  // Where the daemon's files lie, and what is wrong with them, is for those who can look after
  // them.
  if (!caller.identity().is_admin()) {
    response.clear_state_dir();
    response.clear_last_failure();
    return response;
  }
  for (std::string& trouble : options_.ledger.troubles())
    response.add_journal_trouble(std::move(trouble));
  if (options_.access_notes)
    for (std::string& note : options_.access_notes()) response.add_access_notes(std::move(note));
  for (const LostFolder::Held& held : options_.lost) {
    v1::LostFiles& lost = *response.add_lost();
    lost.set_folder(held.folder);
    lost.set_files(held.files);
    lost.set_size_bytes(held.bytes);
  }
  return response;
}

v1::DumpFlightResponse WorkerServiceImpl::dump_flight(const v1::DumpFlightRequest& request) {
  v1::DumpFlightResponse response;
  base::check_given_positive("entries", request.has_entries(), request.entries(), "all");
  const std::size_t entries = request.has_entries() ? static_cast<std::size_t>(request.entries())
                                                    : comm::FlightLog::kEntries;
  std::vector<std::string> hosts(options_.flight->logs.size());
  hosts[static_cast<std::size_t>(options_.self.rank())] = options_.self.host();
  for (const auto& hello : ranks_.hellos())
    hosts[static_cast<std::size_t>(hello.rank())] = hello.host();
  fill_flight_dump(comm::read_flight_report(*options_.flight), hosts, entries, &response);
  return response;
}

v1::DrainResponse WorkerServiceImpl::drain(const v1::DrainRequest& request) {
  v1::DrainResponse response;
  const std::string reason = request.reason().substr(0, kLongestReason);
  drain_.begin(reason.empty() ? "a client asked for it" : reason);
  const control::Drain::State state = drain_.state();
  response.set_state(state.state);
  response.set_has_ranks(state.has_ranks);
  spdlog::info("a client drains the daemon: {}", state.reason);
  return response;
}

v1::UndrainResponse WorkerServiceImpl::undrain() {
  v1::UndrainResponse response;
  for (const std::string& id : drain_.end()) response.add_resumed(job_resource(id));
  spdlog::info("a client ends the drain, {} jobs go on", response.resumed_size());
  return response;
}

v1::GetCapabilitiesResponse WorkerServiceImpl::get_capabilities() {
  v1::GetCapabilitiesResponse response = options_.capabilities;
  std::set<std::string> cpus{options_.self.cpu()};
  for (const auto& hello : ranks_.hellos()) cpus.insert(hello.cpu());
  for (const std::string& cpu : cpus) response.add_cpus(cpu);
  return response;
}

void WorkerServiceImpl::shutdown(const v1::ShutdownRequest& request) {
  const std::string reason = request.reason().substr(0, kLongestReason);
  options_.stops.request_stop(reason.empty() ? "a client asked for it"
                                             : "a client asked for it: " + reason);
}

// gRPC calls these adapters of the handlers.

grpc::ServerUnaryReactor* WorkerServiceImpl::ListWorkers(grpc::CallbackServerContext* context,
                                                         const v1::ListWorkersRequest* request,
                                                         v1::ListWorkersResponse* response) {
  return serve_at_once(gate(), *context, *request, response,
                       [&](const Caller& caller) { *response = list_workers(caller); });
}

grpc::Status WorkerServiceImpl::DumpFlight(grpc::ServerContext* context,
                                           const v1::DumpFlightRequest* request,
                                           v1::DumpFlightResponse* response) {
  return answer(gate(), *context, *request, response,
                [&](const Caller&) { *response = dump_flight(*request); });
}

grpc::Status WorkerServiceImpl::Drain(grpc::ServerContext* context, const v1::DrainRequest* request,
                                      v1::DrainResponse* response) {
  return answer(gate(), *context, *request, response,
                [&](const Caller&) { *response = drain(*request); });
}

grpc::Status WorkerServiceImpl::Undrain(grpc::ServerContext* context,
                                        const v1::UndrainRequest* request,
                                        v1::UndrainResponse* response) {
  return answer(gate(), *context, *request, response,
                [&](const Caller&) { *response = undrain(); });
}

grpc::Status WorkerServiceImpl::GetCapabilities(grpc::ServerContext* context,
                                                const v1::GetCapabilitiesRequest* request,
                                                v1::GetCapabilitiesResponse* response) {
  return answer(gate(), *context, *request, response,
                [&](const Caller&) { *response = get_capabilities(); });
}

grpc::ServerUnaryReactor* WorkerServiceImpl::Shutdown(grpc::CallbackServerContext* context,
                                                      const v1::ShutdownRequest* request,
                                                      v1::ShutdownResponse* response) {
  return serve_at_once(gate(), *context, *request, response,
                       [&](const Caller&) { shutdown(*request); });
}

}  // namespace meshloom::control
