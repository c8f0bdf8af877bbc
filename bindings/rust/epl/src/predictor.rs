use crate::call::Call;
use crate::error::{check, Result};
use crate::handle::{given, handle};
use crate::plan::{Entry, Plan};
use crate::session::{handles, writable, Session};
use crate::tensor::{Tensor, TensorRef};
use epl_sys as sys;
use std::ptr::NonNull;

handle!(
    #[doc(hidden)]
    RawPredictor, epl_predictor, epl_predictor_destroy
);

/// Predicts beside the steps of a session, on another thread, with a copy of the weights of one step. It outlives its
/// session; a session may have several.
#[derive(Debug)]
pub struct Predictor {
    raw: RawPredictor,
    outputs: usize,
}
// The header: one caller at a time, from any thread. `&mut self` is one caller.
unsafe impl Send for Predictor {}

impl Predictor {
    /// One with the weights of the session's last step, for batches of `plan`: the session's own, or another one of the
    /// same model and trainer with other sizes.
    pub fn new(session: &Session, plan: &Plan, call: &Call) -> Result<Predictor> {
        let raw = given(|place| unsafe {
            sys::epl_predictor_create(session.0.as_ptr(), plan.0.as_ptr(), &call.raw(), place)
        })?;
        let outputs = unsafe {
            sys::epl_plan_port_count(plan.0.as_ptr(), Entry::PREDICT.raw(), sys::EPL_PORT_OUTPUT)
        };
        Ok(Predictor { raw: RawPredictor(raw), outputs: outputs as usize })
    }
    /// Takes the weights of the session's last step, all at once; also while the session makes its next one.
    pub fn refresh(&mut self, call: &Call) -> Result<()> {
        check(unsafe { sys::epl_predictor_refresh(self.raw.0.as_ptr(), &call.raw()) })
    }
    /// Steps that the session had done when these were its weights.
    pub fn steps(&self) -> i64 {
        unsafe { sys::epl_predictor_steps(self.raw.0.as_ptr()) }
    }
    /// What it has allocated for weights and work.
    pub fn memory_bytes(&self) -> i64 {
        unsafe { sys::epl_predictor_memory_bytes(self.raw.0.as_ptr()) }
    }
    /// The outputs of the model, in the order of [`Plan::outputs`] of `Entry::PREDICT`.
    pub fn predict<'t, T: Into<TensorRef<'t>>>(
        &mut self, inputs: impl IntoIterator<Item = T>, call: &Call,
    ) -> Result<Vec<Tensor<'static>>> {
        let inputs = handles(inputs);
        let mut outputs = vec![std::ptr::null_mut(); self.outputs];
        check(unsafe {
            sys::epl_predictor_predict(
                self.raw.0.as_ptr(), inputs.as_ptr(), inputs.len(), &call.raw(), outputs.as_mut_ptr(), outputs.len(),
            )
        })?;
        Ok(outputs.into_iter().filter_map(NonNull::new).map(Tensor::own).collect())
    }
    /// [`Session::predict_into`] with the predictor's weights.
    pub fn predict_into<'t, T: Into<TensorRef<'t>>>(
        &mut self, inputs: impl IntoIterator<Item = T>, outputs: &mut [Tensor<'_>], call: &Call,
    ) -> Result<()> {
        let (inputs, outputs) = (handles(inputs), writable(outputs));
        check(unsafe {
            sys::epl_predictor_predict_into(
                self.raw.0.as_ptr(), inputs.as_ptr(), inputs.len(), &call.raw(), outputs.as_ptr(), outputs.len(),
            )
        })
    }
}
