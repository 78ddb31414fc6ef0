// SPDX-License-Identifier: Apache-2.0
// Ranks of several hosts and the file that --config names.
#include "daemon/control/config_agreement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "tests/support/temp_folder.h"
#include "tests/support/thread_ranks.h"

namespace meshloom::control {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// Each rank's own --config file: nothing if its host does not have it.
class ConfigAgreement : public ::testing::Test {
 protected:
  struct End {
    std::vector<std::string> wrong;
    std::vector<int> threads;
    std::vector<std::string> levels;
  };
  End agree(const std::vector<std::optional<std::string>>& files, bool given_to_rank_0 = true) {
    const int ranks = static_cast<int>(files.size());
    comm::Topology topology;
    topology.hosts = ranks;
    End end{std::vector<std::string>(files.size()), std::vector<int>(files.size()),
            std::vector<std::string>(files.size())};
    for (int rank = 0; rank < ranks; ++rank) {
      topology.ranks.emplace_back();
      topology.ranks.back().hostname = "host" + std::to_string(rank);
      std::filesystem::create_directories(folder_of(rank));
      if (const auto& text = files[static_cast<std::size_t>(rank)])
        std::ofstream(folder_of(rank) / "daemon.yaml") << *text;
    }
    testing::run_thread_ranks(ranks, [&](comm::RankRuntime& runtime) {
      const int rank = runtime.bootstrap().rank();
      const auto at = static_cast<std::size_t>(rank);
      ParsedDaemonOptions parsed = parse(rank, rank > 0 || given_to_rank_0);
      end.wrong[at] = agree_on_config(runtime.bootstrap(), topology, &parsed);
      end.threads[at] = parsed.options.config.threads();
      end.levels[at] = parsed.options.config.log_level();
    });
    return end;
  }

 private:
  std::filesystem::path folder_of(int rank) const {
    return folder_.path() / ("host" + std::to_string(rank));
  }
  ParsedDaemonOptions parse(int rank, bool given) const {
    std::vector<std::string> words = {"meshloomd"};
    if (given) {
      words.emplace_back("--config");
      words.push_back((folder_of(rank) / "daemon.yaml").string());
    }
    if (rank == 2) words.emplace_back("--threads=7");
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    return parse_daemon_options(static_cast<int>(argv.size()), argv.data(), {});
  }

  test::TempFolder folder_;
};

TEST_F(ConfigAgreement, Rank0sFileHoldsForHostsThatDoNotHaveItAndFlagsWinOverIt) {
  const std::string text = "threads: 3\nlog_level: warning\n";
  const End end = agree({text, std::nullopt, std::nullopt, text});
  EXPECT_THAT(end.wrong, Each(""));
  EXPECT_THAT(end.threads, ElementsAre(3, 3, 7, 3));
  EXPECT_THAT(end.levels, Each("warning"));
}

TEST_F(ConfigAgreement, AnotherFileOnAnotherHostIsRefusedByEveryRank) {
  const End end = agree({"threads: 3\n", std::nullopt, "threads: 4\n"});
  EXPECT_THAT(end.wrong, Each(AllOf(HasSubstr("--config: rank 2 on host2 has read another file"),
                                    HasSubstr("rank 0 on host0"))));
}

TEST_F(ConfigAgreement, Rank0sHostMustHaveIt) {
  EXPECT_THAT(agree({std::nullopt, "threads: 3\n"}).wrong,
              Each(AllOf(HasSubstr("cannot open"), HasSubstr("host0/daemon.yaml"))));
  EXPECT_THAT(agree({std::nullopt, "threads: 3\n"}, false).wrong,
              Each(HasSubstr("is given to rank 1 on host1 and not to rank 0")));
}

}  // namespace
}  // namespace meshloom::control
