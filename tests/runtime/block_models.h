// Models that several tests share. Two transformer blocks, as they are when patterns have become ops: what belongs to
// block i is called "bi.". Layers with a draw for each element. Four experts.
#pragma once

#include <string>

#include "core/base/text.h"

namespace epl {

enum class BlockModel { gpt, llama, bert };

// f32[4,4,8] from `x` to the value `bi`: two heads of 4, a hidden layer of 32.
inline std::string block_nodes(BlockModel kind, int i, const std::string& x) {
  const std::string b = cat("b", i, ".");
  const auto heads = [&](const std::string& name, const std::string& of) {
    return cat("  ", b, name, ".heads: f32[4,4,2,4] = reshape(", b, of, ") {shape=[4,4,2,4]}\n", "  ", b, name,
               ": f32[4,2,4,4] = transpose(", b, name, ".heads) {perm=[0,2,1,3]}\n");
  };
  const auto norm = [&](const std::string& name, const std::string& of) {
    const std::string from = cat("(", of, ", ", b, name, ".weight");
    return kind == BlockModel::llama
               ? cat("  ", b, name, ": f32[4,4,8], ", b, name, ".1: f32[4,4,1] = rms_norm", from, ") {axis=2}\n")
               : cat("  ", b, name, ": f32[4,4,8], ", b, name, ".1: f32[4,4,1], ", b, name,
                     ".2: f32[4,4,1] = layer_norm", from, ", ", b, name, ".bias) {axis=2}\n");
  };
  const auto product = [&](const std::string& name, int64_t size, const std::string& of) {
    return kind == BlockModel::llama
               ? cat("  ", b, name, ": f32[4,4,", size, "] = matmul(", of, ", ", b, name, ".weight)\n")
               : cat("  ", b, name, ": f32[4,4,", size, "] = linear(", of, ", ", b, name, ".weight, ", b, name,
                     ".bias)\n");
  };
  const auto add = [&](const std::string& name, const std::string& one, const std::string& other) {
    return cat("  ", name, ": f32[4,4,8] = add(", one, ", ", other, ")\n");
  };
  std::string out;
  const bool first = kind != BlockModel::bert;  // the norms come before the products
  const std::string in = first ? cat(b, "ln1") : x, inner = first ? cat(b, "ln2") : cat(b, "ln1");
  if (first) out += norm("ln1", x);
  if (kind == BlockModel::gpt) {
    out += product("qkv", 24, in);
    for (int third = 0; third < 3; ++third) {
      out += cat("  ", b, "third", third, ": f32[4,4,8] = slice(", b, "qkv) {axes=[2], starts=[", third * 8,
                 "], ends=[", third * 8 + 8, "], steps=[1]}\n");
    }
    out += heads("q", "third0") + heads("k", "third1") + heads("v", "third2");
  } else {
    for (const char* name : {"q", "k", "v"})
      out += product(cat(name, "_proj"), 8, in) + heads(name, cat(name, "_proj"));
  }
  out += cat("  ", b, "mixed: f32[4,2,4,4], ", b, "mixed.1: f32[4,2,4] = attention(", b, "q, ", b, "k, ", b,
             "v) {scale=0.5, causal=", first ? "true" : "false", "}\n");
  out += cat("  ", b, "transposed: f32[4,4,2,4] = transpose(", b, "mixed) {perm=[0,2,1,3]}\n", "  ", b,
             "joined: f32[4,4,8] = reshape(", b, "transposed) {shape=[4,4,8]}\n");
  out += product("proj", 8, cat(b, "joined")) + add(cat(b, "residual"), x, cat(b, "proj"));
  out += first ? norm("ln2", cat(b, "residual")) : norm("ln1", cat(b, "residual"));
  std::string hidden = cat(b, "active");
  if (kind == BlockModel::llama) {
    out += product("gate", 32, inner) + product("up", 32, inner);
    out += cat("  ", b, "gated: f32[4,4,32] = silu(", b, "gate)\n", "  ", b, "active: f32[4,4,32] = mul(", b, "gated, ",
               b, "up)\n");
  } else {
    out += product("fc", 32, inner) + cat("  ", b, "active: f32[4,4,32] = gelu(", b, "fc)\n");
  }
  out += product("out", 8, hidden);
  if (first) return out + add(cat("b", i), cat(b, "residual"), cat(b, "out"));
  return out + add(cat(b, "sum"), inner, cat(b, "out")) + norm("ln2", cat(b, "sum"));
}

inline std::string block_parameters(BlockModel kind, int i) {
  std::string out;
  const auto parameter = [&](const std::string& name, const std::string& shape) {
    out += cat("  b", i, ".", name, ": f32[", shape, "] = param\n");
  };
  const bool biases = kind != BlockModel::llama;
  const auto product = [&](const std::string& name, int from, int to) {
    parameter(name + ".weight", cat(from, ",", to));
    if (biases) parameter(name + ".bias", cat(to));
  };
  for (const char* norm : {"ln1", "ln2"}) {
    parameter(cat(norm, ".weight"), "8");
    if (biases) parameter(cat(norm, ".bias"), "8");
  }
  if (kind == BlockModel::gpt) {
    product("qkv", 8, 24);
  } else {
    for (const char* name : {"q_proj", "k_proj", "v_proj"}) product(name, 8, 8);
  }
  product("proj", 8, 8);
  if (kind == BlockModel::llama) {
    product("gate", 8, 32);
    product("up", 8, 32);
  } else {
    product("fc", 8, 32);
  }
  product("out", 32, 8);
  return out;
}

// Tokens of 16 kinds in, scores of the next one out; GPT's are by the embedding again.
inline std::string block_model(BlockModel kind) {
  std::string out = "graph blocks(ids: i64[4,4] batch 0) {\n  wte: f32[16,8] = param\n  wpe: f32[4,8] = param\n";
  const bool tied = kind == BlockModel::gpt;
  if (kind != BlockModel::bert) out += "  norm: f32[8] = param\n";
  if (!tied) out += "  head: f32[16,8] = param\n";
  for (int i = 0; i < 2; ++i) out += block_parameters(kind, i);
  out += "  forward:\n  embedded: f32[4,4,8] = gather(wte, ids)\n  hidden: f32[4,4,8] = add(embedded, wpe)\n";
  const std::string last = kind == BlockModel::bert ? ".ln2" : "";
  out += block_nodes(kind, 0, "hidden") + block_nodes(kind, 1, "b0" + last);
  std::string scored = cat("b1", last);
  if (kind != BlockModel::bert) {
    out += cat("  normed: f32[4,4,8], normed.1: f32[4,4,1] = rms_norm(", scored, ", norm) {axis=2}\n");
    scored = "normed";
  }
  out += cat("  logits: f32[4,4,16] = matmul(", scored, ", ", tied ? "wte" : "head", ") {transpose_b=true}\n");
  return out + "  output logits = logits\n}\n";
}

// Layers with a draw for each element and a connection around each. Their results take far more than their weights.
inline std::string deep_model(int layers) {
  std::string text = "graph deep(x: f32[8,32,8] batch 0) {\n  last: f32[8,4] = param\n";
  for (int i = 0; i < layers; ++i) text += cat("  w", i, ": f32[8,8] = param\n  b", i, ": f32[8] = param\n");
  text += "  forward:\n  r0: f32[8,32,8] = sigmoid(x)\n";
  for (int i = 0; i < layers; ++i) {
    text += cat("  h", i, ": f32[8,32,8] = linear(r", i, ", w", i, ", b", i, ")\n", "  a", i, ": f32[8,32,8] = gelu(h",
                i, ")\n", "  d", i, ": f32[8,32,8], m", i, ": bool[8,32,8] = dropout(a", i, ") {ratio=0.3}\n", "  r",
                i + 1, ": f32[8,32,8] = add(r", i, ", d", i, ")\n");
  }
  return text + cat("  y: f32[8,32,4] = matmul(r", layers, ", last)\n  output y = y\n}\n");
}

// Four experts with weights in one tensor.
inline constexpr std::string_view four_experts = R"(graph mixture(x: f32[8,16] batch 0) {
  gate.w: f32[4,4] = param
  w1: f32[4,4,8] = param
  w2: f32[4,8,4] = param
  out.w: f32[16,8] = param
  forward:
  each: f32[8,4,4] = reshape(x) {shape=[8,4,4]}
  scores: f32[8,4,4] = matmul(each, gate.w)
  gates: f32[8,4,4] = softmax(scores) {axis=2}
  weights: f32[8,4,4,1] = reshape(gates) {shape=[8,4,4,1]}
  alike: f32[8,4,1,4] = reshape(each) {shape=[8,4,1,4]}
  taken: f32[8,4,4,4] = mul(weights, alike)
  by_expert: f32[4,8,4,4] = transpose(taken) {perm=[2,0,1,3]}
  tokens: f32[4,32,4] = reshape(by_expert) {shape=[4,32,4]}
  experts.h: f32[4,32,8] = matmul(tokens, w1)
  experts.a: f32[4,32,8] = relu(experts.h)
  experts.y: f32[4,32,4] = matmul(experts.a, w2)
  apart: f32[4,8,4,4] = reshape(experts.y) {shape=[4,8,4,4]}
  given: f32[1,8,4,4] = sum(apart) {axes=[0]}
  flat: f32[8,16] = reshape(given) {shape=[8,16]}
  y: f32[8,8] = matmul(flat, out.w)
  output y = y
}
)";

}  // namespace epl
