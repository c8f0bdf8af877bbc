// Normalisations, by statistics of the batch, of a sample or of a group of channels.
#include <algorithm>
#include <cmath>

#include "core/ir/op.h"
#include "core/ir/sums.h"
#include "frontends/onnx/onnx_op.h"
#include "frontends/onnx/ops/axes.h"
#include "frontends/onnx/ops/types.h"

namespace epl::onnx {
namespace {

// The type that the standard gives the statistics of a norm.
DType stash_type(Import& i) {
  const int64_t given = i.integer("stash_type", 1);
  const auto type = given > 0 && given < 100 ? dtype_of(static_cast<int32_t>(given)) : Result<DType>(DType::i8);
  if (type.ok() && is_float(*type)) return *type;
  i.fail(cat("its stash_type is ", given, ", which is no type of real numbers"));
  return DType::f32;
}
// The type in which a norm of such numbers is computed.
DType norm_type(DType x, DType stash) { return real_type(type_of_sums(x), type_of_sums(stash)); }

// (x - mean) / sqrt(variance + epsilon) over some axes.
Var standardized(Builder& b, const Var& x, const Ints& axes, double epsilon) {
  Var centred = x - b.mean(x, axes, true);
  return centred * b.reciprocal(b.sqrt(b.mean(centred * centred, axes, true) + epsilon));
}

// A vector of channels [c] beside x[n, c, ...].
Var per_channel(Builder& b, const Var& v, int ndim) {
  Shape shape(ndim, 1);
  shape[1] = v.type().elements();
  return b.reshape(v, shape);
}

}  // namespace

namespace {

// A variance of one value is zero, whatever the value is: the result is the bias alone, and no gradient comes through.
void check_count(Import& i, double count, std::string_view each, std::string_view advice) {
  if (!i.training() || count > 1) return;
  i.note(cat("training normalises ", i.type(0).text(), " over one value for each ", each,
             ", whose variance is zero: the result is the bias, and nothing before it learns. PyTorch refuses such a "
             "step; ",
             advice));
}

// In training the statistics are those of the batch, and the running ones move towards them: by PyTorch's convention,
// which takes the unbiased variance. Written out in sums, so that every cut of the batch follows from theirs. Operands
// may have different types; all is computed in the widest of them.
void batch_norm(Import& i, bool trains) {
  Builder& b = i.b;
  const double epsilon = i.number("epsilon", 1e-5), momentum = i.number("momentum", 0.9);
  const DType result = i.type(0).dtype, statistics = i.type(3).dtype,
              type = type_of_sums(real_type(real_type(result, i.type(1).dtype), statistics));
  const auto in = [&](int k) { return b.cast(i.in(k), type); };
  Var x = in(0), scale = in(1), bias = in(2);
  Shape channel(std::max(x.ndim(), 2), 1);
  channel[1] = x.dim(1);
  auto wide = [&](const Var& v) { return b.reshape(v, channel); };
  if (!i.training() || !trains) {
    Var rstd = b.reciprocal(b.sqrt(in(4) + epsilon));
    i.set(0, b.cast((x - wide(in(3))) * wide(rstd * scale) + wide(bias), result));
    for (int k = 1; k <= 2; ++k) {  // a file for training also names the running statistics, which stay
      if (i.wants(k)) i.set(k, b.unary("identity", i.in(k + 2)));
    }
    return;
  }
  Ints axes;
  double count = 1;
  for (int d = 0; d < x.ndim(); ++d) {
    if (d == 1) continue;
    axes.push_back(d);
    count *= static_cast<double>(x.dim(d));
  }
  check_count(i, count, "channel",
              "train with more samples in a batch (in a micro-batch, where batch.semantics is per_micro_batch). The "
              "running variance stays as it is");
  Var mean = b.mean(x, axes, true);
  Var centred = x - mean;
  Var variance = b.mean(centred * centred, axes, true);
  Var rstd = b.reciprocal(b.sqrt(variance + epsilon));
  i.set(0, b.cast(centred * (rstd * wide(scale)) + wide(bias), result));
  const auto flat = [&](const Var& v) { return b.reshape(v, {x.dim(1)}); };
  Var flat_mean = b.emit("stop_gradient", {flat(mean)});
  // There is no unbiased variance of one value.
  const bool varies = count > 1;
  Var flat_variance = b.emit("stop_gradient", {flat(variance)}) * (varies ? count / (count - 1) : 1.0);
  const Var old_mean = i.statistic(3), old_variance = i.statistic(4);
  const auto moved = [&](const Var& old, const Var& next) {
    return b.cast(b.cast(old, type) * momentum + next * (1.0 - momentum), statistics);
  };
  Var next_mean = moved(old_mean, flat_mean);
  Var next_variance = varies ? moved(old_variance, flat_variance) : old_variance;
  i.update_statistic(3, next_mean);
  i.update_statistic(4, next_variance);
  if (i.wants(1)) i.set(1, next_mean);
  // The output is the standard's, which takes the variance of the batch as it is.
  if (i.wants(2)) i.set(2, moved(old_variance, flat(variance)));
}

// Whether a BatchNormalization takes the statistics of its batch and learns the running ones. Before opset 14 a file
// says so by naming more outputs than one.
bool learns_statistics(const Node& node, int64_t opset) {
  if (opset < 14)
    return std::ranges::any_of(node.outputs.begin() + std::min<ptrdiff_t>(1, std::ssize(node.outputs)),
                               node.outputs.end(), [](std::string_view name) { return !name.empty(); });
  return std::ranges::any_of(node.attributes, [](const Attribute& a) { return a.name == "training_mode" && a.i != 0; });
}

}  // namespace

// The outputs 3 and 4 of the older opsets are what the writer's runtime kept for its backward pass: nobody may use
// them.
EPL_ONNX_OP(BatchNormalization) {
  return {.statistics = {3, 4}, .learns = learns_statistics, .weights = {1, 2}, .run = [](Import& i) {
            if (i.integer("spatial", 1) == 0)
              return i.fail(
                  unsupported("it keeps statistics for each element (spatial 0), which is not supported; those "
                              "of each channel are"));
            batch_norm(i, learns_statistics(i.node(), i.opset()));
          }};
}
EPL_ONNX_OP(BatchNormalization, 9) {
  return {.statistics = {3, 4}, .learns = learns_statistics, .weights = {1, 2}, .run = [](Import& i) {
            batch_norm(i, learns_statistics(i.node(), i.opset()));
          }};
}
EPL_ONNX_OP(LayerNormalization) {
  return {.weights = {1, 2}, .run = [](Import& i) {
            const DType as = i.type(0).dtype, stash = stash_type(i), type = norm_type(as, stash);
            const auto in = [&](int k) { return i.has(k) ? i.b.cast(i.in(k), type) : Var(); };
            auto results =
                i.b.emit_all("layer_norm", {in(0), in(1), in(2)},
                             {{"axis", i.axis("axis", -1, i.type(0).ndim())}, {"epsilon", i.number("epsilon", 1e-5)}});
            for (int k = 0; k < i.outputs() && k < 3; ++k) {
              if (i.wants(k)) i.set(k, i.b.cast(results[k], k == 0 ? as : stash));
            }
          }};
}

EPL_ONNX_OP(RMSNormalization) {
  return {.weights = {1}, .run = [](Import& i) {
            const Var x = i.in(0), scale = i.in(1);
            const DType as = scale.dtype(), type = norm_type(real_type(x.dtype(), as), stash_type(i));
            auto results =
                i.b.emit_all("rms_norm", {i.b.cast(x, type), i.b.cast(scale, type)},
                             {{"axis", i.axis("axis", -1, i.type(0).ndim())}, {"epsilon", i.number("epsilon", 1e-5)}});
            i.set(0, i.b.cast(results[0], as));
          }};
}

EPL_ONNX_OP(InstanceNormalization) {
  return {.weights = {1, 2}, .run = [](Import& i) {
            Var x = i.in(0);
            if (x.ndim() < 3) return i.fail(cat(x.type().text(), " has no space to normalise over"));
            double count = 1;
            for (int64_t axis : spatial_axes(x.ndim())) count *= static_cast<double>(x.dim(static_cast<int>(axis)));
            check_count(i, count, "channel of a sample", "train with larger samples");
            i.set(0, in_type_of_sums(i.b, x, [&](const Var& wide) {
                    const auto channels = [&](int k) {
                      return per_channel(i.b, i.b.cast(i.in(k), wide.dtype()), x.ndim());
                    };
                    Var y = standardized(i.b, wide, spatial_axes(x.ndim()), i.number("epsilon", 1e-5));
                    return y * channels(1) + channels(2);
                  }));
          }};
}

// Scale and bias are per group before opset 21, per channel since.
EPL_ONNX_OP(GroupNormalization) {
  return {.weights = {1, 2}, .run = [](Import& i) {
            Builder& b = i.b;
            const DType as = i.type(0).dtype, type = norm_type(as, stash_type(i));
            const auto in = [&](int k) { return b.cast(i.in(k), type); };
            Var x = in(0), scale = in(1), bias = in(2);
            int64_t groups = i.integer("num_groups", 0);
            if (x.ndim() < 2 || groups < 1 || x.dim(0) < 1 || x.dim(1) % groups != 0)
              return i.fail(cat(groups, " groups do not fit ", x.type().text()));
            check_count(i, static_cast<double>(x.type().elements() / (x.dim(0) * groups)), "group of a sample",
                        "train with larger samples, or with fewer groups");
            Var y = standardized(b, b.reshape(x, {x.dim(0), groups, x.type().elements() / (x.dim(0) * groups)}), {2},
                                 i.number("epsilon", 1e-5));
            if (scale.type().elements() == groups && groups != x.dim(1)) {
              y = y * b.reshape(scale, {1, groups, 1}) + b.reshape(bias, {1, groups, 1});
              return i.set(0, b.cast(b.reshape(y, x.shape()), as));
            }
            y = b.reshape(y, x.shape()) * per_channel(b, scale, x.ndim()) + per_channel(b, bias, x.ndim());
            i.set(0, b.cast(y, as));
          }};
}

EPL_ONNX_OP(MeanVarianceNormalization) {
  return {.run = [](Import& i) {
    Builder& b = i.b;
    Ints axes = i.axes(i.ints("axes", {0, 2, 3}), i.type(0).ndim());
    i.set(0, in_type_of_sums(b, i.in(0), [&](const Var& x) {
            Var centred = x - b.mean(x, axes, true);
            return centred / (b.sqrt(b.mean(centred * centred, axes, true)) + 1e-9);
          }));
  }};
}

// Where the norm is zero the result is zero as well.
EPL_ONNX_OP(LpNormalization) {
  return {.run = [](Import& i) {
    Builder& b = i.b;
    Ints axis = {i.axis("axis", -1, i.type(0).ndim())};
    i.set(0, in_type_of_sums(b, i.in(0), [&](const Var& x) {
            Var norm = i.integer("p", 2) == 1 ? b.sum(b.unary("abs", x), axis, true) : b.sqrt(b.sum(x * x, axis, true));
            return x / b.select(b.equal(norm, b.like(norm, 0)), b.like(norm, 1), norm);
          }));
  }};
}

// x / (bias + alpha / size * sum of squares over neighbouring channels) ^ beta.
EPL_ONNX_OP(LRN) {
  return {.run = [](Import& i) {
    Builder& b = i.b;
    const DType as = i.type(0).dtype;
    Var x = b.cast(i.in(0), type_of_sums(as));
    int64_t size = i.integer("size", 1), before = (size - 1) / 2, after = size - 1 - before;
    if (x.ndim() < 2 || size < 1 || size > 1024) return i.fail(cat("a window of ", size, " channels"));
    Ints begin(x.ndim(), 0), end(x.ndim(), 0);
    begin[1] = before;
    end[1] = after;
    Var squares = b.emit("pad", {x * x}, {{"mode", std::string("constant")}, {"begin", begin}, {"end", end}}), total;
    for (int64_t k = 0; k < size; ++k) {
      Var one = b.slice(squares, {1}, {k}, {k + x.dim(1)});
      total = total ? total + one : one;
    }
    Var base = total * (i.number("alpha", 1e-4) / static_cast<double>(size)) + i.number("bias", 1.0);
    i.set(0, b.cast(x / b.pow(base, b.like(base, i.number("beta", 0.75))), as));
  }};
}

// Of the domain ai.onnx.ml: columns shifted and scaled, each by its own number or all by one.
EPL_ONNX_OP(Scaler) {
  return {.domain = "ai.onnx.ml", .run = [](Import& i) {
            Builder& b = i.b;
            const Var x = b.cast(i.in(0), real_type(i.type(0).dtype, DType::f32));
            auto numbers = [&](std::string_view name, double fallback) {
              Doubles given = i.numbers(name, {fallback});
              if (given.size() != 1 && static_cast<int64_t>(given.size()) != x.dim(-1))
                i.fail(cat(given.size(), " numbers in ", name, " for ", x.type().text()));
              epl::Tensor made(TensorType{DType::f32, {static_cast<int64_t>(given.size())}});
              for (size_t k = 0; k < given.size(); ++k) made.set(static_cast<int64_t>(k), given[k]);
              return b.cast(b.constant(made), x.dtype());
            };
            i.set(0, b.cast((x - numbers("offset", 0)) * numbers("scale", 1), DType::f32));
          }};
}

}  // namespace epl::onnx
