// epl.hpp with results in place of exceptions, compiled without them.
#define EPL_CPP_RESULT
#include <cstdio>
#include <cstdlib>
#include <epl.hpp>

void test_results(const std::string& folder) {
  const auto expect = [](bool holds, const char* what) {
    if (holds) return;
    std::fprintf(stderr, "%s\n", what);
    std::exit(1);
  };
  auto engine = epl::engine::create();
  expect(engine.has_value(), "an engine");
  auto missing = epl::model::load(*engine, "/no/such/model.onnx");
  expect(!missing && missing.error().code() == EPL_ERROR_NOT_FOUND, "a missing model is an error");
  const std::string path = folder + "/cpp_returning.onnx";
  expect(bool(epl::x_template_write(*engine, "mlp", R"({"sizes":[4,8,2],"seed":1})", path)), "a template");
  auto model = epl::model::load(*engine, path);
  expect(model && model->port_count(EPL_PORT_INPUT) == 1, "a model");
  auto trainer = epl::trainer::create(*engine);
  expect(bool(trainer->bind_symbol("batch", 2)), "a symbol is bound");
  epl::result<void> wrong = trainer->group_set(99, "lr", "1");
  expect(!wrong && wrong.error().code() == EPL_ERROR_INVALID_ARGUMENT, "a group that is not there is an error");
  auto plan = epl::plan::create(*model, *trainer);
  expect(bool(plan), "a plan");
  std::string written;
  auto session = epl::session::create(*plan);
  const auto refuse = [](std::span<const std::byte>) -> epl::result<void> {
    return epl::error(epl::code::exhausted, "the disk is full");
  };
  epl::result<void> full = session->save_to(refuse);
  expect(!full && full.error().code() == epl::code::exhausted, "a function's error is the call's");
  expect(bool(session->save_to([&](std::span<const std::byte> data) { written.append(data.size(), 'x'); })), "saved");
  expect(!written.empty(), "a function without a result");
  auto ranks =
      epl::plan::create(*model, *trainer).and_then([](epl::plan made) -> epl::result<int64_t> { return made.ranks(); });
  expect(ranks.value() == 1, "one call behind another");
  epl::plan owned = *std::move(plan);
  expect(owned.ranks() == 1, "a rank");
}
