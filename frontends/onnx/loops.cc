// Loop, Scan and SequenceMap, unrolled. See control_flow.h.
#include <algorithm>
#include <limits>

#include "core/base/shown.h"
#include "core/base/text.h"
#include "frontends/onnx/control_flow.h"

namespace epl::onnx {
namespace {

Slot integer_slot(int64_t value) {
  epl::Tensor tensor = epl::Tensor::from_ints({value}).reshaped({});
  TensorType type = tensor.type();
  return {{}, std::move(tensor), std::move(type), {}};
}

Slot true_slot() {
  epl::Tensor tensor(TensorType{DType::boolean, {}});
  tensor.set_int(0, 1);
  return {{}, tensor, tensor.type(), {}};
}

}  // namespace

Result<ControlFlow::Trips> ControlFlow::trips_of(const Slot* count) {
  Trips out;
  for (const auto& [pattern, most] : importer_.binding_.max_trip_counts) {
    if (!glob_match(pattern, name_)) continue;
    out.bound = most;
    out.bound_given = true;
    break;
  }
  if (count == nullptr) return out;
  if (count->sequence || count->type.elements() != 1)
    return error(Code::invalid_model, "the trip count of a loop is one number");
  out.count = known_number(*count);
  if (!out.count) {
    out.data = importer_.builder_.emit("trip_count", {importer_.builder_.cast(scalar(*count), DType::i64)},
                                       {{"most", out.bound}, {"loop", name_}});
  }
  return out;
}

Status ControlFlow::run_loop() {
  const epl::onnx::Graph* body = graph("body");
  if (body == nullptr || node_.inputs.size() < 2) return error(Code::invalid_model, "a Loop without its graph");
  importer_.builder_.set_scope(name_);
  const size_t states = node_.inputs.size() - 2;
  if (body->inputs.size() != states + 2 || body->outputs.size() < states + 1 ||
      node_.outputs.size() > body->outputs.size() - 1) {
    return error(Code::invalid_model, "a Loop of ", states, " states, whose graph has ", body->inputs.size(),
                 " inputs and ", body->outputs.size(), " outputs, gives ", node_.outputs.size(), " values");
  }
  EPL_ASSIGN(const Slot* count, operand(0));
  EPL_ASSIGN(const Trips trips, trips_of(count));
  EPL_ASSIGN(const Slot* condition, operand(1));
  State state;
  EPL_ASSIGN(state.carried, operands(2, node_.inputs.size()));
  state.rows.resize(body->outputs.size() - 1 - states);
  bool runs = true;
  if (condition != nullptr) {
    if (condition->sequence || condition->type.elements() != 1)
      return error(Code::invalid_model, "the condition of a Loop is one truth value");
    const auto first = known_number(*condition);
    runs = !first || *first != 0;
    if (!first) state.active = scalar(*condition);
  }
  if (runs) EPL_TRY(go_on(*body, trips, state));
  const bool as_data_says = static_cast<bool>(state.active) || trips.data;
  for (size_t k = 0; k < states; ++k) set(k, state.carried[k]);
  for (size_t k = 0; k < state.rows.size(); ++k) {
    Slot stacked{.not_computed = true};
    if (as_data_says && !trips.bound_given) {
      stacked.why = std::make_shared<const std::string>(
          cat("data says how many rows ", shown(body->outputs[1 + states + k].name, 200), " of the loop ", name_,
              " has; max_trip_count (--max-trip-count N) gives it that many, those after the end of the loop zero"));
    } else if (state.rows[k].empty()) {
      auto made = empty_stack(*body, 1 + states + k);
      if (made.ok()) {
        stacked = *std::move(made);
      } else {
        stacked.why = std::make_shared<const std::string>(made.status().message());
      }
    } else {
      EPL_ASSIGN(stacked, stack(state.rows[k], 0, body->outputs[1 + states + k].name));
    }
    set(states + k, std::move(stacked));
  }
  return {};
}

// Whether a loop is over before iteration i, as far as this is known now.
Result<bool> ControlFlow::ends(const Trips& trips, int64_t i, State& state) {
  Builder& b = importer_.builder_;
  if (trips.count && i >= *trips.count) return true;
  if (trips.data) {
    const Var more = b.emit("less", {b.constant(epl::Tensor::from_ints({i}).reshaped({})), trips.data});
    state.active = state.active ? b.emit("logical_and", {state.active, more}) : more;
  }
  const bool enough = trips.count && *trips.count <= trips.bound;
  if (state.active && !enough && !trips.bound_given) {
    return unsupported_here(cat("a loop that runs as long as data says", depends_on(state.active),
                                "; say how often it may run: max_trip_count (--max-trip-count N)"));
  }
  if (i < trips.bound) return false;
  if (state.active) return true;  // it may run no longer
  return unsupported_here(
      cat("a loop of ",
          trips.count && *trips.count < std::numeric_limits<int32_t>::max() ? cat(*trips.count)
                                                                            : cat("more than ", trips.bound),
          " iterations is unrolled up to ", trips.bound, "; max_trip_count (--max-trip-count N) allows more"));
}

// The iterations of a Loop.
Status ControlFlow::go_on(const epl::onnx::Graph& body, const Trips& trips, State& state) {
  for (int64_t i = 0;; ++i) {
    importer_.builder_.set_scope(name_);
    EPL_ASSIGN(const bool over, ends(trips, i, state));
    if (over) return {};
    Slots inputs = {integer_slot(i), true_slot()};
    inputs.insert(inputs.end(), state.carried.begin(), state.carried.end());
    const Updates before = importer_.graph_.updates;
    auto results = run_body(body, inputs, cat(name_, "/", i), state.active);
    if (!results.ok()) return results.status().with_context(cat("iteration ", i, " of the loop ", name_));
    importer_.builder_.set_scope(name_);
    if (state.active) importer_.graph_.updates = selected(state.active, importer_.graph_.updates, before);
    const Slot goes_on = results->front();
    if (goes_on.sequence || goes_on.type.elements() != 1)
      return error(Code::invalid_model, "the condition of a Loop is one truth value");
    EPL_TRY(take_over(*std::move(results), state));
    if (const auto known_now = known_number(goes_on)) {
      if (*known_now == 0) return {};
    } else {
      const Var more = scalar(goes_on);
      state.active = state.active ? importer_.builder_.emit("logical_and", {state.active, more}) : more;
    }
  }
}

// The results of an iteration are the next one's states, where it counts.
Status ControlFlow::take_over(Slots results, State& state) {
  const size_t states = state.carried.size();
  for (size_t k = 0; k < states; ++k) {
    Slot& next = results[1 + k];
    next.held_bytes = 0;
    if (state.active) {
      EPL_ASSIGN(next, selected(state.active, next, state.carried[k],
                                cat("state ", shown(node_.inputs[2 + k], 200), " of the loop ", name_)));
    }
    state.carried[k] = std::move(next);
  }
  for (size_t k = 0; k < state.rows.size(); ++k) {
    Slot& row = results[1 + states + k];
    row.held_bytes = 0;
    if (state.active && !row.sequence && !row.not_computed) {
      Builder& b = importer_.builder_;
      Slot copy = row;
      const Var v = b.select(state.active, importer_.materialize(copy), b.scalar(row.type.dtype, 0));
      row = {.var = v, .type = v.type(), .in_file = row.in_file, .outer = row.outer};
    }
    state.rows[k].push_back(std::move(row));
  }
  return {};
}

Status ControlFlow::run_scan() {
  const epl::onnx::Graph* body = graph("body");
  const auto count = std::ranges::find(node_.attributes, "num_scan_inputs", &Attribute::name);
  if (body == nullptr || count == node_.attributes.end() || count->i < 1 ||
      count->i > static_cast<int64_t>(node_.inputs.size()))
    return error(Code::invalid_model, "a Scan without its graph, or with a wrong num_scan_inputs");
  importer_.builder_.set_scope(name_);
  const size_t scanned = static_cast<size_t>(count->i), states = node_.inputs.size() - scanned;
  if (body->outputs.size() < states || node_.outputs.size() > body->outputs.size())
    return error(Code::invalid_model, "a Scan of ", states, " states, whose graph gives ", body->outputs.size());
  const size_t rows = body->outputs.size() - states;
  EPL_ASSIGN(Slots first, operands(0, states));
  EPL_ASSIGN(const Slots inputs, operands(states, node_.inputs.size()));
  Ints axes = ints("scan_input_axes", scanned);
  int64_t length = -1;
  for (size_t k = 0; k < scanned; ++k) {
    const TensorType& type = inputs[k].type;
    axes[k] = axes[k] < 0 ? axes[k] + type.ndim() : axes[k];
    if (inputs[k].sequence || axes[k] < 0 || axes[k] >= type.ndim())
      return error(Code::invalid_model, "a Scan has no axis ", axes[k], " in its input ",
                   shown(node_.inputs[states + k], 200));
    const int64_t size = type.dim(static_cast<int>(axes[k]));
    if (length >= 0 && size != length)
      return error(Code::invalid_model, "a Scan over inputs of ", length, " and of ", size, " elements");
    length = size;
  }
  EPL_ASSIGN(Scanned out, scan(*body, std::move(first), inputs, axes, ints("scan_input_directions", scanned),
                               ints("scan_output_axes", rows), ints("scan_output_directions", rows), length, name_));
  for (size_t k = 0; k < states; ++k) set(k, std::move(out.states[k]));
  for (size_t k = 0; k < rows; ++k) set(states + k, std::move(out.rows[k]));
  return {};
}

Result<ControlFlow::Scanned> ControlFlow::scan(const epl::onnx::Graph& body, Slots states, const Slots& inputs,
                                               const Ints& input_axes, const Ints& input_directions,
                                               const Ints& output_axes, const Ints& output_directions, int64_t length,
                                               const std::string& prefix) {
  EPL_ASSIGN(Trips trips, trips_of(nullptr));
  trips.count = length;
  State none;
  const size_t count = states.size();
  std::vector<Slots> rows(body.outputs.size() - count);
  for (int64_t i = 0;; ++i) {
    importer_.builder_.set_scope(prefix);
    EPL_ASSIGN(const bool over, ends(trips, i, none));
    if (over) break;
    Slots given = states;
    for (size_t k = 0; k < inputs.size(); ++k) {
      EPL_ASSIGN(Slot one, part(inputs[k], input_axes[k], input_directions[k] != 0 ? length - 1 - i : i));
      given.push_back(std::move(one));
    }
    auto results = run_body(body, given, cat(prefix, "/", i), {});
    if (!results.ok()) return results.status().with_context(cat("iteration ", i, " of the loop ", name_));
    for (size_t k = 0; k < results->size(); ++k) {
      (*results)[k].held_bytes = 0;
      if (k < count) {
        states[k] = std::move((*results)[k]);
      } else {
        rows[k - count].push_back(std::move((*results)[k]));
      }
    }
  }
  importer_.builder_.set_scope(prefix);
  Scanned out{std::move(states), {}};
  for (size_t k = 0; k < rows.size(); ++k) {
    if (output_directions[k] != 0) std::ranges::reverse(rows[k]);
    EPL_ASSIGN(Slot all, rows[k].empty() ? empty_stack(body, count + k)
                                         : stack(rows[k], output_axes[k], body.outputs[count + k].name));
    out.rows.push_back(std::move(all));
  }
  return out;
}

// Until opset 8, states and scan inputs have the samples first, and each sample its own length.
Status ControlFlow::run_batched_scan() {
  const epl::onnx::Graph* body = graph("body");
  const auto count = std::ranges::find(node_.attributes, "num_scan_inputs", &Attribute::name);
  if (body == nullptr || count == node_.attributes.end() || count->i < 1 ||
      count->i + 1 > static_cast<int64_t>(node_.inputs.size()))
    return error(Code::invalid_model, "a Scan without its graph, or with a wrong num_scan_inputs");
  importer_.builder_.set_scope(name_);
  const size_t scanned = static_cast<size_t>(count->i), states = node_.inputs.size() - 1 - scanned;
  if (body->outputs.size() < states || node_.outputs.size() > body->outputs.size())
    return error(Code::invalid_model, "a Scan of ", states, " states, whose graph gives ", body->outputs.size());
  const size_t rows = body->outputs.size() - states;
  EPL_ASSIGN(const Slot* lengths, operand(0));
  EPL_ASSIGN(const Slots first, operands(1, 1 + states));
  EPL_ASSIGN(const Slots inputs, operands(1 + states, node_.inputs.size()));
  if (lengths != nullptr && lengths->constant.empty())
    return unsupported_here("a Scan of which data says how long each sample is");
  const int64_t samples = inputs[0].type.ndim() < 2 ? 0 : inputs[0].type.dim(0), most = inputs[0].type.dim(1);
  std::vector<Slots> all(states + rows);  // of each output, by sample
  for (int64_t s = 0; s < samples; ++s) {
    Slots own_states, own_inputs;
    for (const Slot& state : first) {
      EPL_ASSIGN(Slot one, part(state, 0, s));
      own_states.push_back(std::move(one));
    }
    for (const Slot& input : inputs) {
      if (input.type.ndim() < 2 || input.type.dim(0) != samples || input.type.dim(1) != most)
        return error(Code::invalid_model, "inputs of a Scan differ in samples or in length");
      EPL_ASSIGN(Slot one, part(input, 0, s));
      own_inputs.push_back(std::move(one));
    }
    const int64_t length = lengths == nullptr ? most : lengths->constant.get_int(s);
    if (length < 1 || length > most)
      return error(Code::invalid_model, "sample ", s, " of a Scan has a length of ", length, "; 1 to ", most,
                   " are there");
    EPL_ASSIGN(Scanned out, scan(*body, own_states, own_inputs, Ints(scanned, 0), ints("directions", scanned),
                                 Ints(rows, 0), Ints(rows, 0), length, cat(name_, "/", s)));
    for (size_t k = 0; k < states; ++k) all[k].push_back(std::move(out.states[k]));
    for (size_t k = 0; k < rows; ++k) {
      Slot row = std::move(out.rows[k]);
      if (length < most) {
        const int from = importer_.graph_.node_count();
        TensorType rest = row.type;
        rest.shape[0] = most - length;
        const Var full =
            importer_.builder_.concat({importer_.materialize(row), importer_.builder_.constant(epl::Tensor(rest))}, 0);
        EPL_ASSIGN(row, emitted(from, {.var = full, .type = full.type()}));
      }
      all[states + k].push_back(std::move(row));
    }
  }
  if (samples == 0) return unsupported_here("a Scan without samples");
  for (size_t k = 0; k < all.size(); ++k) {
    EPL_ASSIGN(Slot stacked, stack(all[k], 0, body->outputs[k].name));
    set(k, std::move(stacked));
  }
  return {};
}

// Each item of the first sequence, with those at its place in the others.
Status ControlFlow::map_sequence() {
  const epl::onnx::Graph* body = graph("body");
  EPL_ASSIGN(const Slots inputs, operands(0, node_.inputs.size()));
  if (body == nullptr || inputs.empty() || !inputs[0].sequence)
    return error(Code::invalid_model, "a SequenceMap without its graph, or of no sequence");
  std::vector<Sequence> out(body->outputs.size());
  for (size_t i = 0; i < inputs[0].sequence->items.size(); ++i) {
    importer_.builder_.set_scope(name_);
    Slots given;
    for (const Slot& input : inputs) {
      if (!input.sequence) {
        given.push_back(input);
        continue;
      }
      if (i >= input.sequence->items.size())
        return error(Code::invalid_model, "sequences of a SequenceMap differ in length");
      const Sequence::Item& item = input.sequence->items[i];
      const int first = importer_.graph_.node_count();
      const Var v = item.axis < 0 ? Var() : importer_.take(item);
      Slot full = item.value;
      if (v) {
        EPL_ASSIGN(full, emitted(first, {.var = v, .type = v.type()}));
      }
      given.push_back(std::move(full));
    }
    EPL_ASSIGN(Slots results, run_body(*body, given, cat(name_, "/", i), {}));
    for (size_t k = 0; k < results.size(); ++k) out[k].items.push_back({std::move(results[k])});
  }
  for (size_t k = 0; k < out.size(); ++k) {
    Slot slot;
    slot.sequence = std::make_shared<const Sequence>(std::move(out[k]));
    set(k, std::move(slot));
  }
  return {};
}

}  // namespace epl::onnx
