// SPDX-License-Identifier: Apache-2.0
// Rank 0's end of the streams that the other ranks hold: commands out, results in.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "daemon/control/host/stop_requests.h"
#include "daemon/control/ranks/executor.h"
#include "daemon/control/ranks/file_grants.h"
#include "daemon/control/ranks/rank_watch.h"
#include "v1/rank_service.grpc.pb.h"

namespace meshloom::control {

/// "rank 1 (pid 12 on host)".
std::string describe(const v1::RankHello& hello);

/// Commands above this are announced on the stream of commands and fetched beside it.
inline constexpr std::size_t kLargestInline = std::size_t{64} << 10;

/// A rank whose stream ends before a stop is lost: the executor fails with its name.
class RankServiceImpl final : public v1::RankService::Service {
 public:
  /// Who hears of the ranks, by threads of gRPC. A rank that was told to stop asks for the
  /// daemon's.
  class Observer : public StopRequests {
   public:
    /// Called once.
    virtual void all_ranks_joined() = 0;
  };
  struct Options {
    int world_size = 1;
    std::string secret;
    Observer& observer;  ///< outlives the service
    /// Is told what is sent to ranks on another disk than rank 0's, and what they answer; null if
    /// there are none.
    FileGrants* grants = nullptr;
  };
  RankServiceImpl(Executor& executor, RankWatch& watch, Options options);

  grpc::Status Follow(grpc::ServerContext* context,
                      grpc::ServerReaderWriter<v1::RankCommand, v1::RankMessage>* stream) override;
  grpc::Status FetchCommand(grpc::ServerContext* context, const v1::FetchCommandRequest* request,
                            grpc::ServerWriter<v1::CommandPiece>* pieces) override;

  /// What the ranks that joined told about themselves.
  std::vector<v1::RankHello> hellos() const;

 private:
  class Member;
  class Bulk;

  v1::RankHello join(grpc::ServerReaderWriter<v1::RankCommand, v1::RankMessage>& stream);
  void serve(const v1::RankHello& hello,
             grpc::ServerReaderWriter<v1::RankCommand, v1::RankMessage>& stream);

  Executor& executor_;
  RankWatch& watch_;
  Options options_;
  std::once_flag all_joined_;
  mutable std::mutex mutex_;
  std::map<int, v1::RankHello> joined_;
  /// Large commands that a rank has not fetched yet, by rank and seq.
  std::map<std::pair<int, std::int64_t>, std::shared_ptr<Bulk>> announced_;
  std::weak_ptr<Bulk> newest_bulk_;
};

}  // namespace meshloom::control
