//! Checkpoints and exports without files: to a writer of the host's, from its memory.
use crate::call::Call;
use crate::dataset::Dataset;
use crate::error::{check, Code, Result};
use crate::handle::raw;
use crate::plan::Plan;
use crate::session::{optional, Session};
use epl_sys as sys;
use std::ffi::c_void;
use std::io::Write;
use std::panic::{catch_unwind, AssertUnwindSafe};

/// What [`Session::export_to`] writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// The model's file with the trained weights, ready for inference.
    Onnx,
    /// The same, but to train on.
    OnnxForTraining,
    /// Parameters and buffers under their names.
    Safetensors,
}

impl Format {
    fn name(self) -> &'static str {
        match self {
            Format::Onnx => "onnx",
            Format::OnnxForTraining => "onnx_for_training",
            Format::Safetensors => "safetensors",
        }
    }
}

unsafe extern "C" fn write(userdata: *mut c_void, data: *const c_void, bytes: usize) -> *mut sys::epl_error {
    let writer = &mut *(userdata as *mut &mut dyn Write);
    let data = if bytes == 0 { &[] } else { std::slice::from_raw_parts(data.cast::<u8>(), bytes) };
    // A panic must not unwind into C.
    let written = catch_unwind(AssertUnwindSafe(|| writer.write_all(data).map_err(|error| error.to_string())));
    match written.unwrap_or_else(|_| Err("the writer has panicked".into())) {
        Ok(()) => std::ptr::null_mut(),
        Err(message) => {
            let (message, length) = raw(&message);
            sys::epl_error_create(Code::IO.0, message, length)
        }
    }
}

impl Plan {
    /// Writes the decisions of the plan: [`Plan::load_bytes`].
    pub fn save_to(&self, mut writer: impl Write, call: &Call) -> Result<()> {
        let mut writer: &mut dyn Write = &mut writer;
        let userdata = std::ptr::from_mut(&mut writer).cast();
        check(unsafe { sys::epl_plan_save_to(self.0.as_ptr(), Some(write), userdata, &call.raw()) })
    }
}

impl Session {
    /// Writes a checkpoint as one stream: a zip archive of what [`Session::save`] makes.
    pub fn save_to(&mut self, mut writer: impl Write, dataset: Option<&mut Dataset>, call: &Call) -> Result<()> {
        let mut writer: &mut dyn Write = &mut writer;
        let userdata = std::ptr::from_mut(&mut writer).cast();
        check(unsafe {
            sys::epl_session_save_to(self.0.as_ptr(), Some(write), userdata, optional(dataset), &call.raw())
        })
    }
    /// Goes on from such a stream.
    pub fn load_bytes(&mut self, bytes: &[u8], dataset: Option<&mut Dataset>, call: &Call) -> Result<()> {
        check(unsafe {
            sys::epl_session_load_bytes(
                self.0.as_ptr(),
                bytes.as_ptr().cast(),
                bytes.len(),
                optional(dataset),
                &call.raw(),
            )
        })
    }
    /// Writes what was trained.
    pub fn export_to(&mut self, mut writer: impl Write, format: Format, call: &Call) -> Result<()> {
        let mut writer: &mut dyn Write = &mut writer;
        let userdata = std::ptr::from_mut(&mut writer).cast();
        let (format, length) = raw(format.name());
        check(unsafe {
            sys::epl_session_export_to(self.0.as_ptr(), format, length, Some(write), userdata, &call.raw())
        })
    }
    /// What the last step told; all zero before the first.
    pub fn progress(&self) -> crate::Metrics {
        let mut metrics = sys::epl_metrics::default();
        unsafe { sys::epl_session_progress(self.0.as_ptr(), &mut metrics) };
        metrics.into()
    }
}
