// A residual network for images (He et al. 2016) of any size: convolutions with batch norm, pooling, stages of basic
// blocks, each stage but the first of twice the channels and half the size.
#include <cmath>

#include "core/frontend/template.h"
#include "frontends/onnx/templates/initial_weights.h"

namespace epl::onnx {
namespace {

struct CnnSize {
  int64_t channels, image, width, stages, blocks, classes;
  uint64_t seed;
};

Result<CnnSize> read_cnn_size(const Attributes& options) {
  CnnSize size{};
  for (auto [name, to] :
       {std::pair{"channels", &size.channels}, std::pair{"image", &size.image}, std::pair{"width", &size.width},
        std::pair{"stages", &size.stages}, std::pair{"blocks", &size.blocks}, std::pair{"classes", &size.classes}}) {
    EPL_ASSIGN(*to, size_option(options, name));
  }
  constexpr int64_t max_stages = 8;
  if (size.image < 2) return invalid("option image is ", size.image, "; an image has 2 pixels a side or more");
  if (size.stages > max_stages) return invalid("option stages is ", size.stages, "; it is ", max_stages, " at most");
  size.seed = static_cast<uint64_t>(options.integer("seed"));
  const double widest = static_cast<double>(size.width) * std::exp2(static_cast<double>(size.stages - 1));
  EPL_TRY(check_template_size(2.0 * 9 * static_cast<double>(size.blocks) * 4.0 / 3 * widest * widest +
                                  9.0 * static_cast<double>(size.channels) * static_cast<double>(size.width) +
                                  widest * static_cast<double>(size.classes),
                              size.stages * size.blocks));
  return size;
}

// Names are those of torchvision's ResNet, and so is how weights start: He et al. 2015 for convolutions, by what leaves
// them.
class Cnn {
 public:
  explicit Cnn(const CnnSize& size) : size_(size) {}

  Status write(const std::string& path, const FileHook& hook) {
    std::string x = m_.input("image", DType::f32, {"batch", size_.channels, size_.image, size_.image});
    x = convolved("conv1", "bn1", x, size_.channels, size_.width, 3, 1);
    x = m_.node("relu", "Relu", {x});
    x = m_.node("maxpool", "MaxPool", {x}, {{"kernel_shape", Ints{2, 2}}, {"strides", Ints{2, 2}}});
    int64_t in = size_.width;
    for (int64_t stage = 0; stage < size_.stages; ++stage) {
      const int64_t out = size_.width << stage;
      for (int64_t i = 0; i < size_.blocks; ++i) {
        x = block(cat("layer", stage + 1, ".", i), x, in, out, stage > 0 && i == 0 ? 2 : 1);
        in = out;
      }
    }
    x = m_.node("avgpool", "GlobalAveragePool", {x});
    x = m_.node("flat", "Flatten", {x}, {{"axis", int64_t{1}}});
    const double bound = 1 / std::sqrt(static_cast<double>(in));
    m_.initializer("fc.weight", {DType::f32, {size_.classes, in}}, uniform_weights(size_.seed, "fc.weight", bound));
    m_.initializer("fc.bias", {DType::f32, {size_.classes}}, uniform_weights(size_.seed, "fc.bias", bound));
    x = m_.node("logits", "Gemm", {x, "fc.weight", "fc.bias"}, {{"transB", int64_t{1}}});
    m_.output(x, DType::f32, {"batch", size_.classes});
    m_.metadata("epl.template", cat("cnn channels=", size_.channels, " image=", size_.image, " width=", size_.width,
                                    " stages=", size_.stages, " blocks=", size_.blocks, " classes=", size_.classes,
                                    " seed=", size_.seed));
    return m_.write(path, hook);
  }

 private:
  std::string constant(const std::string& name, double value, int64_t n) {
    return m_.initializer(name, {DType::f32, {n}}, constant_weights(value));
  }

  std::string convolved(const std::string& name, const std::string& norm, const std::string& x, int64_t in, int64_t out,
                        int64_t kernel, int64_t stride) {
    const std::string weight = name + ".weight";
    const double deviation = std::sqrt(2 / static_cast<double>(out * kernel * kernel));
    const int64_t pad = kernel / 2;
    m_.initializer(weight, {DType::f32, {out, in, kernel, kernel}}, normal_weights(size_.seed, weight, deviation));
    const std::string y = m_.node(name, "Conv", {x, weight},
                                  {{"kernel_shape", Ints{kernel, kernel}},
                                   {"strides", Ints{stride, stride}},
                                   {"pads", Ints{pad, pad, pad, pad}}});
    return m_.node(norm, "BatchNormalization",
                   {y, constant(norm + ".weight", 1, out), constant(norm + ".bias", 0, out),
                    constant(norm + ".running_mean", 0, out), constant(norm + ".running_var", 1, out)},
                   {{"training_mode", int64_t{1}}, {"momentum", 0.9}, {"epsilon", 1e-5}}, 3)[0];
  }

  std::string block(const std::string& name, const std::string& x, int64_t in, int64_t out, int64_t stride) {
    std::string y = convolved(name + ".conv1", name + ".bn1", x, in, out, 3, stride);
    y = m_.node(name + ".relu", "Relu", {y});
    y = convolved(name + ".conv2", name + ".bn2", y, out, out, 3, 1);
    const std::string skip =
        in == out && stride == 1 ? x : convolved(name + ".downsample.0", name + ".downsample.1", x, in, out, 1, stride);
    return m_.node(name, "Relu", {m_.node(name + ".sum", "Add", {y, skip})});
  }

  const CnnSize size_;
  ModelWriter m_{"cnn"};
};

Status write_cnn(const Attributes& options, const std::string& path, const FileHook& hook) {
  EPL_ASSIGN(const CnnSize size, read_cnn_size(options));
  return Cnn(size).write(path, hook);
}

}  // namespace
}  // namespace epl::onnx

namespace epl {

EPL_TEMPLATE(cnn) {
  return {.doc =
              "A residual network with batch norm, image f32[batch, channels, image, image] to logits f32[batch, "
              "classes]. width: channels of the first stage; each stage but the first has twice as many, and half the "
              "size. blocks: of each stage.",
          .options = {{"channels", int64_t{3}},
                      {"image", int64_t{32}},
                      {"width", int64_t{16}},
                      {"stages", int64_t{3}},
                      {"blocks", int64_t{2}},
                      {"classes", int64_t{10}},
                      {"seed", int64_t{1}}},
          .write = onnx::write_cnn};
}

}  // namespace epl
