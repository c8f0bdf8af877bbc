// A model made of a .graph text, for tests of what stands above frontends.
#pragma once

#include <cmath>

#include "core/base/philox.h"
#include "core/frontend/model.h"

namespace epl {

class GraphModel : public Model {
 public:
  // Parameters get small seeded values.
  static std::shared_ptr<const Model> parse(std::string_view text, uint64_t seed = 1) {
    auto model = std::make_shared<GraphModel>();
    auto graph = parse_graph(text);
    EPL_CHECK(graph.ok(), graph.status().to_string());
    model->graph_ = *std::move(graph);
    for (Value v : model->graph_.leaves(ValueKind::parameter)) {
      ValueInfo& info = model->graph_.value(v);
      info.data = Tensor(info.type);
      const auto key = random_key(seed, 0, info.name);
      for (int64_t i = 0; i < info.type.elements(); ++i) info.data.set(i, (philox_uniform(key, i) - 0.5) * 0.5);
      model->initializers_.push_back({info.name, info.type});
    }
    return model;
  }
  const std::vector<ModelPort>& inputs() const override { return ports_; }
  const std::vector<ModelPort>& outputs() const override { return ports_; }
  const std::vector<ModelInitializer>& initializers() const override { return initializers_; }
  std::string description() const override { return "a graph"; }
  std::vector<std::pair<std::string, int>> op_counts() const override { return {}; }
  std::vector<ModelFinding> findings() const override { return {}; }
  Result<Graph> bind(const Binding&) const override { return graph_; }
  std::string training_parts() const override { return {}; }
  Status save(const std::string&, const std::map<std::string, Tensor>&, const ModelSaveOptions&) const override {
    return unsupported("a test model");
  }
  Status write(ByteWriter&, const std::map<std::string, Tensor>&, const ModelSaveOptions&) const override {
    return unsupported("a test model");
  }

 private:
  Graph graph_;
  std::vector<ModelPort> ports_;
  std::vector<ModelInitializer> initializers_;
};

inline Host test_host(int threads) {
  return {.seconds = [] { return 0.0; },
          .allocate = [](size_t bytes,
                         size_t alignment) { return ::operator new(bytes, std::align_val_t{alignment}, std::nothrow); },
          .release = [](void* p, size_t, size_t alignment) { ::operator delete(p, std::align_val_t{alignment}); },
          .log = [](LogLevel, std::string_view) {},
          .threads = threads};
}

}  // namespace epl
