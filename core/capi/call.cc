// What a blocking call is given: a token and a deadline.
#include "core/capi/handle.h"

namespace epl::capi {

Result<Call> read_call(const Engine& engine, const epl_call_options* options) {
  epl_call_options known = EPL_CALL_OPTIONS_INIT;
  EPL_TRY(copy_options(options, known, "epl_call_options"));
  if (known.timeout_nanoseconds < 0) return invalid("timeout_nanoseconds is ", known.timeout_nanoseconds);
  Call call;
  if (known.cancel) {
    EPL_TRY(check_pointer(known.cancel, "call option cancel"));
    call.token = known.cancel->token;
  }
  if (known.stream < -1) return invalid("stream is ", known.stream, "; it is -1, a number or a handle of a stream");
  call.samples = known.samples;
  call.stream = known.stream;
  call.started = engine.host.seconds();
  call.stop = Stop::after(engine.host.seconds, static_cast<double>(known.timeout_nanoseconds) * 1e-9, call.token.get());
  return call;
}

Result<Call> begin_call(const Engine& engine, const epl_call_options* options) {
  EPL_ASSIGN(Call call, read_call(engine, options));
  EPL_TRY(call.stop.check());
  return call;
}

}  // namespace epl::capi

using namespace epl;
using namespace epl::capi;

void epl_call_options_init(epl_call_options* options) {
  if (options) *options = EPL_CALL_OPTIONS_INIT;
}

epl_error* epl_cancel_create(const epl_engine* engine, epl_cancel** cancel) {
  return giving(cancel, "cancel", [&]() -> Result<std::unique_ptr<epl_cancel>> {
    EPL_REQUIRE(engine);
    auto made = std::make_unique<epl_cancel>();
    made->token = std::make_shared<StopToken>();
    return made;
  });
}

void epl_cancel_destroy(epl_cancel* cancel) { destroy(cancel); }
void epl_cancel_trigger(epl_cancel* cancel) {
  if (alive(cancel)) cancel->token->cancel();
}
int32_t epl_cancel_triggered(const epl_cancel* cancel) { return alive(cancel) && cancel->token->cancelled(); }
