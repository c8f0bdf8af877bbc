#include "tools/subject.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "tools/binding.h"
#include "tools/scratch_folder.h"

namespace epl::tools {
namespace {

constexpr int64_t steps_of_graphs = 4, steps_of_cases = 3;
constexpr int64_t classes_of_random = 4;  // that every random graph has at least, as it has rows in tables

template <class T> void append(std::vector<std::byte>& to, T value) {
  const auto* bytes = reinterpret_cast<const std::byte*>(&value);
  to.insert(to.end(), bytes, bytes + sizeof value);
}

constexpr const char* states_in_bf16 = "state_type=bf16";

// A model and data that are drawn.
class Drawn : public Subject {
 public:
  Drawn(JobOptions job, uint64_t seed, int64_t integers) : job_(std::move(job)), seed_(seed), integers_(integers) {
    prepare(steps_of_graphs);
  }
  std::string said() const override { return job_.model; }
  void expect_rounding() override {
    for (const Json& row : library().at("optimizers")) {
      if (row.at("states").empty()) job_.optimizer = row.at("name");
    }
    std::erase(job_.optimizer_options, states_in_bf16);
  }

 protected:
  // For one whose model is there later.
  Drawn(JobOptions job, uint64_t seed) : job_(std::move(job)), seed_(seed), integers_(classes_of_random) {}

  OpenedCase open(const JobOptions& job) override {
    JobOptions all = job_;
    all.strategy = job.strategy;
    all.ranks = job.ranks;
    all.threads = job.threads;
    OpenedCase out;
    out.engine = make_engine(all);
    out.model = load_model(out.engine, all.model);
    out.trainer = make_trainer(out.engine, all);
    bind_open(out.trainer, out.model, all, 0);
    return out;
  }

  std::vector<Raw> batch_at(const OpenedCase&, const std::vector<Port>& inputs, int64_t step) override {
    Draws draws(seed_ * 1000003 + static_cast<uint64_t>(step));
    std::vector<Raw> out;
    for (const Port& port : inputs) {
      Raw raw{port.dtype, port.dims, {}};
      for (int64_t i = 0; i < port.elements(); ++i) {
        const bool target = port.name == "target";
        const double real =
            target && job_.loss == "bce_with_logits" ? static_cast<double>(draws.below(2)) : 2 * draws.real() - 1;
        if (port.dtype == EPL_DTYPE_F32) append(raw.bytes, static_cast<float>(real));
        if (port.dtype == EPL_DTYPE_F64) append(raw.bytes, real);
        if (port.dtype == EPL_DTYPE_I64)
          append(raw.bytes, target && draws.one_in(6) ? int64_t{-100} : draws.below(integers_));
        if (port.dtype == EPL_DTYPE_I32) append(raw.bytes, static_cast<int32_t>(draws.below(integers_)));
        if (port.dtype == EPL_DTYPE_BOOL) append(raw.bytes, static_cast<uint8_t>(draws.below(2)));
      }
      if (raw.bytes.empty())
        throw UsageError("input " + port.name + " is " + port.text() + ", of a type that is not drawn");
      out.push_back(std::move(raw));
    }
    return out;
  }

  JobOptions job_;
  uint64_t seed_;
  int64_t integers_;
};

class RandomGraph final : public Drawn {
 public:
  RandomGraph(uint64_t seed, int64_t blocks, std::string folder)
      : Drawn(drawn_job(seed), seed), blocks_(blocks), folder_(std::move(folder)) {
    job_.model = folder_ + "/random" + std::to_string(blocks) + ".onnx";
    const std::string options = print_json(Json{{"seed", static_cast<int64_t>(seed >> 1)}, {"blocks", blocks}});
    const Engine engine = make_engine(job_);
    check(epl_x_template_write(engine.get(), EPL_STR("random"), options.data(), options.size(), job_.model.data(),
                               job_.model.size(), nullptr));
    prepare(steps_of_graphs);
  }

  std::string said() const override {
    return "epl template random --seed " + std::to_string(seed_ >> 1) + " --blocks " + std::to_string(blocks_) +
           "; loss " + job_.loss + ", optimizer " + job_.optimizer +
           (job_.optimizer_options.size() > 1 ? " with states in bf16" : "") + ", batch " + std::to_string(job_.batch) +
           (job_.clip > 0 ? ", clipped" : "");
  }

  std::unique_ptr<Subject> smaller() const override {
    if (blocks_ == 1) return nullptr;
    constexpr int64_t max_drawn = 6;  // by the template, where nobody says how many
    return std::make_unique<RandomGraph>(seed_, (blocks_ == 0 ? max_drawn : blocks_) - 1, folder_);
  }

 private:
  static JobOptions drawn_job(uint64_t seed) {
    Draws draws(seed);
    JobOptions job;
    static constexpr int64_t batches[] = {2, 4, 8, 8, 16, 12};
    job.batch = draws.of(batches);
    job.loss = draws.one_in(4) ? (draws.one_in(2) ? "mse" : "bce_with_logits") : "softmax_cross_entropy";
    static const Json optimizers = library().at("optimizers");
    const Json& optimizer = draws.of(optimizers);
    job.optimizer = optimizer.at("name").get<std::string>();
    job.optimizer_options = {"lr=0.01"};
    if (draws.one_in(2)) job.clip = 0.5;
    if (job.loss == "softmax_cross_entropy" && draws.one_in(4)) job.label_smoothing = 0.1;
    job.seed = draws.bits() >> 1;
    if (!optimizer.at("states").empty() && draws.one_in(3)) job.optimizer_options.emplace_back(states_in_bf16);
    return job;
  }

  int64_t blocks_;
  std::string folder_;
};

class CaseSubject final : public Subject {
 public:
  explicit CaseSubject(std::string folder) : folder_(std::move(folder)) { prepare(steps_of_cases); }
  std::string said() const override { return folder_; }
  void expect_rounding() override { without_state_ = true; }

 protected:
  OpenedCase open(const JobOptions& job) override {
    CheckOptions o;
    o.job = job;
    o.without_state = without_state_;
    return open_case(o, folder_);
  }

  std::vector<Raw> batch_at(const OpenedCase& opened, const std::vector<Port>& inputs, int64_t step) override {
    check(epl_dataset_seek(opened.data.get(), step));
    std::vector<const epl_tensor*> batch(inputs.size());
    check(epl_dataset_next(opened.data.get(), nullptr, batch.data(), batch.size()));
    std::vector<Raw> out;
    for (size_t i = 0; i < batch.size(); ++i) {
      const auto* data = static_cast<const std::byte*>(epl_tensor_data(batch[i]));
      out.push_back({inputs[i].dtype, inputs[i].dims, {data, data + epl_tensor_bytes(batch[i])}});
    }
    return out;
  }

 private:
  std::string folder_;
  bool without_state_ = false;
};

}  // namespace

void Subject::prepare(int64_t steps) {
  const OpenedCase opened = open({});
  const Strategy none = make<Strategy>(epl_strategy_create, opened.engine.get());
  Plan plan;
  try {
    plan = make_plan(opened.model, opened.trainer, none, {});
  } catch (const ApiError& e) {
    unusable_ = e.what();
    return;
  }
  nodes_ = forward_nodes(plan);
  if (opened.data) check(epl_dataset_bind(opened.data.get(), plan.get(), EPL_ENTRY_TRAIN));
  const std::vector<Port> inputs = train_inputs(plan);
  // Data parallelism cuts what all inputs begin with.
  for (const Port& port : inputs) {
    if (!port.dims.empty()) batch_ = batch_ == 0 ? port.dims[0] : std::min(batch_, port.dims[0]);
  }
  for (int64_t step = 0; step < steps; ++step) batches_.push_back(batch_at(opened, inputs, step));
}

Trained Subject::train(const Layout& layout, const SameBits& common) {
  JobOptions job;
  job.ranks = layout.ranks();
  job.threads = layout.threads;
  job.strategy = strategy(layout, common);
  std::optional<ScratchFolder> folder;
  if (!layout.machine.is_null()) {
    const std::string file = folder.emplace().path() + "/machine.json";
    write_file(file, print_json(layout.machine));
    job.device = "cpu@" + file;
  }
  const OpenedCase opened = open(job);
  std::vector<Inputs> batches;
  for (const std::vector<Raw>& batch : batches_) {
    Inputs& made = batches.emplace_back();
    for (const Raw& raw : batch)
      made.push_back(make<TensorHandle>(epl_tensor_create_copy, opened.engine.get(), raw.dtype, raw.dims.data(),
                                        static_cast<int32_t>(raw.dims.size()),
                                        static_cast<const void*>(raw.bytes.data()), raw.bytes.size()));
  }
  return train_steps(opened.model, opened.trainer, make_strategy(opened.engine, job), job, batches);
}

std::unique_ptr<Subject> random_graph(uint64_t seed, int64_t blocks, const std::string& folder) {
  return std::make_unique<RandomGraph>(seed, blocks, folder);
}
std::unique_ptr<Subject> model_of(const JobOptions& job, uint64_t seed, int64_t integers) {
  return std::make_unique<Drawn>(job, seed, integers);
}
std::unique_ptr<Subject> case_of(const std::string& folder) { return std::make_unique<CaseSubject>(folder); }

}  // namespace epl::tools
