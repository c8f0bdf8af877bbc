// How a node, or a share of one, is done with oneDNN: primitives in order, and where each finds its arguments. Where a
// primitive wants another layout than the operand's, a copy is laid out in the workspace.
//
// oneDNN runs on one thread. A node is cut into shares, one for each thread of the engine's own pool, so that nothing
// starts threads of OpenMP: those would spin beside ours and outlive the session.
#pragma once

#include <oneapi/dnnl/dnnl.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/pack_abi.h"

namespace epl::onednn {

using Dims = dnnl::memory::dims;
using Desc = dnnl::memory::desc;
using Type = dnnl::memory::data_type;

// Thrown if oneDNN cannot serve a node, with a reason for people. It never leaves the pack.
struct Refused {
  std::string reason;
};
void require(bool condition, std::string_view reason);

// Typed reading of a query.
class Query {
 public:
  explicit Query(const epl_pack_query& query);
  bool has(int input) const { return input < query_.input_count && query_.inputs[input].dtype != 0; }
  Dims in(int input) const { return dims(query_.inputs[input]); }
  Dims out() const { return dims(query_.outputs[0]); }
  // Operands 0 and 1 are multiplied and have one type. All else has the type of the result, which is theirs, or f32
  // where they are bf16.
  Type factors() const { return type_of(query_.inputs[0]); }
  Type result() const { return type_of(query_.outputs[0]); }
  bool flag(std::string_view name) const { return integers(name)[0] != 0; }
  int64_t integer(std::string_view name) const { return integers(name)[0]; }
  Dims integers(std::string_view name) const;  // empty where the attribute is
  int threads() const { return query_.threads; }

 private:
  static Dims dims(const epl_pack_type& type) { return Dims(type.dims, type.dims + type.ndim); }
  static Type type_of(const epl_pack_type& type) { return type.dtype == EPL_PACK_F32 ? Type::f32 : Type::bf16; }
  const epl_pack_query& query_;
};

int64_t count(const Dims& dims);

// [begin, begin + count) of a dimension.
struct Run {
  int64_t begin, count;
};
// Runs of about equal length, at most `max_runs`, each but the last a multiple of `grain`.
std::vector<Run> cut(int64_t size, int64_t max_runs, int64_t grain);
// How many shares a node of so many multiplications is worth, at most one for each thread.
int64_t shares_of(const Query& q, double multiplications);

// A part of an operand: its dimensions, the distances between elements, and where it begins, in elements.
struct View {
  Dims dims, strides;
  int64_t begin = 0;
  static View dense(const Dims& dims);
  View part(size_t dim, Run run) const;
  Desc desc(Type type) const { return Desc(dims, type, strides); }
  Desc any(Type type) const { return Desc(dims, type, dnnl::memory::format_tag::any); }
};

// Where an argument's memory is: an operand of the node by number, or the workspace; and how many bytes in.
struct Location {
  enum class Kind { input, output, workspace } kind;
  int operand;
  int64_t bytes;
};

// An operand of a primitive: the role that oneDNN gives it, which operand of the node, and its layout in the primitive.
struct Operand {
  int role;
  Location::Kind kind;
  int number;
  View view;
  Desc inside;
};

class Recipe {
 public:
  struct Argument {
    int role;
    Location location;
    Desc desc;
  };
  struct Step {
    dnnl::primitive_desc_base what;
    std::vector<Argument> arguments;
  };

  // The primitive on these operands, the last of which is its result, with workspace from `first_byte`. Refuses what
  // oneDNN has only a reference for.
  Recipe(const dnnl::primitive_desc_base& primitive, const std::vector<Operand>& operands, int64_t first_byte);

  const std::vector<Step>& steps() const { return steps_; }
  int64_t workspace_end() const { return workspace_end_; }

 private:
  Location reserve(const Desc& desc);
  void add(const dnnl::primitive_desc_base& what, std::vector<Argument> arguments);
  void reorder(const Argument& from, const Argument& to);

  std::vector<Step> steps_;
  int64_t workspace_end_;
};

// Independent of each other.
class Recipes {
 public:
  void add(const dnnl::primitive_desc_base& primitive, const std::vector<Operand>& operands) {
    shares_.emplace_back(primitive, operands, workspace_bytes());
  }
  const std::vector<Recipe>& shares() const { return shares_; }
  int64_t workspace_bytes() const { return shares_.empty() ? 0 : shares_.back().workspace_end(); }

 private:
  std::vector<Recipe> shares_;
};

const dnnl::engine& cpu_engine();
// Of every primitive: scratch memory comes from the caller, and float32 stays float32 whatever the environment says.
dnnl::primitive_attr primitive_attributes();

// oneDNN does its work on the calling thread alone, for the object's lifetime.
class OneThread {
 public:
  OneThread();
  ~OneThread();
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int before_;
};

}  // namespace epl::onednn
