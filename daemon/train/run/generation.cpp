// SPDX-License-Identifier: Apache-2.0
#include "daemon/train/run/generation.h"

#include <chrono>
#include <exception>
#include <optional>

#include "daemon/comm/agreement/status_agreement.h"
#include "daemon/train/config/sample_start.h"

namespace meshloom::train {
namespace {

/// In place: the least of what the ranks say.
double least(comm::ProcessGroup& group, double value) {
  if (group.size() > 1)
    group.all_reduce(make_view(&value, DType::kFloat64, {1}), comm::ReduceOp::kMin)->wait_host();
  return value;
}

class MeshSample final : public Sample {
 public:
  MeshSample(ModelState& state, const std::vector<SampleStart>& starts)
      : state_(state), world_(state.mesh().world()) {
    std::vector<nn::GenerateSequence> sequences = make_generate_sequences(starts);
    for (const nn::GenerateSequence& sequence : sequences)
      nn::check_generate_arguments(state.model().config(), sequence.prompt, sequence.options);
    if (state.mesh().in_first_copy()) drawing_.emplace(state.model(), std::move(sequences));
  }

  std::vector<SampledToken> advance(std::chrono::milliseconds budget) override {
    const auto end = Clock::now() + budget;
    // A rank that draws knows when all is drawn, and tells the others with what it agrees on.
    double mine = kAllDrawn;
    if (!done()) {
      // Half of what steps have taken from the system and do not use now; the rest is for the
      // cache.
      const AllocatorStats stats = state_.model().context().allocator().stats();
      mine = static_cast<double>(
          static_cast<std::int64_t>((stats.segment_bytes - stats.bytes_in_use) / 2));
    }
    const double keep = least(world_, mine);
    if (keep == kAllDrawn) return {};
    std::vector<SampledToken> tokens;
    std::exception_ptr error;
    if (drawing_) {
      error = draw(static_cast<std::int64_t>(keep), end, tokens);
    } else {
      while (go_on(true)) {
      }
    }
    agree(world_, error);
    if (world_.rank() != 0) tokens.clear();
    return tokens;
  }
  void end_sequences(const std::vector<std::size_t>& sequences) override {
    if (!drawing_) return;
    for (const std::size_t sequence : sequences) drawing_->end(sequence);
  }
  bool done() const override { return drawing_ && drawing_->done(); }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr double kAllDrawn = -1.0;

  /// After every pass: whether all do another. It also keeps ranks that only wait from waiting
  /// longer than a pass takes.
  bool go_on(bool mine) { return least(world_, mine ? 1.0 : 0.0) > 0.0; }

  /// Returns what this rank ended with.
  std::exception_ptr draw(std::int64_t keep_bytes, Clock::time_point end,
                          std::vector<SampledToken>& tokens) {
    parallel::DataParallel& data_parallel = state_.data_parallel();
    std::exception_ptr error;
    data_parallel.begin_generation(keep_bytes);
    try {
      while (true) {
        draw_pass(*drawing_, tokens);
        // The time of rank 0 counts.
        const bool time_left = world_.rank() != 0 || Clock::now() < end;
        if (!go_on(time_left && !drawing_->done())) break;
        data_parallel.next_pass();
      }
    } catch (...) {
      error = std::current_exception();
      comm::rethrow_comm_error(error);
      // Ranks that compute together cannot go on without this one.
      if (state_.mesh().same_samples().size() > 1) throw;
      data_parallel.take_part_pass();
      go_on(false);
    }
    data_parallel.end_generation();
    return error;
  }

  ModelState& state_;
  comm::ProcessGroup& world_;
  std::optional<nn::Generation> drawing_;  ///< on the ranks of the first copy along dp
};

v1::FinishReason to_message(nn::FinishReason finish) {
  switch (finish) {
    case nn::FinishReason::kLength: return v1::FINISH_REASON_LENGTH;
    case nn::FinishReason::kEos: return v1::FINISH_REASON_EOS;
    case nn::FinishReason::kStopToken: return v1::FINISH_REASON_STOP_TOKEN;
    case nn::FinishReason::kStopSequence: return v1::FINISH_REASON_STOP_STRING;
    case nn::FinishReason::kContext: return v1::FINISH_REASON_CONTEXT;
    case nn::FinishReason::kNone: break;
  }
  return v1::FINISH_REASON_UNSPECIFIED;
}

}  // namespace

std::vector<nn::GenerateSequence> make_generate_sequences(const std::vector<SampleStart>& starts) {
  std::vector<nn::GenerateSequence> sequences;
  for (const SampleStart& start : starts) {
    const v1::SamplingParams& params = start.params;
    nn::GenerateOptions options;
    if (params.has_max_tokens()) options.max_tokens = params.max_tokens();
    if (params.has_temperature()) options.sampling.temperature = params.temperature();
    if (params.has_top_p()) options.sampling.top_p = params.top_p();
    options.sampling.top_k = params.top_k();
    options.sampling.seed = params.seed();
    options.drawn_before = start.drawn_before;
    options.log_probs = start.log_probs;
    options.stop_tokens.assign(start.stop.token_ids().begin(), start.stop.token_ids().end());
    for (const std::string& bytes : start.stop.strings()) {
      std::vector<std::int64_t>& ids = options.stop_sequences.emplace_back();
      for (const char byte : bytes) ids.push_back(static_cast<unsigned char>(byte));
    }
    options.end_tokens = start.end_tokens;
    options.stop_at_eos = !start.stop.ignore_eos();
    options.past_context = params.past_context();
    sequences.push_back({start.prompt, std::move(options)});
  }
  return sequences;
}

void draw_pass(nn::Generation& generation, std::vector<SampledToken>& tokens) {
  for (const nn::GeneratedToken& token : generation.advance())
    tokens.push_back({token.sequence, token.id, to_message(token.finish), token.log_prob,
                      token.tempered_log_prob});
}

std::unique_ptr<Sample> begin_sample_on_mesh(ModelState& state,
                                             const std::vector<SampleStart>& sequences) {
  return std::make_unique<MeshSample>(state, sequences);
}

}  // namespace meshloom::train
