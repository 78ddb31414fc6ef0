// SPDX-License-Identifier: Apache-2.0
// What is read of a tensor in a file, here and of another host.
#include "daemon/train/files/piece.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "kernels/base/error.h"
#include "tests/support/fenced_device/fenced_device.h"
#include "tests/support/temp_folder.h"

namespace meshloom::train {
namespace {

/// This host's files as if another one had them: counts what it is asked for.
class CountingDisk final : public base::Disk {
 public:
  bool is_remote() const override { return true; }
  base::FileKind kind(const std::filesystem::path& path) override { return own_.kind(path); }
  base::InputFile open(const std::filesystem::path& path) override {
    base::InputFile file = own_.open(path);
    const std::uint64_t size = file.size();
    return {path, size, std::make_shared<Counted>(*this, std::move(file))};
  }
  std::vector<std::string> list(const std::filesystem::path& folder) override {
    return own_.list(folder);
  }
  std::vector<std::filesystem::path> files_below(const std::filesystem::path& folder) override {
    return own_.files_below(folder);
  }
  std::optional<std::string> stamp(const std::filesystem::path& path) override {
    return own_.stamp(path);
  }

  std::uint64_t bytes = 0, requests = 0;

 private:
  class Counted final : public base::InputFile::Source {
   public:
    Counted(CountingDisk& disk, base::InputFile file) : disk_(disk), file_(std::move(file)) {}
    void read(const base::Stripes& stripes, std::span<std::byte> out) const override {
      disk_.bytes += stripes.total();
      ++disk_.requests;
      file_.read_stripes(stripes, out);
    }

   private:
    CountingDisk& disk_;
    const base::InputFile file_;
  };

  base::Disk& own_ = base::own_disk();
};

class PieceTest : public ::testing::Test {
 protected:
  static ExecutionContext::Options on_fenced_device() {
    ExecutionContext::Options options;
    options.device = {DeviceKind::kCuda, 0};
    options.backend = &testing::fenced_device(0);
    return options;
  }

  /// A tensor of this shape whose elements are their numbers.
  void write(const Shape& shape) {
    shape_ = shape;
    values_.resize(static_cast<std::size_t>(numel(shape)));
    std::iota(values_.begin(), values_.end(), 0.0f);
    write_safetensors(path(), {{"t", make_view(values_.data(), DType::kFloat32, shape)}});
  }
  std::filesystem::path path() const { return folder_ / "t.safetensors"; }

  /// The elements of a piece, read from the file.
  std::vector<float> read(const Piece& piece, base::Disk& disk) {
    const auto file = SafetensorsFile::open(path(), "", disk);
    counting_.bytes = counting_.requests = 0;
    std::vector<float> held(static_cast<std::size_t>(piece.elements()), -1.0f);
    HostBlocks blocks(context_);
    const std::int64_t copied =
        read_common(blocks, make_view(held.data(), DType::kFloat32, piece.shape()), piece, *file,
                    *file->find("t"), whole_piece(shape_));
    EXPECT_EQ(copied, piece.elements());
    const std::uint64_t bytes = counting_.bytes, requests = counting_.requests;
    expect_on_device(piece, held, *file);
    counting_.bytes = bytes;
    counting_.requests = requests;
    return held;
  }
  /// A device gets the same, from the file and from memory, in this dtype and in another one, dense
  /// and into rows that lie apart.
  void expect_on_device(const Piece& piece, const std::vector<float>& expected,
                        const SafetensorsFile& file) {
    Shape apart = piece.shape();
    if (!apart.empty()) apart[apart.size() - 1] += 3;
    HostBlocks blocks(device_);
    for (const DType dtype : {DType::kFloat32, DType::kFloat64})
      for (const Shape& room : {piece.shape(), apart})
        for (const bool of_file : {true, false}) {
          const Tensor memory = full(device_, room, -1.0, dtype);
          TensorView to = memory.view();
          to.shape = piece.shape();
          const std::int64_t copied =
              of_file ? read_common(blocks, to, piece, file, *file.find("t"), whole_piece(shape_))
                      : copy_common_from_host(blocks, to, piece, all(), whole_piece(shape_));
          EXPECT_EQ(copied, piece.elements());
          const Tensor found = empty(device_, piece.shape(), DType::kFloat64);
          device_.backend().copy(device_.kernel_context(), found.view(), to);
          EXPECT_EQ(found.to_vector(), std::vector<double>(expected.begin(), expected.end()));
        }
  }
  TensorView all() { return make_view(values_.data(), DType::kFloat32, shape_); }
  std::vector<float> of_memory(const Piece& piece) {
    std::vector<float> held(static_cast<std::size_t>(piece.elements()));
    HostBlocks blocks(context_);
    copy_common_from_host(blocks, make_view(held.data(), DType::kFloat32, piece.shape()), piece,
                          all(), whole_piece(shape_));
    return held;
  }

  test::TempFolder folder_;
  ExecutionContext context_;
  ExecutionContext device_{on_fenced_device()};
  CountingDisk counting_;
  Shape shape_;
  std::vector<float> values_;
};

TEST_F(PieceTest, OfAnotherHostsFileOnlyTheColumnsOfAShardAreAskedFor) {
  write({600, 400});
  const Piece columns = {{{{0, 600}}, {{100, 200}}}};
  EXPECT_EQ(read(columns, counting_), of_memory(columns));
  EXPECT_EQ(counting_.bytes, 600u * 100 * sizeof(float));
  EXPECT_EQ(counting_.requests, 1u) << "all rows in one request";
  const Piece some_rows = {{{{10, 20}, {500, 510}}, {{0, 7}, {9, 12}}}};
  EXPECT_EQ(read(some_rows, counting_), of_memory(some_rows));
  EXPECT_EQ(counting_.bytes, 20u * 12 * sizeof(float)) << "from the first column to the last";
  EXPECT_EQ(counting_.requests, 2u);
  for (const Piece& piece : {columns, some_rows})
    EXPECT_EQ(read(piece, base::own_disk()), of_memory(piece));
}

TEST_F(PieceTest, WholeRowsAreAskedForWhereColumnsWouldSaveLittle) {
  write({600, 400});
  const Piece most = {{{{0, 600}}, {{0, 399}}}};
  EXPECT_EQ(read(most, counting_), of_memory(most));
  EXPECT_EQ(counting_.bytes, 600u * 400 * sizeof(float));
  const Piece rows = {{{{3, 5}}, {{0, 400}}}};
  EXPECT_EQ(read(rows, counting_), of_memory(rows));
  EXPECT_EQ(counting_.bytes, 2u * 400 * sizeof(float));
}

TEST_F(PieceTest, ColumnsOfManyDimsAndOfNoneAreRead) {
  write({5, 8, 3});
  const Piece middle = {{{{1, 4}}, {{2, 4}}, {{0, 1}, {2, 3}}}};
  EXPECT_EQ(read(middle, counting_), of_memory(middle));
  EXPECT_EQ(counting_.bytes, 3u * 2 * 3 * sizeof(float));
  write({9});
  const Piece part = {{{{2, 5}}}};
  EXPECT_EQ(read(part, counting_), of_memory(part));
  write({});
  EXPECT_EQ(read(whole_piece({}), counting_), of_memory(whole_piece({})));
}

TEST_F(PieceTest, ManyBlocksArriveInAnyDtype) {
  // Rows of 4000 bytes, in blocks of 262 of them.
  write({2000, 1000});
  for (const Piece& piece :
       {whole_piece({2000, 1000}), Piece{{{{7, 900}, {1000, 1999}}, {{0, 1000}}}},
        Piece{{{{0, 2000}}, {{1, 2}, {500, 999}}}}})
    EXPECT_EQ(read(piece, base::own_disk()), of_memory(piece));
}

TEST_F(PieceTest, AFileThatEndsEarlyLeavesNoCopyInFlight) {
  write({2000, 1000});
  const auto file = SafetensorsFile::open(path());
  std::filesystem::resize_file(path(), std::filesystem::file_size(path()) - 3'000'000);
  const Piece whole = whole_piece(shape_);
  const Tensor to = full(device_, shape_, -1.0, DType::kFloat32);
  {
    HostBlocks blocks(device_);
    EXPECT_THROW(read_common(blocks, to.view(), whole, *file, *file->find("t"), whole), IoError);
  }
  const auto memory = device_.allocator(MemoryKind::kHost).allocate(std::size_t{2} << 20);
  std::fill_n(memory->data(), memory->bytes(), std::byte{0x55});
  const std::vector<double> found = to.to_vector();
  for (std::size_t i = 0; i < found.size(); ++i)
    ASSERT_TRUE(found[i] == values_[i] || found[i] == -1.0) << i;
  EXPECT_EQ(found[1'000'000], values_[1'000'000]);
}

}  // namespace
}  // namespace meshloom::train
