/* Compiled in every dialect: the header alone, its macros, and the layouts that other languages write down. */
#include "epl.h"

#define EPL_ASSERT_NAMED(name, condition) typedef char name[(condition) ? 1 : -1]
EPL_ASSERT_NAMED(engine_options_size, sizeof(epl_engine_options) == 112 || sizeof(void*) != 8);
EPL_ASSERT_NAMED(port_size, sizeof(epl_tensor_info) == 160 || sizeof(void*) != 8);
EPL_ASSERT_NAMED(model_options_size, sizeof(epl_model_options) == 16);
EPL_ASSERT_NAMED(plan_options_size, sizeof(epl_plan_options) == 48);
EPL_ASSERT_NAMED(session_options_size, sizeof(epl_session_options) == 176);
EPL_ASSERT_NAMED(call_options_size, sizeof(epl_call_options) == 40 || sizeof(void*) != 8);
EPL_ASSERT_NAMED(metrics_size, sizeof(epl_metrics) == 48);
EPL_ASSERT_NAMED(metrics_loss, offsetof(epl_metrics, loss) == 16);

int use_the_macros(void);
int use_the_macros(void) {
  epl_engine_options engine = EPL_ENGINE_OPTIONS_INIT;
  epl_tensor_info port = EPL_TENSOR_INFO_INIT;
  epl_model_options model = EPL_MODEL_OPTIONS_INIT;
  epl_plan_options plan = EPL_PLAN_OPTIONS_INIT;
  epl_session_options session = EPL_SESSION_OPTIONS_INIT;
  epl_call_options call = EPL_CALL_OPTIONS_INIT;
  epl_metrics metrics = EPL_METRICS_INIT;
  epl_strategy* strategy = NULL;
  epl_error* error = epl_strategy_parse(NULL, EPL_STR("{}"), &strategy);
  return (int)(engine.struct_size + port.struct_size + model.struct_size + plan.struct_size + session.struct_size +
               call.struct_size + metrics.struct_size) +
         (error != NULL);
}
