use crate::call::Call;
use crate::error::{check, Result};
use crate::handle::{given, given_text, path_text, raw, shared_handle, text_of};
use epl_sys as sys;
use std::ffi::{c_char, c_void};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::path::Path;

shared_handle!(
    /// What everything else is made from: threads, logger, packs. Several may live in one process. Clones are the same
    /// engine.
    Engine, epl_engine, epl_engine_destroy
);

/// How much a line of the log matters.
#[allow(missing_docs)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    Debug = sys::EPL_LOG_DEBUG as isize,
    Info = sys::EPL_LOG_INFO as isize,
    Warning = sys::EPL_LOG_WARNING as isize,
    Error = sys::EPL_LOG_ERROR as isize,
}

type Log = dyn Fn(Level, &str) + Send + Sync;

/// The options of an [`Engine`].
#[derive(Default)]
pub struct EngineBuilder {
    threads: i32,
    log: Option<(Level, Box<Log>)>,
    packs: String,
    kernel_cache: String,
    memory_bytes: u64,
}

/// Something that plans can be made for.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Device {
    /// For [`PlanOptions`](crate::PlanOptions).
    pub name: String,
    /// That the engine's options allow.
    pub threads: i32,
    /// 0: not known.
    pub memory_bytes: i64,
}

unsafe extern "C" fn log(userdata: *mut c_void, level: i32, message: *const c_char, length: usize) {
    let log = &*(userdata as *const Box<Log>);
    let level = match level {
        sys::EPL_LOG_DEBUG => Level::Debug,
        sys::EPL_LOG_INFO => Level::Info,
        sys::EPL_LOG_WARNING => Level::Warning,
        _ => Level::Error,
    };
    // A panic must not unwind into C; the line is lost, the training goes on.
    let _ = catch_unwind(AssertUnwindSafe(|| log(level, &text_of(message, length))));
}

unsafe extern "C" fn drop_log(userdata: *mut c_void) {
    drop(Box::from_raw(userdata as *mut Box<Log>));
}

impl EngineBuilder {
    /// Threads for sessions, their callers among them; 0, the default: one for each processor.
    pub fn threads(mut self, threads: u32) -> Self {
        self.threads = i32::try_from(threads).unwrap_or(i32::MAX);
        self
    }
    /// The log as events of the crate `tracing`, with the target "epl".
    #[cfg(feature = "tracing")]
    pub fn tracing(self) -> Self {
        self.log(Level::Debug, |level, message| match level {
            Level::Debug => tracing::debug!(target: "epl", "{message}"),
            Level::Info => tracing::info!(target: "epl", "{message}"),
            Level::Warning => tracing::warn!(target: "epl", "{message}"),
            Level::Error => tracing::error!(target: "epl", "{message}"),
        })
    }
    /// Called from any thread with what happens, from that level on.
    pub fn log(mut self, least: Level, log: impl Fn(Level, &str) + Send + Sync + 'static) -> Self {
        self.log = Some((least, Box::new(log)));
        self
    }
    /// The folder of the optional packs; by default the one that the library is in.
    pub fn packs(mut self, folder: &str) -> Self {
        self.packs = folder.into();
        self
    }
    /// A folder in which what is compiled for a GPU stays for later processes, which share it; by default nowhere.
    pub fn kernel_cache(mut self, folder: &str) -> Self {
        self.kernel_cache = folder.into();
        self
    }
    /// Bytes that tensors, sessions and predictors may have together; 0, the default: no bound.
    pub fn memory_bytes(mut self, bytes: u64) -> Self {
        self.memory_bytes = bytes;
        self
    }
    /// Makes the engine. It costs microseconds, and starts no thread.
    pub fn build(self) -> Result<Engine> {
        let mut options =
            sys::epl_engine_options { threads: self.threads, memory_bytes: self.memory_bytes, ..Default::default() };
        if !self.packs.is_empty() {
            (options.packs, options.packs_length) = (self.packs.as_ptr().cast(), self.packs.len() as u64);
        }
        if !self.kernel_cache.is_empty() {
            options.kernel_cache = self.kernel_cache.as_ptr().cast();
            options.kernel_cache_length = self.kernel_cache.len() as u64;
        }
        let mut userdata = std::ptr::null_mut();
        if let Some((least, callback)) = self.log {
            userdata = Box::into_raw(Box::new(callback)) as *mut c_void;
            options.log_level = least as i32;
            options.log = Some(log);
            options.log_userdata = userdata;
            options.log_destroy = Some(drop_log);
        }
        let made = given(|place| unsafe { sys::epl_engine_create(&options, place) });
        if made.is_err() && !userdata.is_null() {
            unsafe { drop_log(userdata) }; // where it fails they are still ours
        }
        Ok(Engine::own(made?))
    }
}

impl Engine {
    /// An engine with all defaults.
    pub fn new() -> Result<Engine> {
        Engine::builder().build()
    }
    /// An engine with options.
    pub fn builder() -> EngineBuilder {
        EngineBuilder::default()
    }
    /// What its tensors, sessions and predictors have now.
    pub fn memory_bytes(&self) -> u64 {
        unsafe { sys::epl_engine_memory_bytes(self.0.as_ptr()) }
    }
    /// As JSON, what this build and this machine have: version, processor level, devices, losses, metrics, optimizers,
    /// schedules, readers, model families, strategy keys, packs.
    pub fn describe(&self) -> Result<String> {
        given_text(|place| unsafe { sys::epl_engine_describe(self.0.as_ptr(), place) })
    }
    /// What plans can be made for.
    pub fn devices(&self) -> Result<Vec<Device>> {
        let count = unsafe { sys::epl_engine_device_count(self.0.as_ptr()) };
        (0..count)
            .map(|index| {
                let mut info = sys::epl_device_info::default();
                check(unsafe { sys::epl_engine_device(self.0.as_ptr(), index, &mut info) })?;
                let name = unsafe { text_of(info.name, info.name_length as usize) };
                Ok(Device { name, threads: info.threads, memory_bytes: info.memory_bytes })
            })
            .collect()
    }
    /// Writes a model of a known family to `path`, with weights drawn from a seed. `options` is a JSON object; empty for
    /// defaults.
    pub fn write_template(&self, family: &str, options: &str, path: impl AsRef<Path>, call: &Call) -> Result<()> {
        let ((family, family_length), (options, options_length)) = (raw(family), raw(options));
        let (path, path_length) = raw(path_text(path.as_ref())?);
        check(unsafe {
            sys::epl_x_template_write(
                self.0.as_ptr(),
                family,
                family_length,
                options,
                options_length,
                path,
                path_length,
                &call.raw(),
            )
        })
    }
    /// As JSON, what a checkpoint holds.
    pub fn describe_checkpoint(&self, path: impl AsRef<Path>, call: &Call) -> Result<String> {
        let (path, length) = raw(path_text(path.as_ref())?);
        given_text(|place| unsafe { sys::epl_checkpoint_describe(self.0.as_ptr(), path, length, &call.raw(), place) })
    }
    /// What two plan files decide differently, a sentence a line; nothing where they decide the same.
    pub fn compare_plans(&self, path: impl AsRef<Path>, other: impl AsRef<Path>, call: &Call) -> Result<String> {
        let (path, length) = raw(path_text(path.as_ref())?);
        let (other, other_length) = raw(path_text(other.as_ref())?);
        given_text(|place| unsafe {
            sys::epl_plan_compare(self.0.as_ptr(), path, length, other, other_length, &call.raw(), place)
        })
    }
    /// Removes the files that a checkpoint consists of, and the folder if nothing else lies there.
    pub fn remove_checkpoint(&self, path: impl AsRef<Path>) -> Result<()> {
        let (path, length) = raw(path_text(path.as_ref())?);
        check(unsafe { sys::epl_checkpoint_remove(self.0.as_ptr(), path, length) })
    }
}
