#include "backends/onednn/recipe.h"

#include <algorithm>
#include <functional>
#include <numeric>

// Of the OpenMP runtime that libdnnl brings (libgomp), whichever compiler builds this.
extern "C" {
void omp_set_num_threads(int);
int omp_get_max_threads(void);
}

namespace epl::onednn {

void require(bool condition, std::string_view reason) {
  if (!condition) throw Refused{std::string(reason)};
}

Query::Query(const epl_pack_query& query) : query_(query) {
  require(query.struct_size >= sizeof query, "a query of an older interface");
  const int32_t factors = query.inputs[0].dtype, result = query.outputs[0].dtype;
  require(query.inputs[1].dtype == factors, "operands of several element types");
  for (const int32_t dtype : {factors, result})
    require(dtype == EPL_PACK_F32 || dtype == EPL_PACK_BF16, "an element type other than f32 and bf16");
  require(result == factors || result == EPL_PACK_F32, "a result of fewer bits than what is multiplied");
  for (int i = 2; i < query.input_count; ++i)
    require(!has(i) || query.inputs[i].dtype == result, "a bias of another element type than the result");
}

Dims Query::integers(std::string_view name) const {
  for (int i = 0; i < query_.attribute_count; ++i) {
    const epl_pack_attribute& attribute = query_.attributes[i];
    if (name == attribute.name) return Dims(attribute.values, attribute.values + attribute.count);
  }
  throw Refused{"no attribute " + std::string(name)};
}

int64_t count(const Dims& dims) { return std::accumulate(dims.begin(), dims.end(), int64_t{1}, std::multiplies<>()); }

std::vector<Run> cut(int64_t size, int64_t max_runs, int64_t grain) {
  const int64_t grains = (size + grain - 1) / grain, shares = std::max<int64_t>(1, std::min(max_runs, grains));
  std::vector<Run> runs;
  for (int64_t p = 0; p < shares; ++p) {
    const int64_t begin = grains * p / shares * grain, end = std::min(size, grains * (p + 1) / shares * grain);
    runs.push_back({begin, end - begin});
  }
  return runs;
}

int64_t shares_of(const Query& q, double multiplications) {
  constexpr double worth_a_thread = 1 << 18;  // about ten times the cost of waking a thread
  return std::clamp<int64_t>(static_cast<int64_t>(multiplications / worth_a_thread), 1, q.threads());
}

View View::dense(const Dims& dims) {
  View view{dims, Dims(dims.size()), 0};
  int64_t step = 1;
  for (size_t d = dims.size(); d-- > 0;) {
    view.strides[d] = step;
    step *= dims[d];
  }
  return view;
}

View View::part(size_t dim, Run run) const {
  View view = *this;
  view.dims[dim] = run.count;
  view.begin += run.begin * strides[dim];
  return view;
}

const dnnl::engine& cpu_engine() {
  // Never destroyed: kernels may outlive the statics of this library.
  static const auto* engine = new dnnl::engine(dnnl::engine::kind::cpu, 0);
  return *engine;
}

dnnl::primitive_attr primitive_attributes() {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  attributes.set_fpmath_mode(dnnl::fpmath_mode::strict);
  return attributes;
}

Recipe::Recipe(const dnnl::primitive_desc_base& primitive, const std::vector<Operand>& operands, int64_t first_byte)
    : workspace_end_(first_byte) {
  const std::string name = primitive.impl_info_str();
  require(name.find("ref") == std::string::npos, "oneDNN has only its reference for it, " + name);
  std::vector<Argument> arguments, outside;
  for (const Operand& operand : operands) {
    const Desc desc = operand.view.desc(operand.inside.data_type());
    const int64_t element = static_cast<int64_t>(dnnl::memory::data_type_size(desc.data_type()));
    outside.push_back({0, {operand.kind, operand.number, operand.view.begin * element}, desc});
    const bool same = operand.inside == desc;
    arguments.push_back({operand.role, same ? outside.back().location : reserve(operand.inside), operand.inside});
    if (!same && operand.kind == Location::Kind::input) reorder(outside.back(), arguments.back());
  }
  add(primitive, arguments);
  if (arguments.back().location.kind == Location::Kind::workspace) reorder(arguments.back(), outside.back());
}

Location Recipe::reserve(const Desc& desc) {
  constexpr int64_t line = 64;
  const Location location{Location::Kind::workspace, 0, workspace_end_};
  workspace_end_ += (static_cast<int64_t>(desc.get_size()) + line - 1) / line * line;
  return location;
}

void Recipe::add(const dnnl::primitive_desc_base& what, std::vector<Argument> arguments) {
  const Desc scratch = what.scratchpad_desc();
  if (scratch.get_size() > 0) arguments.push_back({DNNL_ARG_SCRATCHPAD, reserve(scratch), scratch});
  steps_.push_back({what, std::move(arguments)});
}

void Recipe::reorder(const Argument& from, const Argument& to) {
  const dnnl::reorder::primitive_desc what(cpu_engine(), from.desc, cpu_engine(), to.desc, primitive_attributes());
  add(what, {{DNNL_ARG_FROM, from.location, from.desc}, {DNNL_ARG_TO, to.location, to.desc}});
}

OneThread::OneThread() : before_(omp_get_max_threads()) { omp_set_num_threads(1); }
OneThread::~OneThread() { omp_set_num_threads(before_); }

}  // namespace epl::onednn
