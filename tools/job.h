// What the subcommands that make a plan have in common: options of the command line, and the handles made from them.
#pragma once

#include <CLI/CLI.hpp>
#include <map>
#include <optional>

#include "tools/api.h"
#include "tools/host_log.h"
#include "tools/json.h"
#include "tools/processes.h"

namespace epl::tools {

// Low-rank adapters of layers.
struct Adapter {
  std::string pattern;
  int64_t rank = 8;
  double alpha = 16, dropout = 0;
};

struct JobOptions {
  std::string model;
  std::string text, data;                // exactly one of them, where data is needed
  std::string data_options;              // JSON or a file of it
  bool own_data_options = true;          // they are the user's, and not those that a run has kept
  std::string device = "cpu", strategy;  // JSON or a file of it
  std::string packs;                     // folder; empty: beside libepl.so
  std::string kernel_cache;              // folder; empty: the user's; "none"
  std::string plan;                      // a file whose decisions are taken
  int64_t ranks = 1, micro_batches = 0;
  int threads = 0;
  int64_t batch = 0, context = 0;  // 0: as the model fixes it (batch_of)
  uint64_t seed = 0;
  std::vector<std::string> shapes, symbols, batch_dims, values;  // NAME=N,..., NAME=SIZE, NAME=D, NAME=V
  std::vector<std::string> trip_counts;                          // N or NODE=N
  bool free_batch = false, no_peel = false;
  std::string loss = "softmax_cross_entropy", loss_output, ignore_index, class_weights;
  std::string loss_target = "target";
  std::optional<double> label_smoothing;
  std::string optimizer = "adamw";
  std::map<std::string, std::string> optimizer_values;  // of its options that were given by their own names
  std::vector<std::string> optimizer_options, loss_options, schedule_options;  // name=value
  std::string schedule = "constant";
  int64_t warmup = 0, steps = 0;
  std::optional<double> epochs;  // instead of steps
  double clip = 0, final_ratio = 0;
  std::optional<double> held_out;              // share that is not trained on; of text 0.05 unless named, else none
  std::string validation, validation_options;  // a file of its own instead
  double text_held_out() const { return held_out.value_or(validation.empty() ? 0.05 : 0); }
  std::vector<std::string> freeze, train_also, no_decay, train_only, lora;
  int64_t lora_rank = 8;
  double lora_alpha = 16, lora_dropout = 0;
  std::vector<Adapter> adapters;  // those of a checkpoint, instead of the four above
  bool json = false;
  double join_seconds = 60, silence_seconds = 600;
  Processes processes;  // of the job, of which this is one
  Agreement agreement;  // of these
};

void add_machine_options(CLI::App& app, JobOptions& o);      // device, strategy, ranks, threads, micro-batches
void add_packs_option(CLI::App& app, JobOptions& o);         // one of these
void add_kernel_cache_option(CLI::App& app, JobOptions& o);  // another one
void add_process_options(CLI::App& app, JobOptions& o);   // how long processes wait for each other, what they compare
void add_plan_option(CLI::App& app, JobOptions& o);       // a file of decisions, where a plan is made for training
void add_binding_options(CLI::App& app, JobOptions& o);   // batch, context, symbols, loss: tools/binding.cc
void add_shape_options(CLI::App& app, JobOptions& o);     // those of the inputs alone
void add_training_options(CLI::App& app, JobOptions& o);  // optimizer with its options, schedule
void add_data_options(CLI::App& app, JobOptions& o);

// All of the text of a file.
std::string read_file(const std::string& path);
void write_file(const std::string& path, const std::string& text);
// "{...}" as it is, else the content of the file of that name.
std::string json_argument(const std::string& value);
int32_t device_constant(const std::string& name);

void set(epl_trainer* trainer, std::string_view key, std::string_view value);
void set(epl_trainer* trainer, std::string_view key, double value);

// What the library logs goes to `log`, which must outlive the engine and all that comes of it; without one to standard
// error.
Engine make_engine(const JobOptions& o, HostLog* log = nullptr);
Model load_model(const Engine& engine, const std::string& path);
// Loss, optimizer and schedule from the options.
Trainer make_trainer(const Engine& engine, const JobOptions& o);
// From --strategy and --micro-batches.
Strategy make_strategy(const Engine& engine, const JobOptions& o);
Plan make_plan(const Model& model, const Trainer& trainer, const Strategy& strategy, const JobOptions& o);

// The data of a job. For text the first input of the model with two dimensions names the field and, where the file
// fixes them, gives batch and context.
struct DataFiles {
  Dataset train, held_out;  // held_out: may be none
  int64_t batch = 0, context = 0;
};
// `once`: the data is gone through once, in its order and to its last sample, instead of being trained on.
DataFiles open_data(const Engine& engine, const Model& model, const JobOptions& o, bool once = false);

// The processes that a launcher's variables speak of, with the options of add_process_options.
Processes find_processes(const JobOptions& o);
// The simulated device, and one of which there is a sheet alone.
bool computes_nothing(const std::string& device);

// A checkpoint's folder from what --resume and --checkpoint take: it, or the folder of a run, whose newest it is.
std::string find_checkpoint(const std::string& path);
// What epl_checkpoint_describe says.
Json describe_checkpoint(const Engine& engine, const std::string& path);
// What the library has without packs (epl_engine_describe), asked once. An ApiError where there can be no engine.
const Json& library();
// The list `what` of it ("optimizers", "readers", ...).
Json described(const char* what);
// A trainer whose optimizer state has the names and types that a checkpoint holds; what the checkpoint does not train
// is frozen.
void match_checkpoint(JobOptions& o, const Json& checkpoint);

}  // namespace epl::tools
