#include "tools/binding.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <set>

#include "tools/data_notes.h"
#include "tools/sizes.h"
#include "tools/usage.h"
#include "tools/values.h"
#include "tools/words.h"

namespace epl::tools {
namespace {

constexpr int64_t usual_batch = 8;
constexpr char value_expected[] = "NAME=V is expected";

// "16000", "true", "0.5" or "1,2,3".
TensorHandle value_tensor(const Engine& engine, const std::string& name, const std::string& text) {
  std::vector<int64_t> integers;
  std::vector<double> numbers;
  bool real = false;
  for (size_t from = 0; from <= text.size();) {
    const size_t to = std::min(text.find(',', from), text.size());
    const std::string one = text.substr(from, to - from);
    from = to + 1;
    int64_t integer = 0;
    double number = 0;
    if (one == "true" || one == "false") {
      integer = one == "true";
      number = static_cast<double>(integer);
    } else if (read_integer(one, integer)) {
      number = static_cast<double>(integer);
    } else {
      char* end = nullptr;
      number = std::strtod(one.c_str(), &end);
      if (one.empty() || *end != '\0')
        throw UsageError("--value " + name + "=" + text + ": \"" + one + "\" is not a number, true or false");
      real = true;
    }
    integers.push_back(integer);
    numbers.push_back(number);
  }
  const int64_t count = static_cast<int64_t>(integers.size());
  return make<TensorHandle>(epl_tensor_create_copy, engine.get(),
                            static_cast<int32_t>(real ? EPL_DTYPE_F64 : EPL_DTYPE_I64), &count, count == 1 ? 0 : 1,
                            real ? static_cast<const void*>(numbers.data()) : integers.data(),
                            static_cast<size_t>(count) * 8);
}

std::string field_list(const Dataset& dataset) {
  std::string out;
  for (int64_t i = 0; i < epl_dataset_field_count(dataset.get()); ++i)
    out += (i ? ", " : "") + port_of(epl_dataset_field, dataset.get(), i).name;
  return out;
}

// The field with as many dimensions as the input, where those of 1 alone make the difference: a column i64[8,1] for
// kind[batch].
Port with_dims_of(const Port& input, const Port& field, int64_t samples_in) {
  Port out = field;
  for (size_t d = out.dims.size(); d-- > 0 && out.dims.size() > input.dims.size();) {
    if (out.dims[d] == 1 && static_cast<int64_t>(d) != samples_in)
      out.dims.erase(out.dims.begin() + static_cast<std::ptrdiff_t>(d));
  }
  for (size_t d = 0; d < input.dims.size() && out.dims.size() < input.dims.size(); ++d) {
    if (d == out.dims.size() || (input.dims[d] == 1 && out.dims[d] != 1))
      out.dims.insert(out.dims.begin() + static_cast<std::ptrdiff_t>(d), 1);
  }
  return out;
}

// Why a field's shape does not fit an input, with what helps.
std::string misfit(const ModelInput& input, const Port& field, int64_t samples_in) {
  if (!input.ranked) return "";
  const std::string what = "field " + field.name + " is " + field.text() + " in the data, input " + input.name +
                           " of the model is " + input.text();
  if (field.dims.size() != input.dims.size()) {
    return what +
           ": another number of dimensions; a batch has one more than a sample, and where each sample of the file is a "
           "batch already, --data-options '{\"batch\": 0}' says so";
  }
  for (size_t d = 0; d < input.dims.size(); ++d) {
    if (input.dims[d] < 0 || input.dims[d] == field.dims[d]) continue;
    const std::string fixed = std::to_string(input.dims[d]);
    if (static_cast<int64_t>(d) == samples_in) {
      return what + ": the file fixes the batch at " + fixed + "; use --batch " + fixed +
             ", or --free-batch, which makes it free where the graph allows it";
    }
    return what + ": the model takes " + fixed + " in dimension " + std::to_string(d) + ", the data gives " +
           std::to_string(field.dims[d]) + "; give it " + fixed +
           " (a table: choose its columns; an index column does not count)";
  }
  return "";
}

void bind_symbols(const Trainer& trainer, const std::map<std::string, int64_t>& symbols) {
  for (const auto& [name, size] : symbols)
    check(epl_trainer_bind_symbol(trainer.get(), name.data(), name.size(), size));
}

// Where one is not, the plan's error names it.
bool all_known(const std::map<std::string, int64_t>& symbols, const std::vector<ModelInput>& inputs) {
  return std::all_of(symbols.begin(), symbols.end(), [&](const auto& one) {
    return std::any_of(inputs.begin(), inputs.end(), [&](const ModelInput& input) {
      return std::find(input.symbols.begin(), input.symbols.end(), one.first) != input.symbols.end();
    });
  });
}

void bind_field(const Trainer& trainer, const std::string& name, int32_t dtype, const Port& field) {
  check(epl_trainer_bind_input(trainer.get(), name.data(), name.size(), dtype, field.dims.data(),
                               static_cast<int32_t>(field.dims.size())));
}

}  // namespace

void add_binding_options(CLI::App& app, JobOptions& o) {
  app.option_defaults()->group(groups::data);
  app.add_option("--batch", o.batch, "samples of a step (default: what the model fixes, else 8)")
      ->check(integer_value(1));
  app.option_defaults()->group(groups::loss);
  app.add_option("--loss", o.loss, "what to minimise; output:NAME for a scalar that the model computes, or one of")
      ->type_name("NAME")
      ->capture_default_str();
  app.add_option(
         "--loss-output", o.loss_output,
         "what the loss is applied to: an output of the model or of any of its nodes (default: the first output)")
      ->type_name("NAME");
  app.add_option("--loss-target", o.loss_target,
                 "the field of the data that the loss compares with, where the model has an input called target")
      ->capture_default_str()
      ->type_name("NAME");
  app.add_option("--ignore-index", o.ignore_index, "target value that does not count")
      ->type_name("N")
      ->check(integer_value(INT64_MIN));
  app.add_option("--label-smoothing", o.label_smoothing, "share of each target that is spread over all classes")
      ->check(between(0, 1));
  app.add_option("--class-weights", o.class_weights, "one for each class, as 1,2.5,1")->type_name("X,...");
  app.add_option("--loss-option", o.loss_options, "any option of the loss; may be repeated")
      ->type_name("NAME=VALUE")
      ->allow_extra_args(false);
  app.add_flag("--no-peel", o.no_peel,
               "apply a loss of scores to the output as it is, a last softmax or sigmoid included");
  add_shape_options(app, o);
  app.add_option("--context", o.context, "bytes of text a sample sees, where the model leaves it open (default: 64)")
      ->check(integer_value(0));
}

void add_shape_options(CLI::App& app, JobOptions& o) {
  app.option_defaults()->group(groups::shapes);
  app.add_option("--shape", o.shapes,
                 "the sizes of an input, as x=8,3,48,192; ? leaves a size to --batch, --symbol or the data; may be "
                 "repeated")
      ->type_name("NAME=N,...")
      ->allow_extra_args(false);
  app.add_option(
         "--symbol", o.symbols,
         "the size of an open dimension, by its name in the file or its position, as 'x[2]=48'; may be repeated")
      ->type_name("NAME=SIZE")
      ->allow_extra_args(false);
  app.add_option("--value", o.values,
                 "make an input a constant: a number, true, false, or numbers with commas; may be repeated")
      ->type_name("NAME=V")
      ->allow_extra_args(false);
  app.add_option("--batch-dim", o.batch_dims,
                 "which dimension of an input, or of target, counts samples, -1 for none; a list with commas, or "
                 "repeated (default: 0 where the inputs agree)")
      ->type_name("NAME=D")
      ->allow_extra_args(false);
  app.add_option("--max-trip-count", o.trip_counts,
                 "how often a loop of the model may run (default: 1024), or the loops whose nodes match; a loop whose "
                 "end depends on data runs as often as this says; may be repeated")
      ->type_name("[NODE=]N")
      ->allow_extra_args(false);
  app.add_flag("--free-batch", o.free_batch, "another batch than the file fixes, where its nodes allow it");
}

int64_t batch_of(const Model& model, const JobOptions& o) {
  const auto dims = batch_dims_of(o);
  const auto values = named("--value", o.values, value_expected);
  const SaidSizes said(model, o);
  int64_t fixed = 0;
  for (const ModelInput& port : said.inputs()) {
    const int64_t dim = batch_dim(port, dims);
    if (values.contains(port.name) || dim < 0) continue;
    const int64_t size = said.of(port, static_cast<size_t>(dim));
    if (size > 0 && o.batch == 0) return size;
    if (fixed == 0 && port.dims[static_cast<size_t>(dim)] > 0) fixed = port.dims[static_cast<size_t>(dim)];
  }
  if (o.batch > 0) return o.batch;
  return fixed > 0 && !o.free_batch ? fixed : usual_batch;
}

int64_t samples_of_batch(const Model& model, const Dataset& dataset, int64_t batch, const JobOptions& o) {
  if (batch > 0) return batch;
  const auto dims = batch_dims_of(o);
  std::set<std::string> inputs;
  for (const Port& port : inputs_of(model)) inputs.insert(port.name);
  for (int64_t i = 0; i < epl_dataset_field_count(dataset.get()); ++i) {
    Port field = port_of(epl_dataset_field, dataset.get(), i);
    if (!inputs.contains(field.name) && field.name.starts_with("input.")) field.name = field.name.substr(6);
    const int64_t dim = inputs.contains(field.name) ? batch_dim(field, dims) : -1;
    if (dim >= 0) return field.dims[static_cast<size_t>(dim)];
  }
  return 1;
}

void bind_names(const Engine& engine, const Trainer& trainer, const JobOptions& o) {
  epl_trainer* t = trainer.get();
  for (const auto& [name, dim] : batch_dims_of(o))
    check(epl_trainer_bind_batch_dim(t, name.data(), name.size(), static_cast<int32_t>(dim)));
  for (const auto& [name, value] : named("--value", o.values, value_expected)) {
    const TensorHandle tensor = value_tensor(engine, name, value);
    check(epl_trainer_bind_value(t, name.data(), name.size(), tensor.get()));
  }
  if (!o.trip_counts.empty()) set(t, "max_trip_count", joined(o.trip_counts, ","));
  if (o.free_batch) set(t, "free_batch", "true");
  if (o.no_peel) set(t, "loss.peel", "false");
}

void bind_inputs(const Trainer& trainer, const Model& model, const Dataset& dataset, const JobOptions& o) {
  const auto dims = batch_dims_of(o);
  const auto values = named("--value", o.values, value_expected);
  const SaidSizes said(model, o);
  bind_symbols(trainer, said.symbols());
  std::map<std::string, Port> fields;
  for (int64_t i = 0; i < epl_dataset_field_count(dataset.get()); ++i) {
    Port field = port_of(epl_dataset_field, dataset.get(), i);
    fields[field.name] = field;
  }
  for (const ModelInput& input : said.inputs()) {
    if (values.contains(input.name)) continue;
    auto it = fields.find(input.name);
    if (it == fields.end()) it = fields.find("input." + input.name);
    if (it == fields.end()) {
      throw ApiError(EPL_ERROR_NOT_FOUND,
                     "no field of the data for input " + input.name + "; there are " + field_list(dataset) +
                         "; name one " + input.name +
                         ", or, where the input is the same for every sample, give it by --value " + input.name + "=V",
                     "");
    }
    const int64_t samples_in = o.free_batch ? -1 : batch_dim(input, dims);
    Port field = input.ranked ? with_dims_of(input, it->second, batch_dim(input, dims)) : it->second;
    if (!misfit(input, field, samples_in).empty()) field = it->second;  // the message is about the data as it is
    const std::string problem = misfit(input, field, samples_in);
    const bool freed = o.free_batch && batch_dim(input, dims) >= 0 && input.dims.size() == field.dims.size();
    if (!problem.empty() && !freed) throw ApiError(EPL_ERROR_INVALID_ARGUMENT, problem, "");
    said.check_data(input.name, field);
    bind_field(trainer, input.name, EPL_DTYPE_NONE, field);
  }
  const std::vector<ModelInput> inputs = inputs_of(model);
  const bool taken = std::ranges::find(inputs, o.loss_target, &Port::name) != inputs.end();  // by the model
  const auto target = fields.find(o.loss_target);
  if (target != fields.end() && o.loss != "none" && !taken) bind_target(trainer, target->second, o.loss);
}

void bind_open(const Trainer& trainer, const Model& model, const JobOptions& o, int64_t fallback) {
  const SaidSizes said(model, o);
  auto symbols = said.symbols();
  bind_symbols(trainer, symbols);  // those too that the model does not have, which is an error of the plan
  const auto dims = batch_dims_of(o);
  const int64_t batch = batch_of(model, o);
  const std::vector<ModelInput>& inputs = said.inputs();
  const auto values = named("--value", o.values, value_expected);
  std::vector<std::vector<int64_t>> sizes;
  bool open = false;
  for (const ModelInput& input : inputs) {
    const int64_t samples_in = batch_dim(input, dims);
    Port port = input;
    if (!input.ranked) {
      open = open || !values.contains(input.name);
      sizes.push_back({batch, 64});
      continue;
    }
    for (size_t d = 0; d < port.dims.size(); ++d) {
      const bool samples = static_cast<int64_t>(d) == samples_in;
      if (samples && o.free_batch) port.dims[d] = batch;
      if (port.dims[d] >= 0) continue;
      const int64_t size = said.of(input, d);
      const auto known = symbols.find(input.symbols[d]);
      port.dims[d] = size >= 0                 ? size
                     : known != symbols.end()  ? known->second
                     : samples                 ? batch
                     : d == 1 && o.context > 0 ? o.context
                     : fallback > 0            ? fallback
                                               : -1;
      open = open || port.dims[d] < 0;
      if (port.dims[d] >= 0 && !input.symbols[d].empty()) symbols.emplace(input.symbols[d], port.dims[d]);
    }
    sizes.push_back(port.dims);
    if (std::find(port.dims.begin(), port.dims.end(), -1) == port.dims.end())
      bind_field(trainer, port.name, EPL_DTYPE_NONE, port);
  }
  if (open && all_known(said.symbols(), inputs)) refuse_open(inputs, symbols, sizes);
}

std::vector<std::string> warnings_of(const Model& model, const Plan& plan) {
  std::vector<std::string> out;
  for (const Json& finding : parse_json(text_of(epl_model_findings, model.get()))) {
    const std::string where = finding.at("where"), message = finding.at("message");
    if (finding.at("level") != "note") out.push_back(where.empty() ? message : where + ": " + message);
  }
  for (const Json& note : parse_json(text_of(epl_plan_describe, plan.get(), "notes", size_t{5}, nullptr)))
    out.push_back(note.get<std::string>());
  return out;
}

}  // namespace epl::tools
