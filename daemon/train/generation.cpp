// SPDX-License-Identifier: Apache-2.0
#include "daemon/train/generation.h"

#include <algorithm>
#include <array>
#include <exception>

#include "daemon/train/status_agreement.h"

namespace meshloom::train {
namespace {

/// In place: the least of what the ranks say.
double least(comm::ProcessGroup& group, double value) {
  if (group.size() > 1)
    group.all_reduce(make_view(&value, DType::kFloat64, {1}), comm::ReduceOp::kMin)->wait_host();
  return value;
}

/// Half of what steps have taken from the system and do not use now; the rest is for the cache.
std::int64_t spare_bytes(const Allocator& allocator) {
  const AllocatorStats stats = allocator.stats();
  return static_cast<std::int64_t>((stats.segment_bytes - stats.bytes_in_use) / 2);
}

/// Every token is followed by one small exchange, which says whether all go on. It also keeps ranks
/// that only wait from waiting longer than a token takes.
class TokenLoop {
 public:
  TokenLoop(ModelState& state, const std::function<bool(std::int64_t)>& on_token)
      : world_(state.mesh().world()), data_parallel_(state.data_parallel()), on_token_(on_token) {}

  bool operator()(std::int64_t token) {
    bool wanted = true;
    if (world_.rank() == 0) {
      try {
        wanted = on_token_(token);
      } catch (...) {
        error_ = std::current_exception();
        wanted = false;
      }
    }
    if (go_on(wanted)) data_parallel_.next_pass();
    return going_;
  }

  /// Tells the others, if they do not know yet.
  void end() {
    if (going_) go_on(false);
  }
  void wait() {
    while (going_) go_on(true);
  }
  const std::exception_ptr& error() const { return error_; }

 private:
  bool go_on(bool mine) {
    going_ = least(world_, mine ? 1.0 : 0.0) > 0.0;
    return going_;
  }

  comm::ProcessGroup& world_;
  parallel::DataParallel& data_parallel_;
  const std::function<bool(std::int64_t)>& on_token_;
  bool going_ = true;
  std::exception_ptr error_;
};

/// Returns what this rank ended with.
std::exception_ptr generate_here(ModelState& state, std::int64_t keep_bytes,
                                 const std::vector<std::int64_t>& prompt,
                                 const nn::GenerateOptions& options, TokenLoop& loop) {
  parallel::DataParallel& data_parallel = state.data_parallel();
  std::exception_ptr error;
  data_parallel.begin_generation(keep_bytes);
  try {
    nn::generate(state.model(), prompt, options, [&](std::int64_t token) { return loop(token); });
  } catch (...) {
    error = std::current_exception();
    rethrow_comm_error(error);
    // Ranks that share the matmuls cannot go on without this one.
    if (state.mesh().tensor().size() > 1) throw;
    data_parallel.take_part_pass();
  }
  loop.end();
  data_parallel.end_generation();
  return error ? error : loop.error();
}

}  // namespace

nn::GenerateOptions make_generate_options(const v1::SamplingParams& params) {
  nn::GenerateOptions options;
  if (params.max_tokens() != 0) options.max_tokens = params.max_tokens();
  if (params.has_temperature()) options.sampling.temperature = params.temperature();
  if (params.has_top_p()) options.sampling.top_p = params.top_p();
  options.sampling.top_k = params.top_k();
  options.sampling.seed = params.seed();
  return options;
}

void generate_on_mesh(ModelState& state, const std::vector<std::int64_t>& prompt,
                      const nn::GenerateOptions& options,
                      const std::function<bool(std::int64_t)>& on_token) {
  nn::check_generate_arguments(state.model().config(), prompt, options);
  comm::ProcessGroup& world = state.mesh().world();
  const Allocator& allocator = state.model().context().allocator();
  const double keep = least(world, static_cast<double>(spare_bytes(allocator)));
  TokenLoop loop(state, on_token);
  std::exception_ptr error;
  if (state.mesh().data_parallel_groups().replicas->rank() == 0) {
    error = generate_here(state, static_cast<std::int64_t>(keep), prompt, options, loop);
  } else {
    loop.wait();
  }
  agree(world, error);
}

}  // namespace meshloom::train
