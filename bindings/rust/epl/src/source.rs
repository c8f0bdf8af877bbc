//! Models and checkpoints that are read from the host instead of from files.
use crate::call::Call;
use crate::dataset::Dataset;
use crate::engine::Engine;
use crate::error::{check, guarded, Code, Error, Result};
use crate::handle::{given, raw};
use crate::model::Model;
use crate::session::{optional, Session};
use epl_sys as sys;
use std::ffi::{c_char, c_void};

/// Bytes that can be read at any position, and do not change: an object in a store, a part of an archive, what
/// `include_bytes!` has embedded into the program. Any threads read at once.
pub trait Source: Send + Sync + 'static {
    /// How many there are.
    fn bytes(&self) -> u64;
    /// Fills `target` with those from `offset` on, all of which lie in it. An error is that of the call that wants them.
    fn read(&self, offset: u64, target: &mut [u8]) -> Result<()>;
    /// What lies beside it under a relative path, which tensors of a model name for their values.
    fn open(&self, location: &str) -> Result<Box<dyn Source>> {
        Err(Error::new(Code::NOT_FOUND, format!("there is no {location} beside this source")))
    }
}

impl<B: AsRef<[u8]> + Send + Sync + 'static> Source for B {
    fn bytes(&self) -> u64 {
        self.as_ref().len() as u64
    }
    fn read(&self, offset: u64, target: &mut [u8]) -> Result<()> {
        target.copy_from_slice(&self.as_ref()[offset as usize..][..target.len()]);
        Ok(())
    }
}

unsafe extern "C" fn read(
    userdata: *mut c_void, offset: u64, target: *mut c_void, bytes: usize,
) -> *mut sys::epl_error {
    guarded(|| {
        let source = &*(userdata as *const Box<dyn Source>);
        let target = if bytes == 0 { &mut [] } else { std::slice::from_raw_parts_mut(target.cast::<u8>(), bytes) };
        source.read(offset, target)
    })
}

unsafe extern "C" fn open(
    userdata: *mut c_void, location: *const c_char, length: usize, target: *mut sys::epl_source,
) -> *mut sys::epl_error {
    guarded(|| {
        let source = &*(userdata as *const Box<dyn Source>);
        let location = std::slice::from_raw_parts(location.cast::<u8>(), length);
        *target = lent(source.open(&String::from_utf8_lossy(location))?);
        Ok(())
    })
}

unsafe extern "C" fn drop_source(userdata: *mut c_void) {
    let source = Box::from_raw(userdata as *mut Box<dyn Source>);
    let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(source)));
}

/// The library's from the call on that takes it, if that succeeds.
fn lent(source: Box<dyn Source>) -> sys::epl_source {
    sys::epl_source {
        bytes: source.bytes(),
        read: Some(read),
        open: Some(open),
        userdata: Box::into_raw(Box::new(source)).cast(),
        destroy: Some(drop_source),
        ..Default::default()
    }
}

/// Calls `f` with the source; where that fails it is still ours.
fn lend<T>(source: impl Source, f: impl FnOnce(&sys::epl_source) -> Result<T>) -> Result<T> {
    let source = lent(Box::new(source));
    let result = f(&source);
    if result.is_err() {
        unsafe { drop_source(source.userdata) };
    }
    result
}

impl Model {
    /// Reads a model from the host. Large weights stay there until a session or an export needs them.
    pub fn load_from(engine: &Engine, source: impl Source, call: &Call) -> Result<Model> {
        lend(source, |source| {
            given(|place| unsafe {
                sys::epl_model_load_from(engine.0.as_ptr(), source, std::ptr::null(), &call.raw(), place)
            })
            .map(|raw| Model::own(raw, engine))
        })
    }
}

impl Session {
    /// Goes on from a stream of [`Session::save_to`]. It is read twice: to check it before anything changes, and to take
    /// its values.
    pub fn load_from(&mut self, source: impl Source, dataset: Option<&mut Dataset>, call: &Call) -> Result<()> {
        lend(source, |source| {
            check(unsafe { sys::epl_session_load_from(self.0.as_ptr(), source, optional(dataset), &call.raw()) })
        })
    }
    /// Tells the other processes of a job that this one will not make its next call, for example because it cannot read
    /// its samples. The call that they are in, or their next one, ends with [`Code::PEER_FAILED`] and the reason;
    /// afterwards all may make the same call again. In one process it does nothing.
    pub fn give_up(&mut self, reason: &str, call: &Call) -> Result<()> {
        let (reason, length) = raw(reason);
        check(unsafe { sys::epl_session_give_up(self.0.as_ptr(), reason, length, &call.raw()) })
    }
    /// Compares with the other processes of a job what all must have in common: `facts`, a JSON object of the caller's
    /// own, and the data. What differs is an error in all of them that names it. In one process it does nothing.
    pub fn agree(&mut self, facts: &str, dataset: Option<&mut Dataset>, call: &Call) -> Result<()> {
        let (facts, length) = raw(facts);
        check(unsafe { sys::epl_session_agree(self.0.as_ptr(), facts, length, optional(dataset), &call.raw()) })
    }
}
