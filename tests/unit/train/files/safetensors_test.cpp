// SPDX-License-Identifier: Apache-2.0
#include "daemon/train/files/safetensors.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <ctime>
#include <fstream>
#include <map>
#include <random>

#include "kernels/base/error.h"
#include "tests/support/file_text.h"
#include "tests/support/source_folder.h"
#include "tests/support/temp_folder.h"
#include "tests/unit/train/files/expect_holds.h"

namespace meshloom::train {
namespace {

using meshloom::test::TempFolder;

/// The bytes of a file with this header and so many bytes of data.
std::string file_of(const std::string& header, std::size_t data_bytes) {
  const std::uint64_t length = header.size();
  std::string out(sizeof length, '\0');
  std::memcpy(out.data(), &length, sizeof length);
  return out + header + std::string(data_bytes, 'd');
}

std::filesystem::path write_file(const TempFolder& folder, const std::string& bytes) {
  const auto path = folder.path() / "case.safetensors";
  std::ofstream(path, std::ios::binary) << bytes;
  return path;
}

/// The message of what opening throws, or "" where it succeeds.
std::string open_error(const std::filesystem::path& path) {
  try {
    SafetensorsFile::open(path);
    return "";
  } catch (const Error& e) {
    return e.what();
  }
}

std::string header_error(const std::string& header, std::size_t data_bytes) {
  TempFolder folder;
  return open_error(write_file(folder, file_of(header, data_bytes)));
}

TEST(Safetensors, BrokenFilesAreRefusedByName) {
  const std::map<std::string, std::vector<std::string>> cases = {
      {"truncated", {"truncated.safetensors", "offset"}},
      {"header_too_large", {"header_too_large.safetensors", "header"}},
      {"header_length_past_end", {"header_length_past_end.safetensors", "header"}},
      {"header_not_json", {"header"}},
      {"short_file", {"header"}},
      {"overlapping_offsets", {"overlap", "out.y"}},
      {"offsets_past_end", {"offset", "out.y"}},
      {"offsets_reversed", {"offset", "in.x"}},
      {"shape_size_mismatch", {"in.x", "size"}},
      {"shape_overflow", {"in.x", "size"}},
      {"unknown_dtype", {"in.x", "Q99"}},
      {"missing_file", {"missing_file.safetensors"}},
  };
  const std::filesystem::path folder = test::source_file("tests/golden/malformed");
  for (const auto& [name, words] : cases) {
    SCOPED_TRACE(name);
    expect_holds(open_error(folder / (name + ".safetensors")), words);
  }
  EXPECT_EQ(open_error(folder / "good.safetensors"), "");
}

TEST(Safetensors, RulesOfTheHeader) {
  struct Case {
    std::string header;
    std::size_t data;
    std::vector<std::string> words;
  };
  const std::string x = R"("x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]})";
  const std::vector<Case> cases = {
      {"{" + x + "," + x + "}", 8, {"duplicate", "'x'"}},
      {R"({"x":{"dtype":"F32","dtype":"F32","shape":[2],"data_offsets":[0,8]}})",
       8,
       {"duplicate", "dtype"}},
      {R"({"__metadata__":{"a":"1","a":"2"},)" + x + "}", 8, {"duplicate", "'a'"}},
      {R"({"__metadata__":{},"__metadata__":{},)" + x + "}", 8, {"duplicate", "__metadata__"}},
      {R"({"__metadata__":{"a":1},)" + x + "}", 8, {"__metadata__", "'a'", "string"}},
      {R"({"__metadata__":{"a":{}},)" + x + "}", 8, {"__metadata__", "string"}},
      {R"({"__metadata__":[],)" + x + "}", 8, {"__metadata__", "object"}},
      {" {" + x + "}", 8, {"header", "'{'"}},
      {"[]", 0, {"header", "'{'"}},
      {"", 0, {"header"}},
      {"{" + x + "} x", 8, {"JSON"}},
      {"{" + x + "}" + std::string(3, '\0'), 8, {"JSON"}},
      {"{" + x, 8, {"JSON"}},
      {R"({"x":3})", 0, {"'x'", "object"}},
      {R"({"x":{"dtype":"F32","shape":[2.0],"data_offsets":[0,8]}})", 8, {"'x'", "shape"}},
      {R"({"x":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})", 8, {"'x'", "size", "-2"}},
      {R"({"x":{"dtype":"F32","shape":["2"],"data_offsets":[0,8]}})", 8, {"'x'", "shape"}},
      {R"({"x":{"dtype":"F32","shape":[[2]],"data_offsets":[0,8]}})", 8, {"'x'", "shape"}},
      {R"({"x":{"dtype":"F32","shape":2,"data_offsets":[0,8]}})", 8, {"'x'", "array"}},
      {R"({"x":{"dtype":["F32"],"shape":[2],"data_offsets":[0,8]}})", 8, {"'x'", "dtype"}},
      {R"({"x":{"dtype":"I16","shape":[4],"data_offsets":[0,8]}})", 8, {"'x'", "dtype", "I16"}},
      {R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[0]}})", 8, {"'x'", "data_offsets"}},
      {R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8,8]}})", 8, {"'x'", "data_offsets"}},
      {R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[0,18446744073709551616]}})",
       8,
       {"data_offsets"}},
      {R"({"x":{"dtype":"F32","shape":[2]}})", 8, {"'x'", "data_offsets"}},
      {R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8],"extra":1}})", 8, {"'x'", "extra"}},
      {R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})",
       12,
       {"offset", "'x'", "no tensor"}},
      {"{" + x + "}", 12, {"offset", "12"}},
      {R"({"x":{"dtype":"F32","shape":[9223372036854775808],"data_offsets":[0,8]}})",
       8,
       {"'x'", "size"}},
      {R"({"x":{"dtype":"F32","shape":[4611686018427387905],"data_offsets":[0,4]}})",
       4,
       {"'x'", "size"}},
      {R"({"x":{"dtype":"F32","shape":[1,1,1,1,1,1,1,1,1],"data_offsets":[0,4]}})",
       4,
       {"'x'", "sizes"}},
      {R"({"":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 8, {"name"}},
      {"{\"" + std::string(257, 'n') + R"(":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})",
       8,
       {"name", "256"}},
      {R"({"a\u0000b":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 8, {"name"}},
      {"{\"\xc3\xa9\":"
       R"({"dtype":"F32","shape":[2],"data_offsets":[0,8]}})",
       8,
       {"name"}},
      {"{\"\xff\xfe\":"
       R"({"dtype":"F32","shape":[2],"data_offsets":[0,8]}})",
       8,
       {"JSON"}},
      {"{\"__metadata__\":{\"a\":\"\xc3\x28\"}," + x + "}", 8, {"JSON"}},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.header.substr(0, 200));
    expect_holds(header_error(c.header, c.data), c.words);
  }
  EXPECT_EQ(header_error("{" + x + "}  ", 8), "");
  EXPECT_EQ(header_error("{}", 0), "");
  EXPECT_EQ(header_error(R"({"__metadata__":{"format":"pt","n":"\u00e9"},)" + x + "}", 8), "");
  EXPECT_EQ(header_error("{\"" + std::string(256, 'n') +
                             R"(":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})",
                         8),
            "");
  EXPECT_EQ(
      header_error(
          R"({"b":{"dtype":"F32","shape":[],"data_offsets":[0,4]},"a":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}})",
          4),
      "");
}

TEST(Safetensors, SpecialFilesDoNotHang) {
  TempFolder folder;
  expect_holds(open_error(folder.path()), {"regular file"});
  const auto fifo = folder.path() / "fifo.safetensors";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  expect_holds(open_error(fifo), {"regular file"});
}

#if defined(NDEBUG) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
constexpr double kMostSeconds = 1.0;
#else
constexpr double kMostSeconds = 20.0;
#endif

TEST(Safetensors, WorstHeaderTakesLessThanASecond) {
  std::string dense = "{";
  for (int i = 0; dense.size() < kMaxSafetensorsHeader - 100; ++i)
    dense += fmt::format("{}\"{}\":{{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[{},{}]}}",
                         i ? "," : "", i, i, i + 1);
  dense += "}";
  const std::string nested = "{" + std::string(kMaxSafetensorsHeader - 1, '{');
  const std::string arrays = R"({"a":)" + std::string(kMaxSafetensorsHeader - 5, '[');
  const std::string spaces = "{" + std::string(kMaxSafetensorsHeader - 2, ' ') + "}";
  for (const std::string& header : {dense, nested, arrays, spaces}) {
    const std::clock_t start = std::clock();  // CPU time: other processes do not count
    try {
      parse_safetensors_header(header, 1u << 20, "worst");
    } catch (const InvalidArgument&) {
    }
    EXPECT_LT(static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC, kMostSeconds);
  }
}

struct RandomTensor {
  SafetensorsEntry entry;
  std::vector<std::byte> bytes;
};

std::vector<RandomTensor> random_tensors(std::mt19937& random) {
  constexpr DType kAll[] = {DType::kFloat32,    DType::kBFloat16,  DType::kFloat16, DType::kFloat64,
                            DType::kInt64,      DType::kInt32,     DType::kUInt8,   DType::kBool,
                            DType::kFloat8E4M3, DType::kFloat8E5M2};
  std::vector<RandomTensor> tensors;
  const int count = static_cast<int>(random() % 12);
  for (int i = 0; i < count; ++i) {
    RandomTensor t;
    t.entry.name = fmt::format("layer.{}.w{}", random() % 100, i);
    t.entry.dtype = kAll[random() % std::size(kAll)];
    const int ndim = static_cast<int>(random() % 4);
    for (int d = 0; d < ndim; ++d)
      t.entry.shape.push_back(static_cast<std::int64_t>(1 + random() % 9));
    if (i == 3 && ndim > 0) t.entry.shape[0] = 0;
    t.bytes.resize(static_cast<std::size_t>(numel(t.entry.shape)) * dtype_size(t.entry.dtype));
    for (std::byte& b : t.bytes) b = static_cast<std::byte>(random());
    tensors.push_back(std::move(t));
  }
  return tensors;
}

std::vector<NamedView> views_of(std::vector<RandomTensor>& tensors) {
  std::vector<NamedView> views;
  for (RandomTensor& t : tensors)
    views.push_back({t.entry.name, make_view(t.bytes.data(), t.entry.dtype, t.entry.shape)});
  return views;
}

TEST(Safetensors, RoundTripKeepsEveryByte) {
  std::mt19937 random(7);
  TempFolder folder;
  const auto path = folder.path() / "model.safetensors";
  for (int round = 0; round < 100; ++round) {
    std::vector<RandomTensor> tensors = random_tensors(random);
    std::vector<NamedView> views = views_of(tensors);
    write_safetensors(path, views, {{"format", "pt"}, {"note", "\"quoted\"\n"}});
    const std::string first = test::file_text(path);

    const auto file = SafetensorsFile::open(path);
    ASSERT_EQ(file->entries().size(), tensors.size());
    EXPECT_EQ(file->metadata().at("note"), "\"quoted\"\n");
    EXPECT_FALSE(file->contains("absent"));
    EXPECT_THROW(file->view("absent"), NotFound);
    for (const RandomTensor& t : tensors) {
      const TensorView view = file->view(t.entry.name);
      EXPECT_EQ(view.dtype, t.entry.dtype);
      EXPECT_EQ(view.shape, t.entry.shape);
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(view.data) % dtype_size(view.dtype), 0u);
      if (!t.bytes.empty()) {
        EXPECT_EQ(std::memcmp(view.data, t.bytes.data(), t.bytes.size()), 0);
      }
    }
    std::shuffle(views.begin(), views.end(), random);
    write_safetensors(path, views, {{"note", "\"quoted\"\n"}, {"format", "pt"}});
    EXPECT_EQ(test::file_text(path), first) << "the order of the arguments must not matter";
  }
}

/// The format's own library puts empty tensors where they come in its order: several at one offset.
TEST(Safetensors, EmptyTensorsMayShareAnOffset) {
  TempFolder folder;
  const std::string header =
      R"({"a":{"dtype":"F32","shape":[0,3],"data_offsets":[0,0]},"b":{"dtype":"F32","shape":[0],"data_offsets":[0,0]},)"
      R"("c":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"d":{"dtype":"U8","shape":[5,0],"data_offsets":[8,8]},)"
      R"("e":{"dtype":"U8","shape":[0],"data_offsets":[8,8]}})";
  const auto file = SafetensorsFile::open(write_file(folder, file_of(header, 8)));
  EXPECT_EQ(file->entries().size(), 5u);
  EXPECT_EQ(file->view("b").shape, Shape{0});
  EXPECT_EQ(file->view("c").shape, Shape{2});
  EXPECT_EQ(file->view("d").shape, (Shape{5, 0}));

  float values[2] = {1.0f, 2.0f};
  const std::vector<NamedView> views = {{"first", make_view(values, DType::kFloat32, {0, 3})},
                                        {"second", make_view(values, DType::kFloat32, {4, 0})},
                                        {"third", make_view(values, DType::kFloat32, {0})},
                                        {"values", make_view(values, DType::kFloat32, {2})}};
  const std::filesystem::path path = folder.path() / "written.safetensors";
  write_safetensors(path, views, {});
  const auto written = SafetensorsFile::open(path);
  EXPECT_EQ(written->view("second").shape, (Shape{4, 0}));
  EXPECT_EQ(std::memcmp(written->view("values").data, values, sizeof(values)), 0);
}

TEST(Safetensors, UnalignedDataComeAligned) {
  TempFolder folder;
  const std::string header =
      R"({"a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},"b":{"dtype":"F32","shape":[2],"data_offsets":[3,11]}})";
  std::string bytes = file_of(header, 11);
  const float values[2] = {1.5f, -2.25f};
  std::memcpy(bytes.data() + bytes.size() - 8, values, 8);
  const auto file = SafetensorsFile::open(write_file(folder, bytes));
  const TensorView view = file->view("b");
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(view.data) % 4, 0u);
  EXPECT_EQ(view.as<float>()[0], 1.5f);
  EXPECT_EQ(view.as<float>()[1], -2.25f);
}

TEST(Safetensors, WriterStreamsAndShowsEveryByte) {
  TempFolder folder;
  const auto path = folder.path() / "model.safetensors";
  std::vector<float> a(700'000, 1.25f);
  std::vector<std::int64_t> b = {4, 5};
  std::string seen;
  SafetensorsWriter writer(path,
                           {{.name = "a", .dtype = DType::kFloat32, .shape = {700, 1000}},
                            {.name = "b", .dtype = DType::kInt64, .shape = {2}}},
                           {}, [&](std::span<const std::byte> bytes) {
                             seen.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
                           });
  ASSERT_EQ(writer.entries()[0].name, "b") << "wider elements come first";
  writer.write(make_view(b.data(), DType::kInt64, {2}));
  EXPECT_THROW(writer.write(make_view(a.data(), DType::kFloat32, {7})), InternalError);
  SafetensorsWriter again(path, writer.entries(), {}, {});
  again.write(make_view(b.data(), DType::kInt64, {2}));
  EXPECT_THROW(again.close(), InternalError);
  seen.clear();
  SafetensorsWriter whole(path, writer.entries(), {}, [&](std::span<const std::byte> bytes) {
    seen.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  });
  whole.write(make_view(b.data(), DType::kInt64, {2}));
  whole.write(make_view(a.data(), DType::kFloat32, {700, 1000}));
  whole.close();
  EXPECT_EQ(seen, test::file_text(path));
}

TEST(Safetensors, WriterRefusesWhatNoReaderAccepts) {
  TempFolder folder;
  const auto path = folder.path() / "model.safetensors";
  float value = 0;
  const TensorView one = make_view(&value, DType::kFloat32, {1});
  EXPECT_THROW(write_safetensors(path, {{"a", one}, {"a", one}}), InvalidArgument);
  EXPECT_THROW(write_safetensors(path, {{"", one}}), InvalidArgument);
  EXPECT_THROW(write_safetensors(path, {{"a\n", one}}), InvalidArgument);
  EXPECT_THROW(write_safetensors(path, {{std::string(257, 'a'), one}}), InvalidArgument);
  EXPECT_THROW(write_safetensors(path, {{"__metadata__", one}}), InvalidArgument);
  EXPECT_THROW(write_safetensors(folder.path() / "none" / "x", {{"a", one}}), IoError);
  EXPECT_THROW(write_safetensors("/dev/full", {{"a", one}}), ResourceExhausted);
}

TEST(Safetensors, MutatedFilesNeverCrash) {
  std::mt19937 random(11);
  std::vector<RandomTensor> tensors;
  while (tensors.size() < 5) tensors = random_tensors(random);
  TempFolder folder;
  const auto path = folder.path() / "seed.safetensors";
  write_safetensors(path, views_of(tensors));
  const std::string seed = test::file_text(path);
  std::uint64_t header_length = 0;
  std::memcpy(&header_length, seed.data(), 8);

  int accepted = 0, refused = 0;
  for (int i = 0; i < 20'000; ++i) {
    std::string bytes = seed;
    const int flips = 1 + static_cast<int>(random() % 4);
    for (int f = 0; f < flips; ++f) {
      // Mostly the header; digits and punctuation as often as any byte, so that mutants stay near
      // JSON.
      const std::size_t at =
          random() % 10 == 0 ? random() % bytes.size() : 8 + random() % header_length;
      static constexpr char kNear[] = "0123456789[]{},:\"-.eE \\";
      bytes[at] = random() % 2 ? kNear[random() % (sizeof kNear - 1)] : static_cast<char>(random());
    }
    if (random() % 20 == 0) bytes.resize(random() % bytes.size());
    try {
      if (i % 10 == 0) {
        const auto file = SafetensorsFile::open(write_file(folder, bytes));
        std::uint64_t sum = 0;
        for (const SafetensorsEntry& entry : file->entries()) {
          const TensorView view = file->view(entry);
          for (std::size_t b = 0; b < view.bytes(); ++b) sum += view.as<unsigned char>()[b];
        }
        EXPECT_GE(sum, 0u);
      } else if (bytes.size() > 8 + header_length) {
        parse_safetensors_header(std::string_view(bytes).substr(8, header_length),
                                 bytes.size() - 8 - header_length, "mutant");
      }
      ++accepted;
    } catch (const Error& e) {
      EXPECT_TRUE(e.kind() == ErrorKind::kInvalidArgument) << e.what();
      ++refused;
    }
  }
  EXPECT_GT(accepted, 0);
  EXPECT_GT(refused, 1000);
}

}  // namespace
}  // namespace meshloom::train
