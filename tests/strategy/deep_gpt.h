// A GPT of any depth and width as a graph's text, for tests that plan and compute nothing.
#pragma once

#include <string>

#include "core/base/text.h"

namespace epl {

struct DeepGpt {
  int64_t layers = 1, batch = 64, positions = 1024, heads = 16, width = 1024, words = 32768;
};

inline std::string deep_gpt_layer(const DeepGpt& g, int64_t layer, const std::string& x) {
  const std::string b = cat("h.", layer, "."), wide = cat("f32[", g.batch, ",", g.positions, ",");
  const std::string full = cat(wide, g.width, "]"), one = cat(wide, "1]");
  const int64_t head = g.width / g.heads;
  const auto norm = [&](const char* name, const std::string& of) {
    return cat("  ", b, name, ": ", full, ", ", b, name, ".1: ", one, ", ", b, name, ".2: ", one, " = layer_norm(", of,
               ", ", b, name, ".weight, ", b, name, ".bias) {axis=2}\n");
  };
  const auto product = [&](const char* name, int64_t size, const std::string& of) {
    return cat("  ", b, name, ": ", wide, size, "] = linear(", of, ", ", b, name, ".weight, ", b, name, ".bias)\n");
  };
  std::string out = norm("ln1", x) + product("qkv", 3 * g.width, b + "ln1");
  for (int64_t third = 0; third < 3; ++third) {
    const char part = "qkv"[third];
    out += cat("  ", b, part, ".all: ", full, " = slice(", b, "qkv) {axes=[2], starts=[", third * g.width, "], ends=[",
               (third + 1) * g.width, "], steps=[1]}\n");
    out += cat("  ", b, part, ".heads: ", wide, g.heads, ",", head, "] = reshape(", b, part, ".all) {shape=[", g.batch,
               ",", g.positions, ",", g.heads, ",", head, "]}\n");
    out += cat("  ", b, part, ": f32[", g.batch, ",", g.heads, ",", g.positions, ",", head, "] = transpose(", b, part,
               ".heads) {perm=[0,2,1,3]}\n");
  }
  out += cat("  ", b, "mixed: f32[", g.batch, ",", g.heads, ",", g.positions, ",", head, "], ", b, "mixed.1: f32[",
             g.batch, ",", g.heads, ",", g.positions, "] = attention(", b, "q, ", b, "k, ", b,
             "v) {scale=0.125, causal=true}\n");
  out += cat("  ", b, "rows: ", wide, g.heads, ",", head, "] = transpose(", b, "mixed) {perm=[0,2,1,3]}\n");
  out += cat("  ", b, "joined: ", full, " = reshape(", b, "rows) {shape=[", g.batch, ",", g.positions, ",", g.width,
             "]}\n");
  out += product("proj", g.width, b + "joined");
  out += cat("  ", b, "residual: ", full, " = add(", x, ", ", b, "proj)\n") + norm("ln2", b + "residual");
  out += product("fc", 4 * g.width, b + "ln2");
  out += cat("  ", b, "active: ", wide, 4 * g.width, "] = gelu(", b, "fc)\n") + product("out", g.width, b + "active");
  return out + cat("  h.", layer, ".sum: ", full, " = add(", b, "residual, ", b, "out)\n");
}

// Tokens in, scores of the next one out.
inline std::string deep_gpt(const DeepGpt& g) {
  std::string out = cat("graph gpt(ids: i64[", g.batch, ",", g.positions, "] batch 0) {\n");
  const auto parameter = [&](const std::string& name, const auto&... dims) {
    std::string shape;
    ((shape += cat(shape.empty() ? "" : ",", dims)), ...);
    out += cat("  ", name, ": f32[", shape, "] = param\n");
  };
  parameter("wte", g.words, g.width);
  parameter("wpe", g.positions, g.width);
  parameter("norm", g.width);
  for (int64_t i = 0; i < g.layers; ++i) {
    const std::string b = cat("h.", i, ".");
    const auto product = [&](const char* name, int64_t from, int64_t to) {
      parameter(cat(b, name, ".weight"), from, to);
      parameter(cat(b, name, ".bias"), to);
    };
    for (const char* name : {"ln1", "ln2"}) {
      parameter(cat(b, name, ".weight"), g.width);
      parameter(cat(b, name, ".bias"), g.width);
    }
    product("qkv", g.width, 3 * g.width);
    product("proj", g.width, g.width);
    product("fc", g.width, 4 * g.width);
    product("out", 4 * g.width, g.width);
  }
  const std::string full = cat("f32[", g.batch, ",", g.positions, ",", g.width, "]");
  out += cat("  forward:\n  embedded: ", full, " = gather(wte, ids)\n  hidden: ", full, " = add(embedded, wpe)\n");
  std::string x = "hidden";
  for (int64_t i = 0; i < g.layers; ++i) {
    out += deep_gpt_layer(g, i, x);
    x = cat("h.", i, ".sum");
  }
  out += cat("  normed: ", full, ", normed.1: f32[", g.batch, ",", g.positions, ",1] = rms_norm(", x,
             ", norm) {axis=2}\n");
  out += cat("  logits: f32[", g.batch, ",", g.positions, ",", g.words, "] = matmul(normed, wte) {transpose_b=true}\n");
  return out + "  output logits = logits\n}\n";
}

}  // namespace epl
