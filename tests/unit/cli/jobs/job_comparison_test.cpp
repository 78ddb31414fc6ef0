// SPDX-License-Identifier: Apache-2.0
// Jobs side by side, and their curves.
#include "daemon/cli/jobs/job_comparison.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <sstream>

#include "daemon/cli/jobs/job_facts.h"
#include "daemon/cli/output/chart.h"
#include "daemon/cli/plans/plan_text.h"

namespace meshloom::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

JobHistory history(const std::string& name, double lr, std::int64_t first, std::int64_t last) {
  JobHistory job;
  job.job.set_name("jobs/" + name);
  job.job.mutable_resolved()->mutable_optimizer()->set_lr(lr);
  job.job.mutable_resolved()->mutable_training()->set_steps(10);
  for (std::int64_t step = first; step <= last; ++step)
    add_metrics_line("{\"step\": " + std::to_string(step) +
                         ", \"loss\": " + std::to_string(5.0 - 0.1 * static_cast<double>(step)) +
                         ", \"tokens_per_second\": " + std::to_string(100 * step) + "}",
                     &job);
  return job;
}

TEST(JobHistory, ReadsLossesRatesAndValidations) {
  JobHistory job = history("a", 1e-4, 1, 3);
  add_metrics_line("{\"step\": 3, \"validation_loss\": 2.5}", &job);
  add_metrics_line("{\"step\": 4, \"loss\": null, \"tokens_per_second\": 50}", &job);
  add_metrics_line("no JSON", &job);
  add_metrics_line("[1]", &job);
  add_metrics_line(
      "{\"step\": 4, \"validation_loss\": 2.25, \"validation_loss_books\": 2.0, "
      "\"perplexity_books\": 7.4}",
      &job);
  EXPECT_EQ(job.validation_sets.size(), 1u);
  EXPECT_DOUBLE_EQ(job.validation_sets["books"].at(4), 2.0);
  EXPECT_EQ(job.losses.size(), 3u);
  EXPECT_DOUBLE_EQ(job.losses.at(2), 4.8);
  EXPECT_DOUBLE_EQ(job.validation.at(3), 2.5);
  EXPECT_DOUBLE_EQ(median(job.rates), 200.0);
  EXPECT_EQ(median({}), 0.0);
}

TEST(JobComparison, ShowsWhatDiffersAndCommonSteps) {
  std::vector<JobHistory> jobs = {history("a", 1e-4, 1, 100), history("b", 3e-4, 21, 120)};
  jobs[0].job.mutable_resolved()->mutable_data()->set_path("one.txt");
  jobs[1].job.mutable_resolved()->mutable_data()->set_path("other.txt");
  const JobComparison comparison = compare(jobs, 5);
  ASSERT_EQ(comparison.fields.size(), 2u);
  EXPECT_EQ(comparison.fields[0].field, "optimizer.lr");
  EXPECT_THAT(comparison.fields[0].values, ElementsAre("0.0001", "0.0003"));
  EXPECT_THAT(comparison.fields[1].values, ElementsAre("one.txt", "other.txt"));
  std::vector<std::int64_t> steps;
  for (const CommonLosses& at : comparison.losses) {
    steps.push_back(at.step);
    EXPECT_EQ(at.losses[0], at.losses[1]);
  }
  EXPECT_THAT(steps, ElementsAre(21, 40, 60, 80, 100));
  EXPECT_THAT(comparison.validation, IsEmpty());
  jobs[0].job.clear_resolved();
  EXPECT_THAT(compare(jobs, 5).without_config, ElementsAre("a"));
  EXPECT_THAT(compare(jobs, 5).fields, IsEmpty());
  EXPECT_THAT(compare({history("a", 1, 1, 5), history("b", 1, 6, 9)}, 5).losses, IsEmpty());
}

TEST(JobComparison, OfAJobThatGoesOnFromAnotherShowsWhereTheyDiffer) {
  std::vector<JobHistory> jobs = {history("a", 1e-4, 1, 100), history("b", 3e-4, 1, 100)};
  JobComparison comparison = compare(jobs, 5);
  EXPECT_EQ(comparison.alike_up_to, 100);
  EXPECT_FALSE(comparison.differ);
  EXPECT_EQ(comparison.losses.front().step, 1);
  for (auto& [step, loss] : jobs[1].losses)
    if (step > 60) loss += 0.5;
  comparison = compare(jobs, 5);
  EXPECT_EQ(comparison.alike_up_to, 60);
  EXPECT_TRUE(comparison.differ);
  std::vector<std::int64_t> steps;
  for (const CommonLosses& at : comparison.losses) steps.push_back(at.step);
  EXPECT_THAT(steps, ElementsAre(60, 70, 80, 90, 100));
  jobs[1].losses.at(1) += 0.1;
  comparison = compare(jobs, 5);
  EXPECT_EQ(comparison.alike_up_to, 0);
  EXPECT_EQ(comparison.losses.front().step, 1);
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

/// Characters of UTF-8 text.
std::size_t length(const std::string& text) {
  std::size_t count = 0;
  for (const char c : text) count += (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  return count;
}

TEST(Chart, ACurveFallsFromTheTopLeftToTheBottomRight) {
  const Curve falling{"a", {{1, 4.0}, {50, 2.5}, {100, 1.0}}};
  for (const int columns : {30, 50, 80, 120}) {
    const auto lines = lines_of(braille_chart({falling}, {columns, 8, false}));
    ASSERT_EQ(lines.size(), 10u);
    for (const std::string& line : lines) EXPECT_LE(length(line), columns) << line;
    EXPECT_THAT(lines[0], HasSubstr("4 |"));
    EXPECT_EQ(lines[0].find("|") + 1, lines[0].find("\xE2")) << "the first point is at the left";
    EXPECT_EQ(length(lines[7]), columns) << "the last one at the right";
    EXPECT_THAT(lines[8], HasSubstr("100"));
    EXPECT_EQ(lines[9], "a: 1 at step 100");
  }
}

TEST(Chart, OneDotIsTheBrailleDotOfItsPlace) {
  // One point lies in the middle of the height, at the left: dot 3 of 4 in one row of cells.
  EXPECT_THAT(lines_of(braille_chart({{"a", {{1, 2.0}}}}, {24, 1, false}))[0],
              HasSubstr("|\xE2\xA0\x82"));
  EXPECT_EQ(braille_chart({{"a", {}}}, {}), "");
}

TEST(Chart, SeveralCurvesShareAxesInColoursOrOneAfterTheOther) {
  const std::vector<Curve> curves = {{"a", {{1, 4.0}, {10, 1.0}}}, {"b", {{1, 8.0}, {20, 2.0}}}};
  const std::string coloured = braille_chart(curves, {60, 6, true});
  EXPECT_THAT(coloured, HasSubstr("\033[31m"));
  EXPECT_THAT(coloured, HasSubstr("\033[32mb: 2 at step 20\033[0m"));
  const std::string plain = braille_chart(curves, {60, 6, false});
  EXPECT_THAT(plain, Not(HasSubstr("\033")));
  EXPECT_EQ(lines_of(plain).size(), 2u * (6 + 2) + 1);
}

TEST(Chart, SvgHasACurveForEachJobAndNoTextThatIsMarkup) {
  const std::string svg =
      svg_chart({{"a<b&c", {{1, 4.0}, {10, 1.0}}}, {"d", {{1, 3.0}, {10, 2.0}}}}, "loss of a<b&c");
  EXPECT_EQ(svg.rfind("<svg ", 0), 0u);
  EXPECT_THAT(svg, HasSubstr("loss of a&lt;b&amp;c"));
  EXPECT_THAT(svg, HasSubstr("points=\"70.0,40.0 770.0,410.0 \""));
  EXPECT_THAT(svg, HasSubstr("</svg>\n"));
  EXPECT_EQ(svg_chart({}, "nothing"), "");
  // Values that lie one unit in the last place apart.
  const double close = std::nextafter(1e6, 2e6);
  EXPECT_THAT(svg_chart({{"a", {{1, 1e6}, {2, close}}}}, "flat"), HasSubstr("</svg>\n"));
}

TEST(JobFacts, SayWhatTextBecame) {
  v1::Job job;
  job.set_steps(10);
  v1::RunConfig& run = *job.mutable_resolved();
  run.mutable_data()->set_path("corpus");
  run.mutable_data()->mutable_identity()->set_bytes(4404019);
  run.mutable_data()->mutable_identity()->set_file_count(3);
  run.mutable_training()->set_seq_len(128);
  run.mutable_training()->set_global_batch_size(4);
  EXPECT_FALSE(tokens_are_known(job));
  EXPECT_EQ(job_facts(job, 0, 0)[0].text,
            "corpus: 3 files, 4.2 MiB of text; its tokens are made when the job begins");
  job.mutable_data()->set_tokens(1'234'567);
  job.mutable_data()->set_samples(9'162);
  job.mutable_data()->set_documents(40);
  EXPECT_TRUE(tokens_are_known(job));
  EXPECT_EQ(job_facts(job, 0, 0)[0].text,
            "corpus: 3 files, 40 documents, 1,234,567 tokens, 9,162 samples to train on, 0.0044 "
            "epochs");
  job.set_steps(1200);
  EXPECT_THAT(job_facts(job, 0, 0)[0].text, HasSubstr(", 0.52 epochs"));
}

TEST(JobFacts, SayDataModelBatchMeshAndTime) {
  v1::Job job;
  job.set_state(v1::JOB_STATE_RUNNING);
  job.set_create_time("1970-01-01T00:01:40.5Z");
  job.set_steps(3000);
  job.set_step(1000);
  v1::RunConfig& run = *job.mutable_resolved();
  run.mutable_model()->set_preset("byte_gpt_1m");
  run.mutable_data()->set_path("bible.txt");
  run.mutable_data()->set_validation_split(0.05);
  run.mutable_data()->mutable_identity()->set_tokens(1'000'000);
  run.mutable_data()->mutable_identity()->set_file_count(2);
  run.mutable_training()->set_seq_len(128);
  run.mutable_training()->set_global_batch_size(16);
  run.mutable_training()->set_micro_batch_size(4);
  run.mutable_mesh()->set_dp(2);
  run.mutable_mesh()->set_fsdp(1);
  run.mutable_mesh()->set_cp(1);
  run.mutable_mesh()->set_tp(1);
  run.mutable_plan()->set_dtype("float32");
  run.set_device("cuda");
  job.mutable_last_step()->set_step(1000);
  job.mutable_last_step()->set_tokens(2'048'000);
  job.mutable_last_step()->set_tokens_per_second(20'480);
  std::map<std::string, std::string> facts;
  for (const Fact& fact : job_facts(job, 812'345'678, 220)) facts[fact.name] = fact.text;
  // (950,000 - 1) / 128 samples; 3000 x 16 of them.
  EXPECT_EQ(facts["data"],
            "bible.txt: 2 files, 1,000,000 tokens, 7,421 samples to train on, 6.47 epochs");
  EXPECT_EQ(facts["model"], "byte_gpt_1m, 812.3 million parameters");
  EXPECT_EQ(facts["batch"],
            "16 samples of 128 tokens = 2,048 a step; 4 at once on each of 2 replicas, 2 times");
  EXPECT_EQ(facts["mesh"], "dp=2");
  EXPECT_EQ(facts["plan"], "float32");
  EXPECT_EQ(facts["device"], "cuda");
  EXPECT_EQ(device_text({}), "cpu") << "of an older daemon";
  EXPECT_EQ(facts["time"],
            "2m00s since it was submitted; about 3m20s left, validation not counted");
  run.mutable_model()->set_fresh_head(true);
  EXPECT_EQ(job_facts(job, 5, 220)[1].text, "byte_gpt_1m, 5 parameters, with a new output head");
  job.set_state(v1::JOB_STATE_SUCCEEDED);
  job.set_finish_time("1970-01-01T00:02:40.5Z");
  job.set_ran_seconds(50);
  job.clear_resolved();
  ASSERT_EQ(job_facts(job, 0, 220).size(), 1u);
  EXPECT_EQ(job_facts(job, 0, 220)[0].text, "1m00s since it was submitted, 50s with the ranks");
}

}  // namespace
}  // namespace meshloom::cli
