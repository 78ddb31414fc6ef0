// SPDX-License-Identifier: Apache-2.0
// The sequences that one client asked for: from a running job, a checkpoint or a Hugging Face
// folder.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "daemon/control/host/memory_units.h"
#include "daemon/control/jobs/sample_sources.h"
#include "daemon/control/jobs/token_channel.h"
#include "daemon/control/jobs/token_text.h"
#include "daemon/control/services/stream.h"
#include "daemon/train/config/sample_start.h"
#include "v1/generate_service.pb.h"

namespace meshloom::control {

/// The request is checked against its model before the ranks hear of it. Its sequences are one
/// sample of the scheduler, drawn together. If the sample's run ends, those that are not done go
/// on with the job's newest model.
class GenerateStream final : public Stream<v1::GenerateResponse> {
 public:
  GenerateStream(StreamHost& host, const Caller& caller, SampleSources& sources,
                 const v1::GenerateRequest& request);
  /// Nothing more is drawn.
  ~GenerateStream() override;

 private:
  bool produce() override;
  void let_go() override;
  void begin(bool live);
  /// One of the sequences of the request, by index.
  struct Sequence {
    explicit Sequence(TokenText decoder) : text(std::move(decoder)) {}

    std::vector<std::int64_t> tokens;          ///< prompt and what was drawn
    v1::SamplingParams params;                 ///< with its own seed
    std::vector<std::int64_t> turn_ends = {};  ///< of an answer in a conversation
    std::string rendered = {};                 ///< its prompt, until it is told
    std::int64_t drawn = 0;
    TokenText text;
    bool done = false;
  };

  /// By the request, once its model is known.
  void make_sequences();
  /// Throws Cancelled once nobody wants it any more.
  void check_wanted() const;
  train::SampleStart start_of(const Sequence& sequence) const;
  void start_sample();
  void write_token(const DrawnToken& token);

  SampleSources& sources_;
  const v1::GenerateRequest request_;
  bool begun_ = false;
  std::string live_run_;  ///< that is drawn from; empty: a source
  train::PromptLimits limits_;
  SourceCache::Source loaded_;
  std::vector<Sequence> sequences_;
  std::vector<std::string> notes_;         ///< that were not told yet
  std::vector<std::size_t> drawing_;       ///< which the sample's sequences are of those
  MemoryUnits cache_memory_;               ///< that the sequences are counted by
  std::shared_ptr<TokenChannel> channel_;  ///< null: a source is waited for
  std::mutex mutex_;                       ///< for what follows
  std::optional<SourceCache::Source> arrived_;
};

}  // namespace meshloom::control
