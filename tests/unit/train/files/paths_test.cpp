// SPDX-License-Identifier: Apache-2.0
#include "daemon/train/files/paths.h"

#include <gtest/gtest.h>

#include "kernels/base/error.h"
#include "tests/unit/train/data_files.h"

namespace meshloom::train {
namespace {

namespace fs = std::filesystem;

TEST(Paths, StayBelowTheRoot) {
  const testing::DataFolder root, other;
  root.write_text("a/b.txt", "x");
  other.write_text("secret.txt", "x");
  fs::create_symlink(other.path(), root.path() / "out");
  fs::create_symlink(root.path() / "a", root.path() / "in");
  const std::string sibling = root.path().string() + "x";
  fs::create_directory(sibling);

  EXPECT_EQ(resolve_path("a/b.txt", root.path(), "f"), root.path() / "a/b.txt");
  EXPECT_NO_THROW(resolve_path((root.path() / "a").string(), root.path(), "f"));
  EXPECT_NO_THROW(resolve_path("in/b.txt", root.path(), "f"));
  EXPECT_NO_THROW(resolve_path("a", root.path().string() + "/", "f"));
  for (const std::string& bad :
       {std::string("../x"), std::string("a/../../x"), std::string("a/.."),
        std::string("/etc/passwd"), std::string("out/secret.txt"), std::string("out"), sibling,
        std::string(""), std::string("a\0b", 3)})
    EXPECT_THROW(resolve_path(bad, root.path(), "f"), InvalidArgument) << bad;
  try {
    resolve_path("a/none.txt", root.path(), "run.data.path");
    FAIL() << "a missing file was accepted";
  } catch (const NotFound& error) {
    EXPECT_EQ(error.metadata().at("field"), "run.data.path");
  }
  fs::remove(sibling);
}

TEST(Paths, SeveralRootsAreSearchedInTheirOrder) {
  const testing::DataFolder first, second;
  first.write_text("both.txt", "x");
  second.write_text("both.txt", "y");
  second.write_text("deep/second.txt", "y");
  const std::string roots = first.path().string() + ":" + second.path().string();
  EXPECT_EQ(resolve_path("both.txt", roots, "f"), first.path() / "both.txt");
  EXPECT_EQ(resolve_path("deep/second.txt", roots, "f"), second.path() / "deep/second.txt");
  const std::string absolute = (second.path() / "both.txt").string();
  EXPECT_EQ(resolve_path(absolute, roots, "f"), absolute);
  EXPECT_THROW(resolve_path("none.txt", roots, "f"), NotFound);
  EXPECT_THROW(resolve_path("/etc/passwd", roots, "f"), InvalidArgument);
}

TEST(Paths, LinksAreFollowedAsFarAsThereAreRoots) {
  const testing::DataFolder root, other;
  other.write_text("far.txt", "x");
  root.write_text("model/config.json", "{}");
  root.write_text("blobs/1", "x");
  fs::create_symlink(other.path() / "far.txt", root.path() / "near.txt");
  fs::create_symlink("../blobs/1", root.path() / "model/inside.bin");
  try {
    resolve_path("near.txt", root.path(), "run.data.path");
    FAIL() << "a link that leads outside was followed";
  } catch (const InvalidArgument& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find((other.path() / "far.txt").string()), std::string::npos) << text;
    EXPECT_NE(text.find("--data-dir"), std::string::npos) << text;
  }
  const std::string both = root.path().string() + ":" + other.path().string();
  EXPECT_EQ(resolve_path("near.txt", both, "f"), root.path() / "near.txt");

  // A model folder is held to the same rule.
  EXPECT_NO_THROW(check_links(root.path() / "model", root.path()));
  fs::create_symlink(other.path() / "far.txt", root.path() / "model/outside.bin");
  EXPECT_THROW(check_links(root.path() / "model", root.path()), InvalidArgument);
  EXPECT_NO_THROW(check_links(root.path() / "model", both));
}

TEST(Paths, NamesThatTheSystemRefusesAreTheUsersMistake) {
  const testing::DataFolder root;
  fs::create_symlink(root.path() / "loop", root.path() / "loop");
  for (const std::string& bad : {std::string("loop"), std::string("loop/x"), std::string(4096, 'n'),
                                 std::string(300, 'n')}) {
    try {
      resolve_path(bad, root.path(), "run.data.path");
      FAIL() << bad << " was accepted";
    } catch (const InvalidArgument& error) {
      EXPECT_EQ(error.reason(), "INVALID_PATH") << error.what();
      EXPECT_EQ(error.metadata().at("field"), "run.data.path");
    }
  }
}

}  // namespace
}  // namespace meshloom::train
