// The handles above tensors: what each shows, shared with whatever was made from it. `abandon` lets go of what a child
// of fork() cannot end.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "core/capi/async.h"
#include "core/data/host_data.h"
#include "core/data/open.h"
#include "core/frontend/model.h"
#include "core/job/job.h"
#include "core/net/store.h"
#include "core/runtime/evaluation.h"
#include "core/runtime/facts.h"
#include "core/runtime/predictor.h"
#include "core/runtime/session.h"
#include "core/strategy/strategy.h"
#include "core/train/train_step.h"

namespace epl::capi {

// By which a handle is found that its owner may destroy meanwhile, from any thread.
template <class H> class Anchor {
 public:
  explicit Anchor(H* handle) : handle_(handle) {}
  void forget() {
    const std::lock_guard lock(mutex_);
    handle_ = nullptr;
  }
  // f(handle) with the handle to itself.
  template <class F> Status with_caller(F&& f) {
    std::optional<Caller<H>> caller;
    H* handle = nullptr;
    {
      const std::lock_guard lock(mutex_);
      if (handle_ == nullptr) return error(Code::misuse, "the ", handle_name(H::type), " of this job was destroyed");
      handle = handle_;
      caller.emplace(*handle);
    }
    EPL_TRY(caller->status());
    return f(*handle);
  }

 private:
  std::mutex mutex_;
  H* handle_;
};

}  // namespace epl::capi

struct epl_model : epl::capi::Handle<epl::capi::HandleType::model> {
  std::shared_ptr<epl::capi::Engine> engine;
  std::shared_ptr<const epl::Model> model;
  bool rewrites = true;
};

// What a host has set, as text: the types of options are known once loss and optimizer are, in any order of the calls.
struct epl_trainer : epl::capi::ExclusiveHandle<epl::capi::HandleType::trainer> {
  struct Group {
    std::vector<std::string> patterns;
    epl::OptionTexts options;
    bool frozen = false;
    bool constants = false;  // what the patterns match is a parameter, whatever it looks like
  };
  // What the keys of epl_trainer_set mean.
  struct Settings {
    std::string loss = epl::LossSpec().name, loss_output;
    bool peel = true;
    std::string loss_target = std::string(epl::target_name);
    std::string optimizer = epl::TrainOptions().optimizer;
    std::string schedule = epl::LearningRateSchedule().name;
    epl::OptionTexts loss_options, optimizer_options, schedule_options;
    int64_t warmup_steps = 0;
    double clip_norm = 0;
    epl::DType precision = epl::DType::f32;
    bool report_gradient_norms = false, keep_gradients = false, freezable = false;
    bool free_batch = false;
    std::vector<std::pair<std::string, int64_t>> max_trip_counts;  // by glob of loops
  };
  // What a further shape changes of the binding.
  struct Sizes {
    std::map<std::string, int64_t> symbols;
    std::map<std::string, epl::Shape> inputs;  // "target" among them
  };
  using Keys = std::map<std::string, std::string, std::less<>>;
  std::shared_ptr<epl::capi::Engine> engine;
  Keys keys;          // that were set
  Settings settings;  // the same, read
  std::vector<Group> groups;
  std::vector<std::string> train_only;
  std::vector<epl::AdapterSpec> adapters;
  std::vector<Sizes> shapes;
  epl::Binding binding;                           // but for what the settings say
  std::map<std::string, epl::DType> input_types;  // those given with a type, "target" among them
  void abandon() {}
};

struct epl_strategy : epl::capi::ExclusiveHandle<epl::capi::HandleType::strategy> {
  std::shared_ptr<epl::capi::Engine> engine;
  epl::Strategy strategy;
  // Scopes by number: the way to each from the outermost, -2 standing for the default.
  std::vector<std::vector<int64_t>> scopes;
  void abandon() {}
};

struct epl_plan : epl::capi::Handle<epl::capi::HandleType::plan> {
  std::shared_ptr<epl::capi::Engine> engine;
  std::shared_ptr<const epl::CompiledPlan> plan;
  uint64_t seed = 0;
};

struct epl_dataset : epl::capi::ExclusiveHandle<epl::capi::HandleType::dataset> {
  std::shared_ptr<epl::capi::Engine> engine;
  std::string path;
  epl::OpenedDataset opened;
  mutable std::optional<epl::Facts> facts;           // what a checkpoint says of it, once it was asked for
  std::vector<std::unique_ptr<epl_tensor>> tensors;  // what `next` hands out
  std::shared_ptr<const epl::CompiledPlan> bound;    // to an entry of this plan; null: to none
  std::shared_ptr<epl::capi::Anchor<epl_dataset>> anchor = std::make_shared<epl::capi::Anchor<epl_dataset>>(this);
  ~epl_dataset() { anchor->forget(); }
  void abandon() { static_cast<void>(opened.dataset.release()); }
};

struct epl_feed : epl::capi::Handle<epl::capi::HandleType::feed> {
  std::shared_ptr<epl::capi::Engine> engine;
  std::shared_ptr<epl::BatchQueue> queue;
  ~epl_feed() { queue->close("it was destroyed before it was finished"); }
};

struct epl_session : epl::capi::ExclusiveHandle<epl::capi::HandleType::session> {
  std::shared_ptr<epl::capi::Engine> engine;
  // Of the host's callbacks; it outlives the session.
  struct Userdata {
    void* userdata = nullptr;
    epl_destroy_fn destroy = nullptr;
    ~Userdata() {
      if (destroy) destroy(userdata);
    }
  } of_callbacks;
  std::shared_ptr<epl::Session> session;      // predictors look at it as well
  std::vector<epl::Tensor> inputs, outputs;   // kept, so that a step allocates nothing
  std::unique_ptr<epl::capi::Worker> worker;  // once something was asynchronous
  std::vector<std::string> names[5];          // by EPL_STATE_..., sorted
  bool poisoned = false;                      // a bug of ours has been seen: nothing goes on from here
  std::shared_ptr<epl::capi::Anchor<epl_session>> anchor = std::make_shared<epl::capi::Anchor<epl_session>>(this);
  ~epl_session() { anchor->forget(); }
  void abandon() {
    static_cast<void>(worker.release());
    static_cast<void>(new std::shared_ptr<epl::Session>(std::move(session)));
    of_callbacks.destroy = nullptr;
  }
};

struct epl_predictor : epl::capi::ExclusiveHandle<epl::capi::HandleType::predictor> {
  std::shared_ptr<epl::capi::Engine> engine;
  std::unique_ptr<epl::Predictor> predictor;
  std::vector<epl::Tensor> inputs, outputs;
  void abandon() { static_cast<void>(predictor.release()); }
};

struct epl_evaluation : epl::capi::ExclusiveHandle<epl::capi::HandleType::evaluation> {
  std::shared_ptr<epl::capi::Engine> engine;
  std::unique_ptr<epl::Evaluation> evaluation;
  void abandon() {}  // it has no threads
};

struct epl_job : epl::capi::ExclusiveHandle<epl::capi::HandleType::job> {
  std::shared_ptr<epl::capi::Engine> engine;
  std::unique_ptr<epl::Job> job;
  // What it was started with.
  std::shared_ptr<epl::capi::Anchor<epl_session>> session;
  std::shared_ptr<epl::capi::Anchor<epl_dataset>> data, held_out;  // held_out: null for none
  std::string text;                                                // of the last event
  void abandon() {}
};

struct epl_store : epl::capi::ExclusiveHandle<epl::capi::HandleType::store> {
  std::shared_ptr<epl::capi::Engine> engine;
  std::unique_ptr<epl::Store> store;
  epl::Secret secret;
  std::string address;
  void abandon() { static_cast<void>(store.release()); }
};

namespace epl::capi {

// The keys of epl_trainer_set.
const std::vector<Option>& trainer_options();
// What a key of a parameter group is set to.
Status set_group_key(epl_trainer::Group& group, std::string_view key, std::string_view value);
// Takes the keys for those that were set, or none of them where one is wrong.
Status set_keys(epl_trainer& trainer, epl_trainer::Keys keys);
Status bind_input(epl_trainer& trainer, std::string_view input, int32_t dtype, const int64_t* dims, int32_t ndim);
Status bind_batch_dim(epl_trainer& trainer, std::string_view input, int32_t dim);
Status bind_symbol(epl_trainer& trainer, std::string_view symbol, int64_t size);
// The trainer's texts as typed options; an error names the key.
Result<TrainOptions> resolve_trainer(const epl_trainer& trainer);
// The entry of EPL_ENTRY_..., of a shape; an error names what there is.
Result<const Entry*> entry_argument(const CompiledPlan& plan, int32_t entry);
// That a plan has these ranks, of which a slice is asked for.
Status check_ranks(const CompiledPlan& plan, int64_t first_rank, int64_t ranks);

}  // namespace epl::capi
