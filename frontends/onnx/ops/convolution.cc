// Convolutions and their adjoints.
#include <algorithm>

#include "core/ir/op.h"
#include "frontends/onnx/ops/window.h"

namespace epl::onnx {
EPL_ONNX_OP(Conv) {
  return {.weights = {1, 2}, .product = true, .run = [](Import& i) {
            Var x = i.in(0), w = i.in(1);
            size_t spatial = static_cast<size_t>(std::max(x.ndim() - 2, 0));
            Ints kernel(w.shape().begin() + std::min<size_t>(2, w.shape().size()), w.shape().end());
            Ints strides = i.ints("strides", Ints(spatial, 1)), dilations = i.ints("dilations", Ints(spatial, 1));
            if (kernel.size() != spatial || strides.size() != spatial || dilations.size() != spatial)
              return i.fail("kernel, strides and input do not fit");
            std::vector<Var> operands = {x, w};
            if (i.has(2)) operands.push_back(i.in(2));
            i.set(0, i.b.emit("conv", operands,
                              {{"strides", strides},
                               {"pads", window_pads(i, x.shape(), kernel, strides, dilations)},
                               {"dilations", dilations},
                               {"groups", i.integer("group", 1)}}));
          }};
}

// The adjoint of a convolution, run forward.
EPL_ONNX_OP(ConvTranspose) {
  return {.weights = {1, 2}, .product = true, .run = [](Import& i) {
            Var x = i.in(0), w = i.in(1);
            const size_t spatial = static_cast<size_t>(std::max(x.ndim() - 2, 0));
            Ints strides = i.ints("strides", Ints(spatial, 1)), dilations = i.ints("dilations", Ints(spatial, 1)),
                 more = i.ints("output_padding", Ints(spatial, 0));
            Ints pads = i.ints("pads", Ints(2 * spatial, 0)), wanted = i.ints("output_shape", {});
            int64_t groups = i.integer("group", 1);
            if (w.ndim() != x.ndim() || spatial == 0 || strides.size() != spatial || dilations.size() != spatial ||
                more.size() != spatial || pads.size() != 2 * spatial) {
              return i.fail("kernel, strides and input do not fit");
            }
            const Ints group = {groups};
            if (!bounded(i, {&strides, &dilations, &group}, 1) || !bounded(i, {&more, &pads, &wanted}, 0)) return;
            const std::string automatic = auto_pad(i);
            Shape shape = {x.dim(0), w.dim(1) * groups};
            for (size_t d = 0; d < spatial; ++d) {
              const int at = static_cast<int>(d) + 2;
              int64_t full = strides[d] * (x.dim(at) - 1) + more[d] + (w.dim(at) - 1) * dilations[d] + 1;
              bool same = automatic == "SAME_UPPER" || automatic == "SAME_LOWER";
              if (wanted.size() == spatial || same) {  // the pads follow from the size of the result
                int64_t size = wanted.size() == spatial ? wanted[d] : x.dim(at) * strides[d],
                        total = std::max<int64_t>(full - size, 0);
                full = std::max(full, size);
                pads[d] = automatic == "SAME_UPPER" ? total / 2 : total - total / 2;
                pads[d + spatial] = total - pads[d];
              }
              shape.push_back(full - pads[d] - pads[d + spatial]);
            }
            Var y = i.b.emit(
                "conv_grad_input", {x, w},
                {{"strides", strides}, {"pads", pads}, {"dilations", dilations}, {"groups", groups}, {"shape", shape}});
            if (i.has(2)) {
              Shape channel(shape.size(), 1);
              channel[1] = shape[1];
              y = y + i.b.reshape(i.in(2), channel);
            }
            i.set(0, y);
          }};
}

}  // namespace epl::onnx
