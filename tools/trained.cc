#include "tools/trained.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace epl::tools {
namespace {

// What is left of a difference in the order of a sum, after some steps in float32: of a loss, and of the norm of a
// tensor. Beside a tensor that only rounding moves stands the largest change of all.
constexpr double rounding_of_losses = 1e-4, rounding_of_tensors = 2e-3;

std::vector<const epl_tensor*> borrowed(const Inputs& batch) {
  std::vector<const epl_tensor*> out;
  for (const TensorHandle& one : batch) out.push_back(one.get());
  return out;
}

// The inputs of the predict entry among those of the train entry.
std::vector<const epl_tensor*> for_predict(const Plan& plan, const Inputs& batch) {
  const std::vector<Port> given = train_inputs(plan);
  std::vector<const epl_tensor*> out;
  for (int64_t i = 0; i < epl_plan_port_count(plan.get(), EPL_ENTRY_PREDICT, EPL_PORT_INPUT); ++i) {
    const Port port = port_of(epl_plan_port, plan.get(), EPL_ENTRY_PREDICT, EPL_PORT_INPUT, i);
    for (size_t g = 0; g < given.size(); ++g) {
      if (given[g].name == port.name) out.push_back(batch[g].get());
    }
  }
  return out;
}

void take_predictions(const Plan& plan, const Session& session, const Inputs& batch, Trained& out) {
  const auto inputs = for_predict(plan, batch);
  const int64_t count = epl_plan_port_count(plan.get(), EPL_ENTRY_PREDICT, EPL_PORT_OUTPUT);
  std::vector<epl_tensor*> raw(static_cast<size_t>(count));
  check(epl_session_predict(session.get(), inputs.data(), inputs.size(), nullptr, raw.data(), raw.size()));
  for (int64_t i = 0; i < count; ++i) {
    const TensorHandle made(raw[static_cast<size_t>(i)]);
    const Port port = port_of(epl_plan_port, plan.get(), EPL_ENTRY_PREDICT, EPL_PORT_OUTPUT, i);
    out.values["predicted " + port.name] = elements_of(made.get());
  }
}

void take_state(const Session& session, Trained& out) {
  for (int kind = 0; kind < 4; ++kind) {
    for (int64_t i = 0; i < epl_session_state_count(session.get(), kind); ++i) {
      const Port port = port_of(epl_session_state_port, session.get(), kind, i);
      const TensorHandle value =
          make<TensorHandle>(epl_session_get, session.get(), port.name.data(), port.name.size(), nullptr);
      out.values[port.name] = elements_of(value.get());
    }
  }
}

void run(const Model& model, const Trainer& trainer, const Strategy& strategy, const JobOptions& job,
         const std::vector<Inputs>& batches, Trained& out) {
  const Plan plan = make_plan(model, trainer, strategy, job);
  out.planned = true;
  const Session session =
      make<Session>(epl_session_create, plan.get(), static_cast<const epl_session_options*>(nullptr), nullptr);
  epl_metrics metrics = EPL_METRICS_INIT;
  for (const Inputs& batch : batches) {
    const auto inputs = borrowed(batch);
    check(epl_session_step(session.get(), inputs.data(), inputs.size(), nullptr, &metrics));
    out.numbers.push_back(metrics.loss);
  }
  const auto inputs = borrowed(batches.back());
  check(epl_session_evaluate(session.get(), inputs.data(), inputs.size(), nullptr, &metrics));
  out.numbers.push_back(metrics.loss);
  take_predictions(plan, session, batches.back(), out);
  take_state(session, out);
  for (int64_t rank = 0; rank < epl_plan_ranks(plan.get()); ++rank) {
    out.planned_bytes = std::max(out.planned_bytes, epl_plan_memory_bytes_peak(plan.get(), rank));
    out.measured_bytes = std::max(out.measured_bytes, epl_session_memory_bytes_peak(session.get(), rank));
  }
}

bool same(double a, double b) {
  return std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b) || (std::isnan(a) && std::isnan(b));
}

// Of what is finite: beside an infinity everything would be near.
double norm(const std::vector<double>& all) {
  double sum = 0;
  for (const double v : all) sum += std::isfinite(v) ? v * v : 0;
  return std::sqrt(sum);
}

std::string in_digits(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.9g", value);
  return text;
}

}  // namespace

std::vector<double> elements_of(const epl_tensor* tensor) {
  const size_t count = 8 * epl_tensor_bytes(tensor) / static_cast<size_t>(epl_dtype_bits(epl_tensor_dtype(tensor)));
  const auto as = [&]<class T>(T) {
    const T* data = static_cast<const T*>(epl_tensor_data(tensor));
    return std::vector<double>(data, data + count);
  };
  switch (epl_tensor_dtype(tensor)) {
    case EPL_DTYPE_F32:
      return as(float());
    case EPL_DTYPE_F64:
      return as(double());
    case EPL_DTYPE_I64:
      return as(int64_t());
    case EPL_DTYPE_BF16: {  // the upper halves of floats
      std::vector<double> out;
      for (size_t i = 0; i < count; ++i) {
        const uint32_t bits = uint32_t{static_cast<const uint16_t*>(epl_tensor_data(tensor))[i]} << 16;
        out.push_back(std::bit_cast<float>(bits));
      }
      return out;
    }
    default:
      throw UsageError("a tensor of type " + std::string(epl_dtype_name(epl_tensor_dtype(tensor))) +
                       " cannot be compared");
  }
}

std::vector<Port> train_inputs(const Plan& plan) {
  std::vector<Port> out;
  for (int64_t i = 0; i < epl_plan_port_count(plan.get(), EPL_ENTRY_TRAIN, EPL_PORT_INPUT); ++i)
    out.push_back(port_of(epl_plan_port, plan.get(), EPL_ENTRY_TRAIN, EPL_PORT_INPUT, i));
  return out;
}

Trained train_steps(const Model& model, const Trainer& trainer, const Strategy& strategy, const JobOptions& job,
                    const std::vector<Inputs>& batches) {
  Trained out;
  try {
    run(model, trainer, strategy, job, batches, out);
  } catch (const ApiError& e) {
    out.code = e.code;
    out.message = e.what();
  }
  return out;
}

std::string difference(const Trained& a, const Trained& b, bool bits) {
  if (a.ran() != b.ran()) return "one of them ends with an error: " + (a.ran() ? b : a).message;
  if (!a.ran()) return "";
  for (size_t i = 0; i < a.numbers.size(); ++i) {
    const double x = a.numbers[i], y = b.numbers[i];
    const bool near = std::fabs(x - y) <= rounding_of_losses * std::max(1.0, std::fabs(x));
    if (same(x, y) || (near && !bits)) continue;
    const bool evaluated = i + 1 == a.numbers.size();
    return "the loss of " + (evaluated ? std::string("the evaluation") : "step " + std::to_string(i)) + " is " +
           in_digits(x) + " and " + in_digits(y);
  }
  double largest = 0;
  for (const auto& [name, values] : a.values) largest = std::max(largest, norm(values));
  for (const auto& [name, values] : a.values) {
    const std::vector<double>& other = b.values.at(name);
    if (values.size() != other.size()) return name + " has other sizes";
    double apart = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      if (bits && !same(values[i], other[i]))
        return "element " + std::to_string(i) + " of " + name + " is " + in_digits(values[i]) + " and " +
               in_digits(other[i]);
      if (!same(values[i], other[i])) apart += (values[i] - other[i]) * (values[i] - other[i]);
    }
    if (!bits && !(std::sqrt(apart) <= rounding_of_tensors * norm(values) + 1e-6 * largest))
      return name + ", of norm " + in_digits(norm(values)) + ", is " + in_digits(std::sqrt(apart)) + " away";
  }
  for (const Trained* one : {&a, &b}) {
    if (one->planned_bytes != one->measured_bytes)
      return std::to_string(one->planned_bytes) + " bytes were planned and " + std::to_string(one->measured_bytes) +
             " used";
  }
  return "";
}

}  // namespace epl::tools
