// The constants of the header and the enums of the engine that stand for each other. Calls convert them by number.
#include "core/base/dtype.h"
#include "core/base/host.h"
#include "core/base/status.h"
#include "core/compile/compiled_plan.h"
#include "core/runtime/checkpoint.h"
#include "include/epl.h"

namespace epl::capi {
namespace {

#define EPL_SAME(constant, value) static_assert((constant) == static_cast<int>(value))

EPL_SAME(EPL_OK, Code::ok);
EPL_SAME(EPL_ERROR_INVALID_ARGUMENT, Code::invalid_argument);
EPL_SAME(EPL_ERROR_INVALID_MODEL, Code::invalid_model);
EPL_SAME(EPL_ERROR_UNSUPPORTED, Code::unsupported);
EPL_SAME(EPL_ERROR_NOT_FOUND, Code::not_found);
EPL_SAME(EPL_ERROR_IO, Code::io);
EPL_SAME(EPL_ERROR_OUT_OF_MEMORY, Code::out_of_memory);
EPL_SAME(EPL_ERROR_CANCELLED, Code::cancelled);
EPL_SAME(EPL_ERROR_DEADLINE_EXCEEDED, Code::deadline_exceeded);
EPL_SAME(EPL_ERROR_PEER_FAILED, Code::peer_failed);
EPL_SAME(EPL_ERROR_MISUSE, Code::misuse);
EPL_SAME(EPL_ERROR_NOT_FINITE, Code::not_finite);
EPL_SAME(EPL_ERROR_INTERNAL, Code::internal);
EPL_SAME(EPL_ERROR_DATA_LOSS, Code::data_loss);
EPL_SAME(EPL_ERROR_BUSY, Code::busy);
EPL_SAME(EPL_ERROR_STATE_LOST, Code::state_lost);
EPL_SAME(EPL_ERROR_EXHAUSTED, Code::exhausted);
EPL_SAME(EPL_LOG_DEBUG - 1, LogLevel::debug);
EPL_SAME(EPL_LOG_INFO - 1, LogLevel::info);
EPL_SAME(EPL_LOG_WARNING - 1, LogLevel::warning);
EPL_SAME(EPL_LOG_ERROR - 1, LogLevel::error);

EPL_SAME(EPL_DTYPE_F32 - 1, DType::f32);
EPL_SAME(EPL_DTYPE_F64 - 1, DType::f64);
EPL_SAME(EPL_DTYPE_F16 - 1, DType::f16);
EPL_SAME(EPL_DTYPE_BF16 - 1, DType::bf16);
EPL_SAME(EPL_DTYPE_I8 - 1, DType::i8);
EPL_SAME(EPL_DTYPE_I16 - 1, DType::i16);
EPL_SAME(EPL_DTYPE_I32 - 1, DType::i32);
EPL_SAME(EPL_DTYPE_I64 - 1, DType::i64);
EPL_SAME(EPL_DTYPE_U8 - 1, DType::u8);
EPL_SAME(EPL_DTYPE_U16 - 1, DType::u16);
EPL_SAME(EPL_DTYPE_U32 - 1, DType::u32);
EPL_SAME(EPL_DTYPE_U64 - 1, DType::u64);
EPL_SAME(EPL_DTYPE_BOOL - 1, DType::boolean);
EPL_SAME(EPL_ENTRY_TRAIN, EntryKind::train);
EPL_SAME(EPL_ENTRY_EVALUATE, EntryKind::evaluate);
EPL_SAME(EPL_ENTRY_PREDICT, EntryKind::predict);
EPL_SAME(EPL_STATE_PARAMETER, StateKind::parameter);
EPL_SAME(EPL_STATE_FROZEN, StateKind::frozen);
EPL_SAME(EPL_STATE_BUFFER, StateKind::buffer);
EPL_SAME(EPL_STATE_OPTIMIZER, StateKind::optimizer);
EPL_SAME(EPL_STATE_GRADIENT, StateKind::gradient);
static_assert(EPL_DTYPE_BOOL == dtype_count);

#undef EPL_SAME

}  // namespace
}  // namespace epl::capi
