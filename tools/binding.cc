#include "tools/binding.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <set>

#include "tools/data_notes.h"
#include "tools/usage.h"
#include "tools/values.h"

namespace epl::tools {
namespace {

constexpr int64_t usual_batch = 8;

std::vector<Port> inputs_of(const Model& model) {
  std::vector<Port> out;
  for (int64_t i = 0; i < epl_model_port_count(model.get(), EPL_PORT_INPUT); ++i)
    out.push_back(port_of(epl_model_port, model.get(), EPL_PORT_INPUT, i));
  return out;
}

// "NAME=VALUE" cut at the last =, so that a name may hold one.
std::pair<std::string, std::string> name_and_value(const std::string& option, const std::string& text,
                                                   const std::string& shape) {
  const size_t equals = text.rfind('=');
  if (equals == std::string::npos || equals == 0 || equals + 1 == text.size())
    throw UsageError(option + " " + text + ": " + shape + " is expected");
  return {text.substr(0, equals), text.substr(equals + 1)};
}

bool read_integer(const std::string& text, int64_t& out) {
  char* end = nullptr;
  errno = 0;
  out = std::strtoll(text.c_str(), &end, 10);
  return !text.empty() && *end == '\0' && errno == 0;
}

// What --symbol, --batch-dim or --value says, by name. --batch-dim takes a list with commas as well.
std::map<std::string, std::string> named(const std::string& option, const std::vector<std::string>& texts,
                                         const std::string& shape, bool lists = false) {
  std::map<std::string, std::string> out;
  for (const std::string& text : texts) {
    for (size_t from = 0; from <= text.size();) {
      const size_t to = lists ? std::min(text.find(',', from), text.size()) : text.size();
      const auto [name, value] = name_and_value(option, text.substr(from, to - from), shape);
      out[name] = value;
      from = to + 1;
    }
  }
  return out;
}

std::map<std::string, int64_t> sizes_of_symbols(const JobOptions& o) {
  std::map<std::string, int64_t> out;
  for (const auto& [name, value] : named("--symbol", o.symbols, "NAME=SIZE")) {
    if (!read_integer(value, out[name]) || out[name] < 0)
      throw UsageError("--symbol " + name + "=" + value + ": NAME=SIZE is expected");
  }
  return out;
}

std::map<std::string, int64_t> batch_dims_of(const JobOptions& o) {
  std::map<std::string, int64_t> out;
  for (const auto& [name, value] : named("--batch-dim", o.batch_dims, "NAME=D", true)) {
    if (!read_integer(value, out[name]) || out[name] < -1 || out[name] >= EPL_MAX_NDIM) {
      throw UsageError("--batch-dim " + name + "=" + value +
                       ": NAME=D is expected, a dimension counted from 0, or -1 where none counts samples");
    }
  }
  return out;
}

// The dimension of an input that counts samples, -1 for none.
int64_t batch_dim(const Port& port, const std::map<std::string, int64_t>& dims) {
  const auto it = dims.find(port.name);
  const int64_t dim = it == dims.end() ? 0 : it->second;
  return dim < static_cast<int64_t>(port.dims.size()) ? dim : -1;
}

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
std::string misfit(const Port& input, const Port& field, int64_t samples_in) {
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
  app.option_defaults()->group(groups::shapes);
  app.add_option("--context", o.context, "bytes of text a sample sees, where the model leaves it open (default: 64)")
      ->check(integer_value(0));
  app.add_option("--symbol", o.symbols, "the size of a symbolic dimension; may be repeated")
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
  app.add_flag("--free-batch", o.free_batch, "another batch than the file fixes, where its nodes allow it");
}

int64_t batch_of(const Model& model, const JobOptions& o) {
  if (o.batch > 0) return o.batch;
  if (o.free_batch) return usual_batch;
  const auto dims = batch_dims_of(o);
  const auto values = named("--value", o.values, "NAME=V");
  for (const Port& port : inputs_of(model)) {
    const int64_t dim = batch_dim(port, dims);
    if (values.contains(port.name) || dim < 0) continue;
    if (port.dims[static_cast<size_t>(dim)] > 0) return port.dims[static_cast<size_t>(dim)];
  }
  return usual_batch;
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
  for (const auto& [name, size] : sizes_of_symbols(o))
    check(epl_trainer_bind_symbol(t, name.data(), name.size(), size));
  for (const auto& [name, dim] : batch_dims_of(o))
    check(epl_trainer_bind_batch_dim(t, name.data(), name.size(), static_cast<int32_t>(dim)));
  for (const auto& [name, value] : named("--value", o.values, "NAME=V")) {
    const TensorHandle tensor = value_tensor(engine, name, value);
    check(epl_trainer_bind_value(t, name.data(), name.size(), tensor.get()));
  }
  if (o.free_batch) set(t, "free_batch", "true");
  if (o.no_peel) set(t, "loss.peel", "false");
}

void bind_inputs(const Trainer& trainer, const Model& model, const Dataset& dataset, const JobOptions& o) {
  const auto dims = batch_dims_of(o);
  const auto values = named("--value", o.values, "NAME=V");
  std::map<std::string, Port> fields;
  for (int64_t i = 0; i < epl_dataset_field_count(dataset.get()); ++i) {
    Port field = port_of(epl_dataset_field, dataset.get(), i);
    fields[field.name] = field;
  }
  for (const Port& input : inputs_of(model)) {
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
    Port field = with_dims_of(input, it->second, batch_dim(input, dims));
    if (!misfit(input, field, samples_in).empty()) field = it->second;  // the message is about the data as it is
    const std::string problem = misfit(input, field, samples_in);
    const bool freed = o.free_batch && batch_dim(input, dims) >= 0 && input.dims.size() == field.dims.size();
    if (!problem.empty() && !freed) throw ApiError(EPL_ERROR_INVALID_ARGUMENT, problem, "");
    bind_field(trainer, input.name, EPL_DTYPE_NONE, field);
  }
  const auto target = fields.find("target");
  if (target != fields.end() && o.loss != "none") bind_target(trainer, target->second, o.loss);
}

void bind_open(const Trainer& trainer, const Model& model, const JobOptions& o, int64_t fallback) {
  auto symbols = sizes_of_symbols(o);
  const auto dims = batch_dims_of(o);
  const int64_t batch = batch_of(model, o);
  const std::vector<Port> inputs = inputs_of(model);
  for (size_t i = 0; i < inputs.size(); ++i) {
    Port port = inputs[i];
    const int64_t samples_in = batch_dim(port, dims);
    bool nameless = o.free_batch;
    for (size_t d = 0; d < port.dims.size(); ++d) {
      const bool samples = static_cast<int64_t>(d) == samples_in;
      if (samples && o.free_batch) port.dims[d] = batch;
      if (port.dims[d] >= 0) continue;
      size_t length = 0;
      const char* text =
          epl_model_dim_symbol(model.get(), EPL_PORT_INPUT, static_cast<int64_t>(i), static_cast<int32_t>(d), &length);
      const std::string symbol(text, length);
      const int64_t wanted = samples ? batch : d == 1 && o.context > 0 ? o.context : fallback > 0 ? fallback : -1;
      const auto known = symbols.find(symbol);
      port.dims[d] = !symbol.empty() && known != symbols.end() ? known->second : wanted;
      nameless = nameless || symbol.empty();
      if (symbol.empty() || port.dims[d] < 0 || !symbols.emplace(symbol, port.dims[d]).second) continue;
      check(epl_trainer_bind_symbol(trainer.get(), symbol.data(), symbol.size(), port.dims[d]));
    }
    if (nameless && std::find(port.dims.begin(), port.dims.end(), -1) == port.dims.end())
      bind_field(trainer, port.name, EPL_DTYPE_NONE, port);
  }
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
