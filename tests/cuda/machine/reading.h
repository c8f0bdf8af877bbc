// One instruction while it is made ready to run: its modifiers are taken one by one, and what is left over is unknown.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tests/cuda/machine/values.h"
#include "tests/cuda/machine/warp.h"

namespace epl::cuda_machine {

class Decoder;

class Reading {
 public:
  Reading(Decoder& decoder, const ptx::Instruction& text, Instr& instr)
      : text(text), instr(instr), decoder_(decoder), left_(text.modifiers) {}

  bool take(const std::string& modifier);
  template <class... Names> bool any(const Names&... names) { return (take(names) || ...); }
  // Which of the names is there, by its number from 1; 0: none.
  int which(const std::vector<std::string>& names);
  std::string type();  // the first that is left and is a type
  bool has(const std::string& modifier) const;
  void done() const;  // throws where something is left
  [[noreturn]] void unknown(const std::string& why) const;

  size_t operands() const { return text.operands.size(); }
  // The register or constant of an operand.
  int32_t operand(size_t k, const std::string& type);
  int32_t named(const std::string& word, const std::string& type);
  bool negated(size_t k) const { return text.operands.at(k).starts_with("!"); }
  void d(const std::string& type) { instr.d = operand(0, type); }
  void a(const std::string& type) { instr.a = operand(1, type); }
  void b(const std::string& type) { instr.b = operand(2, type); }
  void c(const std::string& type) { instr.c = operand(3, type); }
  void address(size_t k, const std::string& space);
  std::vector<std::string> parts(size_t k) const;  // of {a,b} or (a,b) or a|b

  const ptx::Instruction& text;
  Instr& instr;
  Decoder& decoder() { return decoder_; }

 private:
  Decoder& decoder_;
  std::vector<std::string> left_;
};

using Read = void (*)(Reading&);
using Reads = std::map<std::string, Read>;

// The instructions by families, each in a file of its own.
void add_moves(Reads& reads);
void add_integers(Reads& reads);
void add_carries(Reads& reads);
void add_bits(Reads& reads);
void add_floats(Reads& reads);
void add_conversions(Reads& reads);
void add_comparisons(Reads& reads);
void add_memory(Reads& reads);
void add_warp(Reads& reads);
void add_flow(Reads& reads);

// add, sub and mad with a carry.
void read_carry(Reading& r);

// add, mul and the like of floats, where the instruction's type is one.
void read_float(Reading& r, const std::string& type);
inline bool is_float(const std::string& type) { return type.starts_with("f") || type.starts_with("bf"); }

// f with the type of the name.
template <class F> Run with_integer(Reading& r, const std::string& type, F&& f) {
  if (type == "u8" || type == "b8") return f.template operator()<uint8_t>();
  if (type == "s8") return f.template operator()<int8_t>();
  if (type == "u16" || type == "b16") return f.template operator()<uint16_t>();
  if (type == "s16") return f.template operator()<int16_t>();
  if (type == "u32" || type == "b32") return f.template operator()<uint32_t>();
  if (type == "s32") return f.template operator()<int32_t>();
  if (type == "u64" || type == "b64") return f.template operator()<uint64_t>();
  if (type == "s64") return f.template operator()<int64_t>();
  r.unknown("type ." + type);
}

// Loops over the lanes for functions of one, two and three operands.
template <class T, class R, auto F> void one(Warp& warp, const Instr& instr) {
  uint64_t* d = warp.at(instr.d);
  const uint64_t* a = warp.at(instr.a);
  warp.each([&](int lane) { d[lane] = bits<R>(F(as<T>(a[lane]))); });
}
template <class T, class R, auto F> void two(Warp& warp, const Instr& instr) {
  uint64_t* d = warp.at(instr.d);
  const uint64_t *a = warp.at(instr.a), *b = warp.at(instr.b);
  warp.each([&](int lane) { d[lane] = bits<R>(F(as<T>(a[lane]), as<T>(b[lane]))); });
}
template <class T, class C, class R, auto F> void three(Warp& warp, const Instr& instr) {
  uint64_t* d = warp.at(instr.d);
  const uint64_t *a = warp.at(instr.a), *b = warp.at(instr.b), *c = warp.at(instr.c);
  warp.each([&](int lane) { d[lane] = bits<R>(F(as<T>(a[lane]), as<T>(b[lane]), as<C>(c[lane]))); });
}

}  // namespace epl::cuda_machine
