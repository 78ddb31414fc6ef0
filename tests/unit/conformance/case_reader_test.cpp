// SPDX-License-Identifier: Apache-2.0
#include "tests/conformance/case_reader.h"

#include <gtest/gtest.h>

#include "kernels/base/error.h"
#include "tests/conformance/compare.h"
#include "tests/conformance/strict_json.h"
#include "tests/support/temp_folder.h"

namespace meshloom::conformance {
namespace {

namespace fs = std::filesystem;
using test::TempFolder;

const std::vector<Kind>& kinds() {
  static const std::vector<Kind> list = {{"op", {"op", "inputs"}, nullptr, nullptr}};
  return list;
}

std::string error_of(const std::string& json) {
  const TempFolder folder;
  const auto entries = read_case_file({folder.write("x.json", json), "x"}, kinds());
  EXPECT_EQ(entries.size(), 1u);
  return entries[0].error;
}

TEST(StrictJson, RefusesDuplicatesAndDepth) {
  EXPECT_NO_THROW(parse_strict_json(R"({"a": {"b": 1}, "c": {"b": 1}})"));
  EXPECT_THROW(parse_strict_json(R"({"a": 1, "a": 2})"), InvalidArgument);
  EXPECT_THROW(parse_strict_json(R"([{"a": {"b": 1, "b": 2}}])"), InvalidArgument);
  EXPECT_THROW(parse_strict_json(std::string(1000, '[') + std::string(1000, ']')), InvalidArgument);
  EXPECT_THROW(parse_strict_json("{} x"), InvalidArgument);
}

TEST(CaseReader, MergesVariants) {
  const TempFolder folder;
  const fs::path file = folder.write("op/add.json", R"({"kind": "op", "op": "add",
      "tolerance": {"out": [1, 2]},
      "variants": [{"label": "a", "mesh": {"shape": [2, 3], "dim_names": ["dp", "tp"]}},
                   {"tolerance": {"grad": [3, 4]}}, {"tolerence": {}}]})");
  const auto entries = read_case_file({file, "op/add"}, kinds());
  ASSERT_EQ(entries.size(), 3u);
  EXPECT_EQ(entries[0].name, "op/add#a");
  EXPECT_EQ(entries[0].value->mesh.size_of("tp"), 3);
  EXPECT_EQ(entries[0].value->out.absolute, 1.0);
  EXPECT_EQ(entries[1].name, "op/add#1");
  // A variant's value replaces the whole key.
  EXPECT_EQ(entries[1].value->out.absolute, 1e-5);
  EXPECT_EQ(entries[1].value->grad.relative, 4.0);
  EXPECT_NE(entries[2].error.find("tolerence"), std::string::npos);
}

TEST(CaseReader, FindsFilesBelowAFolder) {
  const TempFolder folder;
  folder.write("b/z.json", "{}");
  folder.write("a.json", "{}");
  folder.write("m_hf/config.json", "{}");
  folder.write("readme.txt", "");
  const fs::path paths[] = {folder.path()};
  const auto files = find_case_files(paths);
  ASSERT_EQ(files.size(), 2u);
  EXPECT_EQ(files[0].name, "a");
  EXPECT_EQ(files[1].name, "b/z");
  const fs::path one[] = {folder.path() / "b" / "z.json"};
  EXPECT_EQ(find_case_files(one)[0].name, "z");
  const fs::path none[] = {folder.path() / "nothing"};
  EXPECT_THROW(find_case_files(none), NotFound);
}

TEST(CaseReader, NamesWhatIsWrong) {
  const std::pair<const char*, const char*> wrong[] = {
      {R"({"mesh": {"shape": [2]}})", "kind"},
      {R"({"kind": "opp"})", "opp"},
      {R"({"kind": "op", "mesh": {"shape": "2"}})", "mesh.shape"},
      {R"({"kind": "op", "mesh": {"shape": [0]}})", "mesh.shape"},
      {R"({"kind": "op", "mesh": {"shape": [2], "dim_names": ["a", "b"]}})", "dim_names"},
      {R"({"kind": "op", "mesh": {"shape": [2], "size": 2}})", "size"},
      {R"({"kind": "op", "tolerance": {"out": [1]}})", "tolerance.out"},
      {R"({"kind": "op", "expect": {"comm": {"sideways": {}}}})", "sideways"},
      {R"({"kind": "op", "expect": {"comm": {"forward": {"all_shout": 1}}}})", "all_shout"},
      {R"({"kind": "op", "expect": {"placements": {"y": ["Q"]}}})", "Q"},
      {R"([])", "object"},
  };
  for (const auto& [json, word] : wrong) {
    const std::string error = error_of(json);
    EXPECT_NE(error.find(word), std::string::npos) << json << ": '" << error << "'";
  }
}

TEST(CaseReader, GlobsMatchTheWholeName) {
  EXPECT_TRUE(matches_glob("op/matmul#3", "*matmul*"));
  EXPECT_TRUE(matches_glob("op/matmul#3", "*"));
  EXPECT_FALSE(matches_glob("op/matmul#3", "matmul*"));
}

TEST(CompareFacts, CountsOfEveryRankMustFit) {
  Expect expect;
  expect.comm["forward"] = {{"all_gather", 1}};
  RankFacts good, bad;
  good.comm["forward"] = {{"all_gather", 1}};
  bad.comm["forward"] = {{"all_gather", 1}, {"all_reduce", 1}};
  const RankFacts fine[] = {good, good}, wrong[] = {good, bad};
  EXPECT_EQ(compare_facts(expect, {}, fine), "");
  const std::string text = compare_facts(expect, {}, wrong);
  EXPECT_NE(text.find("rank 1"), std::string::npos) << text;
  EXPECT_NE(text.find("all_reduce: 1"), std::string::npos) << text;
}

TEST(CompareFacts, SurviveTheirPacking) {
  CaseResults results;
  results.local_shapes["y"] = {3, 0};
  results.comm["backward"] = {{"all_reduce", 2}};
  results.bytes_sent["backward"] = 77;
  const RankFacts facts = unpack_facts(pack_facts(results));
  EXPECT_EQ(facts.local_shapes.at("y"), (Shape{3, 0}));
  EXPECT_EQ(facts.comm.at("backward").at("all_reduce"), 2);
  EXPECT_EQ(facts.bytes_sent.at("backward"), 77);
}

}  // namespace
}  // namespace meshloom::conformance
