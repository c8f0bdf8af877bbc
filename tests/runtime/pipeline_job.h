// Small jobs that are trained over stages of a pipeline, and what tests ask of them.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "core/frontend/template.h"
#include "core/program/describe.h"
#include "core/program/memory.h"
#include "core/strategy/pipeline.h"
#include "tests/runtime/skip_mlp.h"
#include "tests/runtime/trained.h"
#include "tests/temporary_folder.h"

namespace epl {

// A strategy's scopes: a stage for each list of names, quoted as in JSON.
inline std::string stages_of(const std::vector<std::string_view>& matches) {
  std::string scopes;
  for (size_t i = 0; i < matches.size(); ++i) {
    scopes += cat(i ? ", " : "", "{\"name\": \"stage", i, "\", \"replicate\": 1, \"match\": [", matches[i], "]}");
  }
  return cat("\"scopes\": [", scopes, "]");
}

struct Job {
  std::shared_ptr<const Model> model;
  std::map<std::string, Shape> shapes;  // of inputs that the model leaves open
  std::string two, three, four;         // stages, of a strategy
  double clip_norm = 0;
  std::string loss_output;  // empty: the first
  double label_smoothing = 0;
  std::vector<Tensor> (*batch)(int step) = nullptr;
};

inline Job mlp_job(double clip_norm) {
  return {.model = GraphModel::parse(skip_mlp),
          .two = stages_of({R"("h*", "a")", R"("*")"}),
          .three = stages_of({R"("h*", "a")", R"("g", "skip")", R"("*")"}),
          .clip_norm = clip_norm,
          .batch = skip_mlp_batch};
}

// Its head shares the weights of its embedding, which stand in different stages.
inline Job gpt_job() {
  const ModelTemplate* row = template_table().find("gpt2");
  Attributes options;
  for (const Option& spec : row->options) options.set(spec.name, spec.value);
  for (const auto& [name, value] :
       {std::pair("layers", 2), {"width", 32}, {"heads", 2}, {"vocab", 64}, {"context", 16}}) {
    EXPECT_TRUE(options.has(name)) << name;
    options.set(name, int64_t{value});
  }
  const std::string path = program_folder() / "gpt.onnx";
  const Status written = row->write(options, path, nullptr);
  EXPECT_TRUE(written.ok()) << written.to_string();
  auto model = load_model(path);
  EXPECT_TRUE(model.ok()) << model.status().to_string();
  return {.model = *model,
          .shapes = {{(*model)->inputs()[0].name, {8, 16}}},
          .two = stages_of({R"("embedded", "hidden", "transformer.h.0*")", R"("*")"}),
          .three = stages_of({R"("embedded", "hidden", "transformer.h.0*")", R"("transformer.h.1*")", R"("*")"}),
          .batch = [](int step) {
            Tensor ids(TensorType{DType::i64, {8, 16}}), target(TensorType{DType::i64, {8, 16}});
            for (int i = 0; i < 128; ++i) {
              ids.set_int(i, (i * 7 + step) % 64);
              target.set_int(i, i % 11 == 0 ? -100 : ((i + 1) * 7 + step) % 64);
            }
            return std::vector<Tensor>{ids, target};
          }};
}

// Four stages; what the first gives goes to each of the others, so that the last one takes it much later.
inline constexpr std::string_view skipping = R"(graph mlp(x: f32[8,12] batch 0) {
  w0: f32[12,16] = param
  w1: f32[16,16] = param
  w2: f32[16,16] = param
  w3: f32[16,4] = param
  forward:
  a: f32[8,16] = matmul(x, w0)
  b: f32[8,16] = matmul(a, w1)
  c: f32[8,16] = matmul(b, w2)
  c1: f32[8,16] = add(c, a)
  d: f32[8,16] = add(c1, a)
  d1: f32[8,16] = mul(d, b)
  y: f32[8,4] = matmul(d1, w3)
  output y = y
}
)";

inline Job skipping_job() {
  return {.model = GraphModel::parse(skipping),
          .two = stages_of({R"("a", "b")", R"("*")"}),
          .three = stages_of({R"("a")", R"("b", "c", "c1")", R"("*")"}),
          .four = stages_of({R"("a")", R"("b")", R"("c", "c1")", R"("*")"}),
          .clip_norm = 0.5,
          .batch = skip_mlp_batch};
}

// The nodes of the loss are in several stages, those that come before everything else among them.
inline Job smoothed_job() {
  Job job = mlp_job(0);
  job.label_smoothing = 0.1;
  job.two = stages_of({R"("h*", "a", "g", "skip", "r", "y", "loss", "loss_1", "loss_2")", R"("*")"});
  job.four = stages_of({R"("h*", "a", "g", "skip", "r", "y", "loss", "loss_1", "loss_2")", R"("loss_3", "loss_4")",
                        R"("loss_5", "loss_6", "loss_7", "loss_8", "loss_9", "loss_10", "loss_11")", R"("*")"});
  return job;
}

// The keys of a strategy that ask for a row, with so many ranks to the pipeline.
inline std::string keys_of(const PipelineRow& row, int64_t ranks) {
  return cat("\"pipeline.num_stages\": ", ranks, row.chunks == 0 ? ", \"pipeline.virtual_stages\": 2" : "");
}

// The rows that a strategy can ask for.
inline std::vector<std::string> schedule_names() {
  std::vector<std::string> names;
  for (const PipelineRow& row : pipeline_table().rows) {
    if (!row.words.empty()) names.push_back(row.name);
  }
  return names;
}

struct Layout {
  std::string schedule;  // of a pipeline; empty: one stage
  int64_t ranks = 1;
  int64_t micro_batches = 1;
  std::string device = "cpu";
  int64_t stages = 2;
  std::string text() const {
    return cat(schedule, " of ", stages, " stages on ", ranks, " ranks with ", micro_batches, " micro-batches");
  }
};

inline Result<std::shared_ptr<const CompiledPlan>> plan_of(const Job& job, const Layout& layout) {
  PlanOptions options;
  options.model = job.model;
  options.binding.input_shapes = job.shapes;
  options.train.loss.name = "softmax_cross_entropy";
  options.train.loss.output = job.loss_output;
  if (job.label_smoothing > 0) options.train.loss.options = {{"label_smoothing", job.label_smoothing}};
  options.train.optimizer = "adamw";
  options.train.optimizer_options = {{"lr", 0.01}};
  options.train.clip_norm = job.clip_norm;
  options.ranks = layout.ranks;
  options.device = layout.device;
  std::string strategy = cat("{\"pipeline.num_micro_batch\": ", layout.micro_batches);
  const std::string& stages = layout.stages == 2 ? job.two : layout.stages == 3 ? job.three : job.four;
  if (!layout.schedule.empty()) strategy += cat(", \"pipeline.strategy\": \"", layout.schedule, "\", ", stages);
  EPL_ASSIGN(options.strategy, parse_strategy(strategy + "}"));
  return CompiledPlan::create(test_host(2), options);
}

inline Trained train(const Job& job, const Layout& layout, int steps) {
  return train(plan_of(job, layout), layout.text(), steps, [&](int step) { return job.batch(step); });
}

// The arena of a program while a rank goes through its calls: nothing overlaps that is alive together, nothing is read
// that nobody wrote, and the program knows the largest set that is alive. No layout can do with less: `most` times that
// is enough.
inline void expect_arena(const Program& program, double most, const std::string& layout) {
  const Lives lives = lives_of(program);
  EXPECT_TRUE(lives.unwritten.empty()) << layout << ": " << lives.unwritten.front() << " reads what nobody wrote";
  int clashes = 0;
  for (size_t a = 0; a < lives.ranges.size(); ++a) {
    for (size_t b = 0; b < a; ++b) {
      const Life &x = lives.ranges[a], &y = lives.ranges[b];
      const bool together = x.first <= y.last && y.first <= x.last;
      clashes += together && x.address < y.address + y.bytes && y.address < x.address + x.bytes;
    }
  }
  EXPECT_EQ(clashes, 0) << layout;
  const int64_t live = std::ranges::max(live_bytes(program));
  EXPECT_EQ(program.memories[0].arena_live_bytes, live) << layout;
  EXPECT_GE(aligned_bytes(program.memories[0].arena_bytes), live) << layout;
  EXPECT_LE(static_cast<double>(program.memories[0].arena_bytes), most * static_cast<double>(live)) << layout;
}

inline void expect_same(const Trained& other, const Trained& one, const Layout& layout) {
  expect_same(other, one, layout.text());
}

}  // namespace epl
