// SPDX-License-Identifier: Apache-2.0
#include "daemon/comm/mesh/mpi_segment_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <optional>

#include "kernels/base/error.h"
#include "tests/support/temp_folder.h"

namespace meshloom::comm {
namespace {

using ::testing::HasSubstr;

SegmentRoom room_of(const std::map<std::string, std::string>& variables) {
  return segment_room([&](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  });
}

TEST(MpiSegmentFolder, TheLauncherTellsHowManyRanksNeedRoom) {
  EXPECT_EQ(room_of({}).ranks, 1);
  EXPECT_EQ(room_of({{"OMPI_COMM_WORLD_SIZE", "8"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "3"}}).ranks, 3);
  EXPECT_EQ(room_of({{"PMIX_RANK", "0"}, {"SLURM_STEP_TASKS_PER_NODE", "2,12(x20),3"}}).ranks, 12);
  EXPECT_EQ(room_of({{"PMIX_RANK", "0"}}).ranks, 2) << "the least that has segments";
  EXPECT_EQ(room_of({{"PMIX_RANK", "0"}, {"SLURM_STEP_TASKS_PER_NODE", "?"}}).ranks, 2);
}

TEST(MpiSegmentFolder, ASegmentHasTheSizeThatTheUserGaveOrTheDefault) {
  const std::uint64_t usual = room_of({}).segment_bytes;
  EXPECT_GE(usual, std::uint64_t{4} << 20);
  for (const char* name : {"OMPI_MCA_btl_vader_segment_size", "OMPI_MCA_btl_sm_segment_size"}) {
    const SegmentRoom room = room_of({{"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}, {name, "67108864"}});
    EXPECT_GE(room.segment_bytes, std::uint64_t{64} << 20) << name;
    EXPECT_EQ(room.needed(), 2 * room.segment_bytes);
  }
}

TEST(MpiSegmentFolder, TheFirstFolderWithRoomIsTakenAndTheOthersTold) {
  const test::TempFolder folder;
  const SegmentRoom room{2, std::uint64_t{1} << 16};
  std::string note;
  EXPECT_EQ(choose_segment_folder({folder.path(), "/proc"}, room, &note), folder.path());
  EXPECT_EQ(note, "");
  // Nothing has room in /proc.
  EXPECT_EQ(choose_segment_folder({"/proc", "/does/not/exist", folder.path()}, room, &note),
            folder.path());
  EXPECT_THAT(note, HasSubstr("of 2 ranks take 0.1 MiB"));
  EXPECT_THAT(note, HasSubstr("/does/not/exist: No such file or directory"));
  EXPECT_THAT(note, HasSubstr("they are in " + folder.path().string()));
}

TEST(MpiSegmentFolder, WithoutRoomTheCauseIsTold) {
  std::string note;
  try {
    choose_segment_folder({"/proc", "/does/not/exist"}, {4, std::uint64_t{4} << 20}, &note);
    FAIL() << "there is no room";
  } catch (const ResourceExhausted& error) {
    EXPECT_EQ(error.reason(), "MPI_SEGMENTS_NO_ROOM");
    for (const char* part : {"of 4 ranks take 16.0 MiB", "/proc", "No such file", "--shm-size"})
      EXPECT_THAT(error.what(), HasSubstr(part));
  }
}

}  // namespace
}  // namespace meshloom::comm
