// Import: what a row sees of its node. See onnx_op.h.
#include <algorithm>

#include "core/base/check.h"
#include "core/base/shown.h"
#include "frontends/onnx/importer.h"
#include "frontends/onnx/operators.h"
#include "frontends/onnx/schema.h"

namespace epl::onnx {

void OnnxOpTable::add(std::string_view name, int since, OnnxOpRow row) {
  row.name = name;
  row.since = since;
  by_name_[row.name].push_back(rows_.size());
  rows_.push_back(std::move(row));
}

const OnnxOpRow* OnnxOpTable::find(std::string_view domain, std::string_view name, int64_t opset) const {
  auto it = by_name_.find(std::string(name));
  if (it == by_name_.end()) return nullptr;
  if (domain == "ai.onnx") domain = "";
  const OnnxOpRow* found = nullptr;
  for (size_t index : it->second) {
    const OnnxOpRow& row = rows_[index];
    if (row.domain != domain || row.since > opset || opset > row.until) continue;
    if (!found || row.since > found->since) found = &row;
  }
  return found;
}

Var Import::in(int i) {
  if (!has(i)) {
    fail(cat("input ", i, " is missing"));
    return {};
  }
  if (inputs_[i]->sequence) {
    fail(cat("input ", i, " is a sequence of tensors"));
    return {};
  }
  return importer_.materialize(*inputs_[i]);
}

const TensorType& Import::type(int i) {
  static const TensorType none;
  if (!has(i)) {
    fail(cat("input ", i, " is missing"));
    return none;
  }
  return inputs_[i]->type;
}

const epl::Tensor* Import::constant(int i) const {
  return has(i) && !inputs_[i]->constant.empty() ? &inputs_[i]->constant : nullptr;
}

Ints Import::ints(int i) {
  const epl::Tensor* value = constant(i);
  if (!value) {
    fail(unsupported("input ", i,
                     i < static_cast<int>(node_.inputs.size()) ? cat(" (", shown(node_.inputs[i], 200), ")") : "",
                     " must be known when the model is bound, but it depends on data"));
    return {};
  }
  return value->to_ints();
}

const Sequence* Import::sequence(int i) {
  if (has(i) && inputs_[i]->sequence) return inputs_[i]->sequence.get();
  fail(cat("input ", i, " is not a sequence"));
  return nullptr;
}

std::string Import::choice(std::string_view name, std::initializer_list<std::string_view> known) {
  const std::string given = text(name, *known.begin());
  if (std::ranges::find(known, given) == known.end()) {
    fail(cat("attribute ", name, " is ", shown(given, 200), "; it may be ",
             join(std::vector<std::string>(known.begin(), known.end()), ", ")));
  }
  return given;
}

int64_t Import::axis(int64_t given, int ndim) {
  const int64_t at = given < 0 ? given + ndim : given;
  if (at >= 0 && at < ndim) return at;
  fail(cat("axis ", given, " of a tensor with ", ndim, " dimensions"));
  return 0;
}

Ints Import::axes(Ints given, int ndim) {
  for (size_t k = 0; k < given.size(); ++k) {
    given[k] = axis(given[k], ndim);
    if (std::find(given.begin(), given.begin() + static_cast<int64_t>(k), given[k]) !=
        given.begin() + static_cast<int64_t>(k)) {
      fail(cat("axis ", given[k], " is listed twice"));
      return {};
    }
  }
  return given;
}

void Import::set_sequence(int i, Sequence sequence) {
  if (i >= outputs()) return;
  outputs_[i] = {};
  outputs_[i].sequence = std::make_shared<const Sequence>(std::move(sequence));
}

Var Import::take(const Sequence::Item& item) { return importer_.take(item); }

void Import::set(int i, const Var& v) {
  if (i >= outputs() || !v) return;
  outputs_[i] = {v, {}, v.type(), {}};
}

void Import::set_constant(int i, epl::Tensor value) {
  if (i >= outputs()) return;
  TensorType type = value.type();
  outputs_[i] = {{}, std::move(value), std::move(type), {}};
}

int64_t Import::opset() const { return importer_.opset(node_.domain); }
bool Import::training() const { return importer_.training(); }
void Import::note(const std::string& text) { importer_.note(cat("node ", b.scope(), ": ", text)); }

bool Import::has_attribute(std::string_view name) const {
  return std::ranges::find(node_.attributes, name, &Attribute::name) != node_.attributes.end();
}

// Nodes of the standard were checked when the file was read; those of other operators are checked here alone.
const Attribute* Import::find(std::string_view name, int32_t type) const {
  const auto found = std::ranges::find(node_.attributes, name, &Attribute::name);
  if (found == node_.attributes.end()) return nullptr;
  const Status status = check_attribute(*found, type);
  if (status.ok()) return &*found;
  b.fail(status.at(b.scope()));
  return nullptr;
}

int64_t Import::integer(std::string_view name, int64_t fallback) const {
  const Attribute* a = find(name, schema::AttributeProto::AttributeType_INT);
  return a ? a->i : fallback;
}

double Import::number(std::string_view name, double fallback) const {
  const Attribute* a = find(name, schema::AttributeProto::AttributeType_FLOAT);
  return a ? static_cast<double>(a->f) : fallback;
}

std::string Import::text(std::string_view name, std::string_view fallback) const {
  const Attribute* a = find(name, schema::AttributeProto::AttributeType_STRING);
  return std::string(a ? a->s : fallback);
}

Ints Import::ints(std::string_view name, Ints fallback) const {
  const Attribute* a = find(name, schema::AttributeProto::AttributeType_INTS);
  return a ? a->ints : fallback;
}

std::vector<std::string> Import::strings(std::string_view name) const {
  const Attribute* a = find(name, schema::AttributeProto::AttributeType_STRINGS);
  return a ? std::vector<std::string>(a->strings.begin(), a->strings.end()) : std::vector<std::string>();
}

Doubles Import::numbers(std::string_view name, Doubles fallback) const {
  const Attribute* a = find(name, schema::AttributeProto::AttributeType_FLOATS);
  return a ? Doubles(a->floats.begin(), a->floats.end()) : fallback;
}

epl::Tensor Import::tensor(std::string_view name) {
  const Attribute* a = find(name, schema::AttributeProto::AttributeType_TENSOR);
  if (!a || !a->t) {
    fail(cat("attribute ", name, " is missing"));  // unless find() has said more
    return {};
  }
  auto value = tensor_value(*a->t, importer_.model().stored());
  if (!value.ok()) {
    fail(value.status());
    return {};
  }
  return *value;
}

Var Import::statistic(int i) {
  const Var start = in(i);
  return start ? b.var(importer_.updated(start.value())) : start;
}

void Import::update_statistic(int i, const Var& next) {
  if (!has(i) || !inputs_[i]->var || !next) return;
  Value state = inputs_[i]->var.value();
  if (b.graph().value(state).kind == ValueKind::buffer) importer_.update(state, next.value());
}

void Import::hold(int64_t bytes) {
  if (Status status = importer_.hold(bytes); !status.ok()) fail(status);
}
void Import::fail(std::string message) { b.fail(Status(Code::invalid_model, std::move(message), b.scope())); }
void Import::fail(const Status& status) { b.fail(status.at(b.scope())); }

}  // namespace epl::onnx
