// SPDX-License-Identifier: Apache-2.0
#include "tests/support/test_tensor.h"

namespace meshloom::kernels::test {
namespace {

TestTensor ids_of(const std::vector<std::int64_t>& values) {
  TestTensor ids({static_cast<std::int64_t>(values.size())}, DType::kInt64);
  for (std::size_t i = 0; i < values.size(); ++i)
    ids.set(static_cast<std::int64_t>(i), static_cast<double>(values[i]));
  return ids;
}

/// Index and value.
std::vector<double> first_outside(const std::vector<std::int64_t>& ids, std::int64_t limit,
                                  std::optional<std::int64_t> allowed) {
  const TestTensor found({2}, DType::kInt64);
  backend().first_id_outside(test_context(), found, ids_of(ids), limit, allowed);
  return found.values();
}

TEST(SliceIds, PlacesAreThoseInTheRangesOneBehindTheOther) {
  const std::vector<IdRange> ranges{{10, 12}, {3, 3}, {0, 4}};
  const TestTensor ids = ids_of({10, 11, 12, 0, 3, 4, -100, 9});
  const TestTensor places({8}, DType::kInt64);
  backend().slice_ids(test_context(), places, ids, {ranges, -100, -2});
  EXPECT_EQ(places.values(), (std::vector<double>{0, 1, -1, 2, 5, -1, -2, -1}));
  // The special id may be one that the slice holds.
  backend().slice_ids(test_context(), places, ids, {ranges, 11, kOtherSlice});
  EXPECT_EQ(places.values(), (std::vector<double>{0, -1, -1, 2, 5, -1, -1, -1}));
  backend().slice_ids(test_context(), places, ids, {});
  EXPECT_EQ(places.values(), std::vector<double>(8, -1.0));
}

TEST(FirstIdOutside, IsTheFirstThatIsNotAllowed) {
  using Found = std::vector<double>;
  EXPECT_EQ(first_outside({0, 6, -100, 3}, 7, -100), (Found{-1, 0}));
  EXPECT_EQ(first_outside({0, 6, -100, 3}, 7, 0), (Found{2, -100}));
  EXPECT_EQ(first_outside({0, 7, -1}, 7, -1), (Found{1, 7}));
  EXPECT_EQ(first_outside({}, 7, -1), (Found{-1, 0}));
  EXPECT_EQ(first_outside({0, 6, 7, -1}, 7, std::nullopt), (Found{2, 7}));
}

TEST(CountIds, CountsOne) {
  const TestTensor count({1}, DType::kInt64);
  backend().count_ids(test_context(), count, ids_of({5, 0, 5, -100, 5}), 5);
  EXPECT_EQ(count.at(0), 3.0);
  backend().count_ids(test_context(), count, ids_of({}), 5);
  EXPECT_EQ(count.at(0), 0.0);
}

// The classes of all ranks in slices of 3, 0 and 5, one of them infinitely unlikely.
TEST(CombineClassSlices, GivesWhatTheWholeRowWould) {
  Rng rng(4);
  const std::vector<std::int64_t> begins{0, 3, 3, 8};
  for (const DType dtype : {DType::kFloat32, DType::kFloat64}) {
    TestTensor logits = random_tensor({4, 8}, dtype, rng);
    logits.set(1, -std::numeric_limits<double>::infinity());
    const TestTensor targets = ids_of({7, 0, -2, 3});
    const TestTensor losses({4}, dtype), lse({4}, dtype);
    CrossEntropyOptions options;
    options.ignore_index = -2;
    backend().cross_entropy(test_context(), {logits, targets, losses, lse}, options);

    const TestTensor slices({3, 2, 4}, dtype);
    options.slice.total = 8;
    for (std::int64_t rank = 0; rank < 3; ++rank) {
      const auto r = static_cast<std::size_t>(rank);
      const IdRange range{begins[r], begins[r + 1]};
      const TestTensor places({4}, DType::kInt64);
      backend().slice_ids(test_context(), places, targets, {{&range, 1}, -2, -2});
      TensorView own = logits.view();
      own.data = static_cast<std::byte*>(own.data) +
                 range.begin * static_cast<std::int64_t>(dtype_size(dtype));
      own.shape[1] = range.end - range.begin;
      const auto row_of_slices = [&](std::int64_t which) {
        TensorView view = slices.view();
        view.data = static_cast<std::byte*>(view.data) +
                    (rank * 2 + which) * 4 * static_cast<std::int64_t>(dtype_size(dtype));
        view.shape = {4};
        view.strides = {1};
        return view;
      };
      backend().cross_entropy(test_context(), {own, places, row_of_slices(0), row_of_slices(1)},
                              options);
    }
    const TestTensor got_losses({4}, dtype), got_lse({4}, dtype);
    backend().combine_class_slices(test_context(), {{}, targets, got_losses, got_lse}, slices, -2);
    expect_close(got_losses.values(), losses.values(), 1e-6);
    expect_close(got_lse.values(), lse.values(), 1e-6);
    EXPECT_EQ(got_losses.at(2), 0.0);
  }
}

}  // namespace
}  // namespace meshloom::kernels::test
