use crate::call::Call;
use crate::dataset::Dataset;
use crate::engine::Engine;
use crate::error::{check, Result};
use crate::handle::{given, given_text, path_text, raw};
use crate::plan::{Entry, Plan};
use crate::tensor::{infos, Info, Tensor, TensorRef};
use epl_sys as sys;
use std::path::Path;
use std::ptr::NonNull;
use std::time::Duration;

/// The options of a [`Session`]. The default: the ranks of the plan are threads of this process. Otherwise each process of
/// a job has some of the ranks, and all make the same calls (docs/processes.md).
#[derive(Clone, Default)]
pub struct SessionOptions {
    /// This process has the ranks from this one on.
    pub first_rank: u64,
    /// So many; 0, where `first_rank` is 0 too: all of them.
    pub ranks: u64,
    /// "tcp://HOST:PORT", what [`Store::id`](crate::Store::id) gives, or "file:///FOLDER".
    pub rendezvous: String,
    /// What all processes know and nobody else.
    pub secret: String,
    /// Of this host, under which the others reach it.
    pub address: String,
    /// "shared,sockets" if empty.
    pub transport: String,
    /// For all processes to come; zero: a minute.
    pub join_timeout: Duration,
    /// For a process that says nothing within a call; zero: ten minutes.
    pub silence_timeout: Duration,
    /// Calls take the samples of this process's ranks alone: [`Plan::slice`].
    pub slices: bool,
    /// Weights of rank 0 are taken where the model file of this process has others; otherwise they are an error.
    pub take_weights: bool,
    /// Steps between comparisons of the copies of weights; 0: 100; -1: with checkpoints alone.
    pub compare_every: i64,
    /// "hmac" signs what goes over connections between processes, by the secret; "none" if empty.
    pub integrity: String,
}

impl std::fmt::Debug for SessionOptions {
    // Whoever prints options for a log does not mean to print the secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SessionOptions")
            .field("first_rank", &self.first_rank)
            .field("ranks", &self.ranks)
            .field("address", &self.address)
            .field("transport", &self.transport)
            .field("join_timeout", &self.join_timeout)
            .field("silence_timeout", &self.silence_timeout)
            .field("slices", &self.slices)
            .field("take_weights", &self.take_weights)
            .field("compare_every", &self.compare_every)
            .field("integrity", &self.integrity)
            .finish_non_exhaustive()
    }
}

/// What a step or an evaluation tells.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Metrics {
    /// Steps done, this one included.
    pub step: i64,
    /// Before the update.
    pub loss: f64,
    /// Global, before clipping; none where it was not computed.
    pub gradient_norm: Option<f64>,
    /// Of the ungrouped parameters; 0 of an evaluation.
    pub learning_rate: f64,
    /// Of the call.
    pub duration: Duration,
}

impl From<sys::epl_metrics> for Metrics {
    fn from(raw: sys::epl_metrics) -> Metrics {
        Metrics {
            step: raw.step,
            loss: raw.loss,
            gradient_norm: (raw.gradient_norm >= 0.0).then_some(raw.gradient_norm),
            learning_rate: raw.learning_rate,
            duration: Duration::from_nanos(raw.nanoseconds.max(0) as u64),
        }
    }
}

/// A kind of what a session keeps.
#[allow(missing_docs)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StateKind {
    Parameter = sys::EPL_STATE_PARAMETER as isize,
    Frozen = sys::EPL_STATE_FROZEN as isize,
    Buffer = sys::EPL_STATE_BUFFER as isize,
    Optimizer = sys::EPL_STATE_OPTIMIZER as isize,
    Gradient = sys::EPL_STATE_GRADIENT as isize,
}

/// A running training job.
pub struct Session(pub(crate) NonNull<sys::epl_session>, pub(crate) Engine);

impl Drop for Session {
    fn drop(&mut self) {
        unsafe { sys::epl_session_destroy(self.0.as_ptr()) }
    }
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").field("steps", &self.steps()).finish()
    }
}
// The header: one caller at a time, from any thread. `&mut self` is one caller.
unsafe impl Send for Session {}

/// The handles of inputs, in one array.
pub(crate) fn handles<'t, T: Into<TensorRef<'t>>>(inputs: impl IntoIterator<Item = T>) -> Vec<*const sys::epl_tensor> {
    inputs.into_iter().map(|one| one.into().raw).collect()
}

/// The handles of tensors that a call writes. The library refuses those that are read-only.
pub(crate) fn writable(outputs: &mut [Tensor<'_>]) -> Vec<*mut sys::epl_tensor> {
    outputs.iter_mut().map(|one| one.raw.as_ptr()).collect()
}

pub(crate) fn optional(dataset: Option<&mut Dataset>) -> *mut sys::epl_dataset {
    dataset.map_or(std::ptr::null_mut(), |one| one.0.as_ptr())
}

impl Session {
    /// Makes a session: memory is allocated and weights are read.
    pub fn new(plan: &Plan, options: &SessionOptions, call: &Call) -> Result<Session> {
        let text = |one: &String| -> (*const std::ffi::c_char, u64) {
            if one.is_empty() {
                (std::ptr::null(), 0)
            } else {
                (one.as_ptr().cast(), one.len() as u64)
            }
        };
        let nanoseconds = |one: Duration| i64::try_from(one.as_nanos()).unwrap_or(i64::MAX);
        let (rendezvous, rendezvous_length) = text(&options.rendezvous);
        let (secret, secret_length) = text(&options.secret);
        let (address, address_length) = text(&options.address);
        let (transport, transport_length) = text(&options.transport);
        let (integrity, integrity_length) = text(&options.integrity);
        let options = sys::epl_session_options {
            first_rank: options.first_rank as i64,
            ranks: options.ranks as i64,
            rendezvous,
            rendezvous_length,
            secret,
            secret_length,
            address,
            address_length,
            transport,
            transport_length,
            join_timeout_nanoseconds: nanoseconds(options.join_timeout),
            silence_timeout_nanoseconds: nanoseconds(options.silence_timeout),
            slices: options.slices.into(),
            take_weights: options.take_weights.into(),
            compare_every: options.compare_every,
            integrity,
            integrity_length,
            ..Default::default()
        };
        given(|place| unsafe { sys::epl_session_create(plan.0.as_ptr(), &options, &call.raw(), place) })
            .map(|raw| Session(raw, plan.1.clone()))
    }
    /// One optimizer step over the global batch, inputs in the order of [`Plan::inputs`]. A step happens or does not:
    /// after an error nothing has changed.
    pub fn step<'t, T: Into<TensorRef<'t>>>(
        &mut self, inputs: impl IntoIterator<Item = T>, call: &Call,
    ) -> Result<Metrics> {
        let inputs = handles(inputs);
        let mut metrics = sys::epl_metrics::default();
        check(unsafe {
            sys::epl_session_step(self.0.as_ptr(), inputs.as_ptr(), inputs.len(), &call.raw(), &mut metrics)
        })?;
        Ok(metrics.into())
    }
    /// The gradients of a batch without an update, for a trainer with `keep_gradients`: [`Session::get`] and
    /// [`Session::set`] read and change them as `<parameter>.gradient`.
    pub fn gradients<'t, T: Into<TensorRef<'t>>>(
        &mut self, inputs: impl IntoIterator<Item = T>, call: &Call,
    ) -> Result<Metrics> {
        let inputs = handles(inputs);
        let mut metrics = sys::epl_metrics::default();
        check(unsafe {
            sys::epl_session_gradients(self.0.as_ptr(), inputs.as_ptr(), inputs.len(), &call.raw(), &mut metrics)
        })?;
        Ok(metrics.into())
    }
    /// The update of a step, by the gradients that the session has.
    pub fn apply(&mut self, call: &Call) -> Result<Metrics> {
        let mut metrics = sys::epl_metrics::default();
        check(unsafe { sys::epl_session_apply(self.0.as_ptr(), &call.raw(), &mut metrics) })?;
        Ok(metrics.into())
    }
    /// The loss without an update, dropout off.
    pub fn evaluate<'t, T: Into<TensorRef<'t>>>(
        &mut self, inputs: impl IntoIterator<Item = T>, call: &Call,
    ) -> Result<Metrics> {
        let inputs = handles(inputs);
        let mut metrics = sys::epl_metrics::default();
        check(unsafe {
            sys::epl_session_evaluate(self.0.as_ptr(), inputs.as_ptr(), inputs.len(), &call.raw(), &mut metrics)
        })?;
        Ok(metrics.into())
    }
    /// The outputs of the model, in the order of [`Plan::outputs`] of `Entry::PREDICT`, of which `plan` tells the number.
    pub fn predict<'t, T: Into<TensorRef<'t>>>(
        &mut self, plan: &Plan, inputs: impl IntoIterator<Item = T>, call: &Call,
    ) -> Result<Vec<Tensor<'static>>> {
        let inputs = handles(inputs);
        let count = unsafe { sys::epl_plan_port_count(plan.0.as_ptr(), Entry::PREDICT.raw(), sys::EPL_PORT_OUTPUT) };
        let mut outputs = vec![std::ptr::null_mut(); count as usize];
        check(unsafe {
            sys::epl_session_predict(
                self.0.as_ptr(),
                inputs.as_ptr(),
                inputs.len(),
                &call.raw(),
                outputs.as_mut_ptr(),
                outputs.len(),
            )
        })?;
        Ok(outputs.into_iter().filter_map(NonNull::new).map(Tensor::own).collect())
    }
    /// The same with inputs and outputs by name.
    pub fn predict_named<'t, 'n, T: Into<TensorRef<'t>>>(
        &mut self, plan: &Plan, inputs: impl IntoIterator<Item = (&'n str, T)>, call: &Call,
    ) -> Result<std::collections::BTreeMap<String, Tensor<'static>>> {
        let names = plan.outputs(Entry::PREDICT)?.into_iter().map(|one| one.name);
        let outputs = self.predict(plan, plan.named(Entry::PREDICT, inputs)?, call)?;
        Ok(names.zip(outputs).collect())
    }
    /// The same into tensors that are there, of the types and sizes of the outputs of so many samples. After an error they
    /// hold anything.
    pub fn predict_into<'t, T: Into<TensorRef<'t>>>(
        &mut self, inputs: impl IntoIterator<Item = T>, outputs: &mut [Tensor<'_>], call: &Call,
    ) -> Result<()> {
        let (inputs, outputs) = (handles(inputs), writable(outputs));
        check(unsafe {
            sys::epl_session_predict_into(
                self.0.as_ptr(),
                inputs.as_ptr(),
                inputs.len(),
                &call.raw(),
                outputs.as_ptr(),
                outputs.len(),
            )
        })
    }
    /// An output of the last step (`Entry::TRAIN`) or evaluation (`Entry::EVALUATE`) by its name: "loss" of a step, or
    /// what a key of the strategy merges.
    pub fn output(&mut self, entry: Entry, name: &str) -> Result<Tensor<'static>> {
        let (name, length) = raw(name);
        given(|place| unsafe { sys::epl_session_output(self.0.as_ptr(), entry.raw(), name, length, place) })
            .map(Tensor::own)
    }
    /// Steps done.
    pub fn steps(&self) -> i64 {
        unsafe { sys::epl_session_steps(self.0.as_ptr()) }
    }
    /// Bytes that a rank has used at its fullest so far, never above the plan's.
    pub fn memory_bytes_peak(&self, rank: u64) -> Option<u64> {
        u64::try_from(unsafe { sys::epl_session_memory_bytes_peak(self.0.as_ptr(), rank as i64) }).ok()
    }
    /// A scalar output of the last step, `gradient_norm:<parameter>` for example.
    pub fn metric(&mut self, name: &str) -> Result<f64> {
        let (name, length) = raw(name);
        let mut value = 0.0;
        check(unsafe { sys::epl_session_metric(self.0.as_ptr(), name, length, &mut value) })?;
        Ok(value)
    }
    /// A number that decides how training goes on: "learning_rate", "learning_rate:GROUP", "learning_rate_scale" or
    /// "frozen:PATTERN".
    pub fn number(&mut self, name: &str) -> Result<f64> {
        let (name, length) = raw(name);
        let mut value = 0.0;
        check(unsafe { sys::epl_session_get_number(self.0.as_ptr(), name, length, &mut value) })?;
        Ok(value)
    }
    /// Changes such a number, between steps.
    pub fn set_number(&mut self, name: &str, value: f64) -> Result<()> {
        let (name, length) = raw(name);
        check(unsafe { sys::epl_session_set_number(self.0.as_ptr(), name, length, value) })
    }
    /// Tells the schedule "plateau" what was measured.
    pub fn observe(&mut self, value: f64, higher_is_better: bool) -> Result<()> {
        check(unsafe { sys::epl_session_observe(self.0.as_ptr(), value, higher_is_better.into()) })
    }
    /// A hash over the bytes of all trained parameters: equal weights, equal hash.
    pub fn hash(&mut self, call: &Call) -> Result<u64> {
        let mut hash = 0;
        check(unsafe { sys::epl_session_hash(self.0.as_ptr(), &call.raw(), &mut hash) })?;
        Ok(hash)
    }
    /// What the session keeps of a kind, in the order of the names.
    pub fn state(&self, kind: StateKind) -> Result<Vec<Info>> {
        infos(unsafe { sys::epl_session_state_count(self.0.as_ptr(), kind as i32) }, |index, info| unsafe {
            sys::epl_session_state_port(self.0.as_ptr(), kind as i32, index, info)
        })
    }
    /// A copy of a parameter, a buffer or optimizer state, by its name.
    pub fn get(&mut self, name: &str, call: &Call) -> Result<Tensor<'static>> {
        let (name, length) = raw(name);
        given(|place| unsafe { sys::epl_session_get(self.0.as_ptr(), name, length, &call.raw(), place) })
            .map(Tensor::own)
    }
    /// Changes one of them; the tensor is copied.
    pub fn set<'t>(&mut self, name: &str, value: impl Into<TensorRef<'t>>, call: &Call) -> Result<()> {
        let (name, length) = raw(name);
        check(unsafe { sys::epl_session_set(self.0.as_ptr(), name, length, value.into().raw, &call.raw()) })
    }
    /// Writes a checkpoint into a folder: everything that decides how training goes on, and where `dataset` stands.
    pub fn save(&mut self, path: impl AsRef<Path>, dataset: Option<&mut Dataset>, call: &Call) -> Result<()> {
        let (path, length) = raw(path_text(path.as_ref())?);
        check(unsafe { sys::epl_session_save(self.0.as_ptr(), path, length, optional(dataset), &call.raw()) })
    }
    /// Goes on from a checkpoint, under any layout.
    pub fn load(&mut self, path: impl AsRef<Path>, dataset: Option<&mut Dataset>, call: &Call) -> Result<()> {
        let (path, length) = raw(path_text(path.as_ref())?);
        check(unsafe { sys::epl_session_load(self.0.as_ptr(), path, length, optional(dataset), &call.raw()) })
    }
    /// As a JSON list, in what this session differs from the run that saved a checkpoint.
    pub fn compare(&mut self, path: impl AsRef<Path>, dataset: Option<&mut Dataset>, call: &Call) -> Result<String> {
        let (path, length) = raw(path_text(path.as_ref())?);
        given_text(|place| unsafe {
            sys::epl_session_compare(self.0.as_ptr(), path, length, optional(dataset), &call.raw(), place)
        })
    }
    /// Writes the model's file with the trained weights, ready for inference.
    pub fn export_onnx(&mut self, path: impl AsRef<Path>, call: &Call) -> Result<()> {
        let (path, length) = raw(path_text(path.as_ref())?);
        check(unsafe { sys::epl_session_export_onnx(self.0.as_ptr(), path, length, &call.raw()) })
    }
    /// The same, but to train on.
    pub fn export_onnx_for_training(&mut self, path: impl AsRef<Path>, call: &Call) -> Result<()> {
        let (path, length) = raw(path_text(path.as_ref())?);
        check(unsafe { sys::epl_session_export_onnx_for_training(self.0.as_ptr(), path, length, &call.raw()) })
    }
    /// Parameters and buffers under their names, adapters merged into their weights.
    pub fn export_safetensors(&mut self, path: impl AsRef<Path>, call: &Call) -> Result<()> {
        let (path, length) = raw(path_text(path.as_ref())?);
        check(unsafe { sys::epl_session_export_safetensors(self.0.as_ptr(), path, length, &call.raw()) })
    }
    /// The low-rank adapters, as Hugging Face PEFT loads them, into a folder.
    pub fn export_adapters(&mut self, folder: impl AsRef<Path>, call: &Call) -> Result<()> {
        let (folder, length) = raw(path_text(folder.as_ref())?);
        check(unsafe { sys::epl_session_export_adapters(self.0.as_ptr(), folder, length, &call.raw()) })
    }
    /// Notes what the ranks do in the next steps; 0: no more.
    pub fn record(&mut self, steps: i64) -> Result<()> {
        check(unsafe { sys::epl_session_record(self.0.as_ptr(), steps) })
    }
    /// What was noted, in the format of trace files of Chrome and Perfetto.
    pub fn trace(&mut self) -> Result<String> {
        given_text(|place| unsafe { sys::epl_session_trace(self.0.as_ptr(), place) })
    }
}
