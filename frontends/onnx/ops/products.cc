// Matrix products.
#include "core/ir/op.h"
#include "frontends/onnx/onnx_op.h"
#include "frontends/onnx/ops/types.h"

namespace epl::onnx {
EPL_ONNX_OP(MatMul) {
  return {.weights = {0, 1}, .product = true, .run = [](Import& i) {
            Var a = i.in(0), b = i.in(1);
            // A vector is a row on the left and a column on the right.
            bool row = a.ndim() == 1, column = b.ndim() == 1;
            if (row) a = i.b.reshape(a, {1, a.dim(0)});
            if (column) b = i.b.reshape(b, {b.dim(0), 1});
            Var y = i.b.matmul(a, b);
            Shape shape = y.shape();
            if (column && !shape.empty()) shape.pop_back();
            if (row && !shape.empty()) shape.erase(shape.end() - (column ? 1 : 2));
            i.set(0, row || column ? i.b.reshape(y, shape) : y);
          }};
}

EPL_ONNX_OP(Gemm) {
  return {.weights = {0, 1, 2}, .product = true, .run = [](Import& i) {
            double alpha = i.number("alpha", 1.0), beta = i.number("beta", 1.0);
            Var y = i.b.matmul(i.in(0), i.in(1), i.integer("transA", 0) != 0, i.integer("transB", 0) != 0);
            const DType as = y.dtype();
            // Real factors of integers. Those that the integers' type has are integers as well, and no digit is lost.
            const auto holds = [&](double factor) { return epl::Tensor::scalar(as, factor).get(0) == factor; };
            const bool real = !is_float(as) && !(holds(alpha) && (!i.has(2) || holds(beta)));
            const DType type = real ? real_type(as, DType::f32) : as;
            y = i.b.cast(y, type);
            if (alpha != 1.0) y = y * alpha;
            if (i.has(2) && beta != 0.0) {
              const Var c = i.b.cast(i.in(2), type);
              y = y + (beta == 1.0 ? c : c * beta);
            }
            i.set(0, i.b.cast(y, as));
          }};
}

}  // namespace epl::onnx
