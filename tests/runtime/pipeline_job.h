// Small jobs that are trained over stages of a pipeline, and what tests ask of them.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "core/frontend/template.h"
#include "core/program/memory.h"
#include "core/program/transfer.h"
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
  const Status written = row->write(options, path);
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

// What a program has in memory while a rank goes through its calls one by one.
class Unrolled {
 public:
  explicit Unrolled(const Program& program) : program_(program) {
    for (size_t c = 0; c < program.calls.size(); ++c) {
      const BlockCall& call = program.calls[c];
      for (int event : program.waits[c]) end_send(event);
      const auto block = program.blocks.begin() + program.find(call.id());
      for (int i = block->first; i < block->last; ++i, ++time_) go_through(i, call.micro_batch);
    }
    for (const auto& [event, range] : sending_) ranges_[range].last = time_ - 1;
  }

  // The largest number of bytes that are alive together: what no layout can do without.
  int64_t largest_live() const {
    int64_t fullest = 0;
    for (int t = 0; t < time_; ++t) {
      int64_t bytes = 0;
      for (const Range& range : ranges_) bytes += range.first <= t && t <= range.last ? range.bytes : 0;
      fullest = std::max(fullest, bytes);
    }
    return fullest;
  }

  // Pairs that are alive together and overlap.
  int clashes() const {
    int found = 0;
    for (size_t a = 0; a < ranges_.size(); ++a) {
      for (size_t b = 0; b < a; ++b) {
        const Range &x = ranges_[a], &y = ranges_[b];
        const bool together = x.first <= y.last && y.first <= x.last;
        found += together && x.address < y.address + y.bytes && y.address < x.address + x.bytes;
      }
    }
    return found;
  }

 private:
  struct Range {
    int64_t address = 0, bytes = 0;
    int first = 0, last = 0;
  };

  // Until then what is sent is read.
  void end_send(int event) {
    const auto sent = sending_.find(event);
    if (sent == sending_.end()) return;
    ranges_[sent->second].last = std::max(ranges_[sent->second].last, time_ - 1);
    sending_.erase(sent);
  }

  void go_through(int i, int64_t micro_batch) {
    const Instruction& in = program_.instructions[static_cast<size_t>(i)];
    const auto address = [&](const Location& at) { return program_.offset_of(at, micro_batch); };
    for (const Location& at : in.inputs) {
      if (at.space != Location::Space::arena) continue;
      ASSERT_TRUE(latest_.contains(address(at))) << in.name << " reads what nobody wrote";
      const size_t range = latest_.at(address(at));
      ranges_[range].last = time_;
      if (in.records >= 0) sending_[in.records + (program_.loops(i) ? micro_batch : 0)] = range;
    }
    const bool unfinished = in.transfer && in.transfer->at_last_turn && micro_batch + 1 != program_.micro_batches();
    for (size_t o = 0; !unfinished && o < in.outputs.size(); ++o) {
      const Location& at = in.outputs[o];
      const bool in_place = std::ranges::find(in.inputs, at) != in.inputs.end();
      if (at.space != Location::Space::arena || in_place) continue;
      latest_[address(at)] = add(address(at), in.query->out(static_cast<int>(o)).bytes());
    }
    if (in.workspace.space != Location::Space::arena) return;
    // What a sum keeps from turn to turn is there from the first turn to the last.
    const bool holds = in.transfer && in.transfer->held_bytes;
    if (!holds) {
      add(address(in.workspace), in.workspace_bytes);
    } else if (const auto held = held_.find(i); held != held_.end()) {
      ranges_[held->second].last = time_;
    } else {
      held_[i] = add(address(in.workspace), in.workspace_bytes + in.transfer->held_bytes(in, program_.micro_batches()));
    }
  }

  size_t add(int64_t address, int64_t bytes) {
    ranges_.push_back({address, aligned_bytes(bytes), time_, time_});
    return ranges_.size() - 1;
  }

  const Program& program_;
  int time_ = 0;
  std::vector<Range> ranges_;
  std::map<int64_t, size_t> latest_;   // by address
  std::map<int, size_t> held_;         // by instruction
  std::map<int64_t, size_t> sending_;  // by event
};

inline void expect_same(const Trained& other, const Trained& one, const Layout& layout) {
  expect_same(other, one, layout.text());
}

}  // namespace epl
