// A rank alone, with an executor and the memory of its caller, for tests of what an executor gives to its device.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "core/runtime/executor.h"
#include "tests/runtime/skip_mlp.h"
#include "tests/runtime/trained.h"

namespace epl {

class LoneRank {
 public:
  static constexpr uint64_t seed = 7;

  explicit LoneRank(const CompiledPlan& plan) : plan_(plan), entry_(*plan.entry(EntryKind::train)) {
    Device& device = *plan.device();
    stream_ = taken(device.create_stream(2));
    store_.emplace(taken(ParameterStore::create(device, *stream_, plan.state(), plan.mesh(0), 0)));
    arenas_ = taken(allocate_each(device, PlanMemory(plan).arenas(0)));
    executor_ = taken(Executor::create(host_, device, *stream_, program(), entry_.agreement_bytes(0), *store_, arenas_,
                                       plan.mesh(0), 0));
    for (const ProgramPort& port : program().inputs) given_.emplace_back(port.global_type);
    for (const ProgramPort& port : program().outputs) got_.emplace_back(port.global_type);
    for (const Tensor& tensor : given_) inputs_.push_back(tensor.data());
    for (Tensor& tensor : got_) outputs_.push_back(tensor.data());
  }

  const Program& program() const { return entry_.programs[0]; }
  const std::vector<Tensor>& given() const { return given_; }
  const std::vector<Tensor>& outputs() const { return got_; }

  void give_batch(int step) {
    for (size_t i = 0; i < given_.size(); ++i) {
      for (int64_t e = 0; e < given_[i].elements(); ++e) {
        if (is_float(given_[i].dtype())) given_[i].set(e, philox_uniform(100 * step + i, e) - 0.5);
        if (!is_float(given_[i].dtype())) given_[i].set_int(e, (e + step) % 4);
      }
    }
  }

  void spoil_batch() { given_[0].set(0, std::numeric_limits<double>::quiet_NaN()); }

  void run(int step) {
    give_batch(step);
    plan_.scalars(entry_, {.step = step}, scalars_);
    const Status status = executor_->run({.inputs = inputs_,
                                          .outputs = outputs_,
                                          .scalars = scalars_,
                                          .seed = seed,
                                          .step = step,
                                          .verdict_output = entry_.verdict_output});
    EXPECT_TRUE(status.ok()) << status.to_string();
    EXPECT_EQ(executor_->verdict(), -1) << "the step is applied";
  }

  // What the host sets for a step, where a recording uploads it from.
  void set_numbers(int step, void* block) {
    plan_.scalars(entry_, {.step = step}, scalars_);
    auto* bytes = static_cast<std::byte*>(block);
    for (const ProgramScalar& scalar : program().scalars)
      std::memcpy(bytes + scalar.location.offset, &scalars_[static_cast<size_t>(scalar.index)], sizeof(uint64_t));
    const StepNumbers numbers{.seed = seed, .step = step};
    std::memcpy(bytes + program().drawn_at, &numbers, sizeof numbers);
  }

  Executor& executor() { return *executor_; }
  // From now on the arena is elsewhere, and where it was is free.
  void move_arena() {
    Buffers moved = taken(allocate_each(*plan_.device(), PlanMemory(plan_).arenas(0)));
    std::swap(arenas_, moved);
  }

  std::vector<Tensor> state() {
    std::vector<Tensor> all;
    for (const StateSlot& slot : plan_.state().slots()) {
      const Status status = store_->gather(*stream_, slot, all.emplace_back(slot.type));
      EXPECT_TRUE(status.ok()) << status.to_string();
    }
    return all;
  }

 private:
  template <class T> static T taken(Result<T> made) {
    EXPECT_TRUE(made.ok()) << made.status().to_string();
    return std::move(*made);
  }

  const Host host_ = test_host(2);
  const CompiledPlan& plan_;
  const Entry& entry_;
  std::unique_ptr<Stream> stream_;
  std::optional<ParameterStore> store_;
  Buffers arenas_;
  std::unique_ptr<Executor> executor_;
  std::vector<Tensor> given_, got_;
  std::vector<const void*> inputs_;
  std::vector<void*> outputs_;
  std::vector<uint64_t> scalars_;
};

}  // namespace epl
