#include "backends/cuda/kernels/conv_geometry.h"

namespace epl::cuda {

ConvGeometry conv_geometry(const Query& q, const Shape& x, const Shape& w, const Shape& y) {
  ConvGeometry g{};
  g.x_pixels = g.y_pixels = g.taps = 1;
  g.batch = x[0];
  g.groups = q.integer("groups");
  g.in = w[1];
  g.out = w[0] / g.groups;
  const int dims = static_cast<int>(x.size()) - 2, added = conv_dims - dims;
  const std::vector<int64_t>&strides = q.integers("strides"), &dilations = q.integers("dilations"),
        &pads = q.integers("pads");
  for (int d = 0; d < conv_dims; ++d) {
    const int own = d - added;  // dimension of the tensors, or negative
    const auto at = static_cast<size_t>(own);
    g.x[d] = own < 0 ? 1 : x[at + 2];
    g.y[d] = own < 0 ? 1 : y[at + 2];
    g.kernel[d] = own < 0 ? 1 : w[at + 2];
    g.strides[d] = own < 0 || strides.empty() ? 1 : strides[at];
    g.dilations[d] = own < 0 || dilations.empty() ? 1 : dilations[at];
    g.pads[d] = own < 0 || pads.empty() ? 0 : pads[at];
    g.x_pixels *= g.x[d];
    g.y_pixels *= g.y[d];
    g.taps *= g.kernel[d];
  }
  return g;
}

Status has_conv_geometry(const Query& q) {
  const int dims = q.in(0).ndim() - 2;
  EPL_TRY(require(dims >= 1 && dims <= conv_dims, "more than three spatial dimensions"));
  return require(q.units.divide(q.in(0).shape[0]), "units that do not divide the batch");
}

}  // namespace epl::cuda
